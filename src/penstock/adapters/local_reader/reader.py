"""The provider: detect the format, read the pages, store the result."""

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

from penstock import __version__
from penstock.adapters.local_reader.book import Glasses, OpenDocument, PageBatch
from penstock.adapters.local_reader.bounds import ReaderLimits
from penstock.adapters.local_reader.papers import Papers
from penstock.adapters.local_reader.pdfs import read_pdf
from penstock.documents.blob_files import local_copy
from penstock.documents.errors import DocumentEmpty, DocumentTooLarge
from penstock.documents.kinds import IMAGES, Kind
from penstock.documents.ocr import engine, page_images
from penstock.documents.ocr.engine import load_engine, model_files
from penstock.documents.ocr.provider import Desk, Reading, Source
from penstock.documents.pages import Origin
from penstock.documents.pdf.text_layer import load_parser
from penstock.documents.text.document import detect_file_kind, read_batches
from penstock.kernel.blobs import Blobs
from penstock.kernel.json_object import JsonObject
from penstock.kernel.sandbox.call import Sandbox, Warmup

PARSERS = (
    "penstock.documents.pdf.survey",
    "penstock.documents.ocr.page_images",
    "penstock.documents.pdf.text_layer",
    "penstock.documents.text.batches",
    "liteparse",
    "pikepdf",
    "pypdfium2",
    "PIL.Image",
)
MAKERS = ("liteparse", "rapidocr", "onnxruntime", "pypdfium2", "pikepdf", "pillow")  # libraries whose version counts
ENGINE = ("penstock.documents.ocr.engine", "pypdfium2", "PIL.Image", "PIL.ImageOps")
# Used to render pages whose fonts are not embedded.
FONTS = (Path("/usr/share/fonts"), Path("/usr/local/share/fonts"))


def parser_sandbox(*, most_children: int = 4) -> Sandbox:
    """The sandbox for parsers; one of them runs an event loop, which needs a socket pair."""
    return Sandbox(
        preload=PARSERS, warmup=Warmup(function=load_parser), allow_socketpair=True, max_children=most_children
    )


def engine_sandbox(profile: str, *, most_children: int = 1) -> Sandbox:
    """The sandbox for OCR; each document runs in a fork of a process that has the engine loaded."""
    warmup = Warmup(function=load_engine, arguments=(profile,))
    return Sandbox(preload=ENGINE, readable=FONTS, warmup=warmup, max_children=most_children)


class LocalReader:
    """The OCR provider `local`."""

    name = "local"

    def __init__(
        self, blobs: Blobs, *, parsers: Sandbox, engine: Sandbox, scratch: Path, profile: str, limits: ReaderLimits
    ) -> None:
        """Raises OcrModelsMissing when the profile's models are not installed."""
        model_files(profile)
        self._blobs = blobs
        self._scratch = scratch
        self._parsers = parsers
        self._engine = engine
        self._profile = profile
        self._limits = limits
        self._versions = {"penstock": __version__, **{name: version(name) for name in MAKERS}}  # once: reads the disk

    @property
    def identity(self) -> JsonObject:
        """What may change the text of a document. Limits that only refuse are not part of it."""
        options = {"profile": self._profile, "max_page_pixels": self._limits.max_page_pixels}
        return {"reader": self.name, "versions": self._versions, **options}

    async def read(self, source: Source, desk: Desk) -> Reading:
        """Read a document, resuming an earlier attempt."""
        papers = Papers(self._blobs, desk.folder, self._scratch)
        if (done := await papers.find_reading()) is not None:
            return done
        self._check_size(source)
        await papers.look_for_pages()
        began = time.perf_counter()
        async with self._opened(source, papers) as book, papers.bound() as binding:
            origins: Counter[Origin] = Counter()
            async for batch in _batches(book):
                await asyncio.to_thread(binding.add, batch.pages)
                origins.update(page.origin for page in batch.pages)
                await desk.progress(origins.total(), batch.of)
            reading = self._reading(source, desk, papers, origins)
            reading.metadata["seconds"] = round(time.perf_counter() - began, 3)
            await papers.finish(binding, reading)
        return reading

    def _check_size(self, source: Source) -> None:
        if not source.size_bytes:
            raise DocumentEmpty(filename=source.filename)
        most = self._limits.max_file_bytes
        if source.size_bytes > most:
            reason = f"it has {source.size_bytes} bytes, and {most} may be read (ETL_MAX_FILE_BYTES)"
            raise DocumentTooLarge(filename=source.filename, reason=reason)

    @asynccontextmanager
    async def _opened(self, source: Source, papers: Papers) -> AsyncIterator[OpenDocument]:
        async with (
            local_copy(self._blobs, source.key, self._scratch) as path,
            self._parsers.session(path) as parsers,
            self._engine.session(path) as engine,
        ):
            limits = self._limits.parsing(source.size_bytes)
            yield OpenDocument(
                filename=source.filename,
                size_bytes=source.size_bytes,
                kind=await detect_file_kind(parsers, source.filename, limits=limits),
                papers=papers,
                glasses=Glasses(parsers=parsers, engine=engine, profile=self._profile, limits=self._limits),
            )

    def _reading(self, source: Source, desk: Desk, papers: Papers, origins: Counter[Origin]) -> Reading:
        name = hashlib.sha256(f"{desk.folder}\n{source.key}".encode()).hexdigest()
        return Reading(
            markdown_key=papers.markdown_key,
            pages_key=papers.pages_key,
            provider_task_id=f"{self.name}-{name[:16]}",
            page_count=origins.total(),
            metadata={
                "provider": self.name,
                "version": f"rapidocr {self._versions['rapidocr']}, liteparse {self._versions['liteparse']}",
                "profile": self._profile,
                "pages": origins.total(),
                "ocr_pages": origins["ocr"],
                "text_pages": origins["text"] + origins["file"],
            },
        )


def _batches(book: OpenDocument) -> AsyncIterator[PageBatch]:
    if book.kind is Kind.PDF:
        return read_pdf(book)
    return _read_image(book) if book.kind in IMAGES else _read_text_file(book)


async def _read_image(book: OpenDocument) -> AsyncIterator[PageBatch]:
    """All frames in order. They are counted, and possibly refused, before one is decoded."""
    limits = book.glasses.limits
    frames = await book.parse_whole(page_images.count_image_pages, limits.max_page_pixels, limits.max_pages)
    for number in range(1, frames.pages + 1):
        yield PageBatch(pages=(await book.see(engine.read_image_page, number),), of=frames.pages)


async def _read_text_file(book: OpenDocument) -> AsyncIterator[PageBatch]:
    """All pages in order. Their number is known only with the last part."""
    bounds, parsers = book.glasses.limits, book.glasses.parsers
    limits = bounds.parsing(book.size_bytes)
    parts = read_batches(parsers, book.kind, book.filename, max_pages=bounds.max_pages, limits=limits)
    async for part in parts:
        if part.pages:
            last = part.pages[-1].number
            yield PageBatch(pages=part.pages, of=last if part.following is None else last + 1)

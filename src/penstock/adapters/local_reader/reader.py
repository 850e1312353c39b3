"""The page reader opens documents; the provider reads their stretches in order and stores the result."""

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from importlib.metadata import version
from pathlib import Path

from penstock import __version__
from penstock.adapters.local_reader.artifacts import ReadingArtifacts
from penstock.adapters.local_reader.document import OpenDocument, ReaderSession
from penstock.adapters.local_reader.limits import ReaderLimits
from penstock.documents.blob_files import local_file
from penstock.documents.ocr.engine import load_engine, model_files
from penstock.documents.ocr.provider import Reading, Source, StageContext, check_size
from penstock.documents.page_reader import PageBatch, Stretch
from penstock.documents.pages import Origin
from penstock.documents.pdf.text_layer import load_parser
from penstock.documents.text.document import detect_file_kind
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


def parser_sandbox(*, max_children: int = 4) -> Sandbox:
    """The sandbox for parsers; one of them runs an event loop, which needs a socket pair."""
    return Sandbox(
        preload=PARSERS, warmup=Warmup(function=load_parser), allow_socketpair=True, max_children=max_children
    )


def engine_sandbox(profile: str, *, max_children: int = 1) -> Sandbox:
    """The sandbox for OCR; each document runs in a fork of a process that has the engine loaded."""
    warmup = Warmup(function=load_engine, arguments=(profile,))
    return Sandbox(preload=ENGINE, readable=FONTS, warmup=warmup, max_children=max_children)


class LocalReader:
    """The page reader, and the OCR provider `local`."""

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

    async def read(self, source: Source, context: StageContext) -> Reading:
        """Read all stretches of a document in order, resuming an earlier attempt."""
        artifacts = ReadingArtifacts(self._blobs, context.folder, self._scratch)
        if (done := await artifacts.find_reading()) is not None:
            return done
        began = time.perf_counter()
        async with self.open(source) as document, artifacts.result_files() as files:
            await artifacts.list_pages()
            survey = await document.survey()
            origins: Counter[Origin] = Counter()
            for stretch in survey.stretches:
                async for batch in _read_or_resume(document, stretch, artifacts):
                    await asyncio.to_thread(files.add, batch.pages)
                    origins.update(page.origin for page in batch.pages)
                    await context.progress(origins.total(), survey.page_count or batch.at_least)
            reading = self._reading(source, context, artifacts, origins)
            reading.metadata["seconds"] = round(time.perf_counter() - began, 3)
            await artifacts.finish(files, reading)
        return reading

    @asynccontextmanager
    async def open(self, source: Source) -> AsyncIterator[OpenDocument]:
        """Open a document for the length of a block: its survey and its pages share one local file."""
        check_size(source, max_bytes=self._limits.max_file_bytes)
        async with (
            self._file_of(source) as path,
            self._parsers.session(path) as parsers,
            self._engine.session(path) as engine,
        ):
            limits = self._limits.parsing(source.size_bytes)
            yield OpenDocument(
                filename=source.filename,
                size_bytes=source.size_bytes,
                kind=await detect_file_kind(parsers, source.filename, limits=limits),
                session=ReaderSession(parsers=parsers, engine=engine, profile=self._profile, limits=self._limits),
            )

    def _file_of(self, source: Source) -> AbstractAsyncContextManager[Path]:
        if source.path is not None:
            return nullcontext(source.path)
        return local_file(self._blobs, source.key, self._scratch)

    def _reading(
        self, source: Source, context: StageContext, artifacts: ReadingArtifacts, origins: Counter[Origin]
    ) -> Reading:
        name = hashlib.sha256(f"{context.folder}\n{source.key}".encode()).hexdigest()
        return Reading(
            markdown_key=artifacts.markdown_key,
            pages_key=artifacts.pages_key,
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


async def _read_or_resume(
    document: OpenDocument, stretch: Stretch, artifacts: ReadingArtifacts
) -> AsyncIterator[PageBatch]:
    """The pages of a stretch in order, its OCR pages from their checkpoints where there are some."""
    if stretch.origin == "ocr":
        yield await _recognize_or_resume(document, stretch, artifacts)
        return
    async for batch in document.read(stretch):
        if batch.pages or not batch.ocr:
            yield batch
        for page in batch.ocr:
            yield await _recognize_or_resume(document, page, artifacts)


async def _recognize_or_resume(document: OpenDocument, page: Stretch, artifacts: ReadingArtifacts) -> PageBatch:
    """A page by OCR, stored as a checkpoint, unless it has one from an earlier attempt."""
    if (kept := await artifacts.find_page(page.first)) is not None:
        return PageBatch(pages=(kept,))
    (batch,) = [each async for each in document.read(page)]
    await artifacts.keep(batch.pages[0])
    return batch

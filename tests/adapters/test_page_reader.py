"""The local reader as a page reader: a survey, and stretches that any worker can read alone."""

import io
import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pikepdf
import pytest
import pytest_asyncio

from penstock.adapters.local_reader import LocalReader, ReaderLimits
from penstock.documents.kinds import Kind
from penstock.documents.ocr.provider import Source
from penstock.documents.page_reader import STRETCH_PAGES, PageBatch, PageReader, Stretch, Survey, ocr_stretch
from penstock.documents.pages import Page
from tests.adapters.local_reader_harness import ReaderHarness, Sandboxes, harness_in, open_sandboxes
from tests.documents import pdf_files as making
from tests.fakes.remote_blobs import RemoteBlobs

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1024 * 1024
PAPER = "users/7/raw/1/paper"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandboxes() -> AsyncIterator[Sandboxes]:
    async with open_sandboxes() as both:
        yield both


@pytest.fixture
def harness(sandboxes: Sandboxes, tmp_path: Path) -> ReaderHarness:
    return harness_in(tmp_path, sandboxes)


def reader_of(harness: ReaderHarness) -> PageReader:
    return LocalReader(
        harness.blobs,
        parsers=harness.parsers,
        engine=harness.engine,
        scratch=harness.scratch,
        profile="fast",
        limits=harness.limits,
    )


async def stored(harness: ReaderHarness, content: bytes, filename: str = "paper.pdf") -> Source:
    receipt = await harness.blobs.put(PAPER, content)
    return Source(key=PAPER, filename=filename, size_bytes=receipt.size_bytes)


async def survey_of(harness: ReaderHarness, content: bytes, filename: str = "paper.pdf") -> Survey:
    async with reader_of(harness).open(await stored(harness, content, filename)) as document:
        return await document.survey()


async def read_alone(harness: ReaderHarness, source: Source, stretch: Stretch) -> list[PageBatch]:
    """A stretch as another worker reads it: from its stored form, in a document of its own."""
    written = msgspec.json.encode(stretch)
    async with reader_of(harness).open(source) as document:
        return [batch async for batch in document.read(msgspec.json.decode(written, type=Stretch))]


def pages_of(batches: list[PageBatch]) -> list[Page]:
    return [page for batch in batches for page in batch.pages]


def text_and_scans(*, text: int, scans: int) -> bytes:
    """Pages of text, then scanned pages."""

    def draw(canvas):
        for number in range(1, text + 1):
            canvas.drawString(72, 760, f"Text on page {number}")
            canvas.showPage()
        for number in range(text + 1, text + scans + 1):
            picture = making.picture_of([f"Scan on page {number}"], width=400)
            canvas.drawImage(making.reader_of(picture), 0, 0, 400, 100)
            canvas.showPage()

    return making.drawn(draw)


def with_bulk(pdf: bytes, *, page: int, size_bytes: int) -> bytes:
    """A PDF one of whose pages draws an image of so many bytes."""
    with pikepdf.open(io.BytesIO(pdf)) as opened:
        image = opened.make_stream(os.urandom(size_bytes))
        image.Type, image.Subtype = pikepdf.Name.XObject, pikepdf.Name.Image
        image.Width, image.Height, image.BitsPerComponent = size_bytes // 1000, 1000, 8
        image.ColorSpace = pikepdf.Name.DeviceGray
        opened.pages[page - 1].Resources.XObject = pikepdf.Dictionary(Bulk=image)
        opened.pages[page - 1].contents_add(b"q 400 0 0 400 0 0 cm /Bulk Do Q")
        saved = io.BytesIO()
        opened.save(saved)
        return saved.getvalue()


def with_broken_page(pdf: bytes, *, page: int) -> bytes:
    """A PDF one of whose pages has contents that cannot be decoded."""
    with pikepdf.open(io.BytesIO(pdf)) as opened:
        opened.pages[page - 1].Contents = opened.make_stream(b"no flate", Filter=pikepdf.Name.FlateDecode)
        saved = io.BytesIO()
        opened.save(saved, stream_decode_level=pikepdf.StreamDecodeLevel.none)
        return saved.getvalue()


class TestTheSurvey:
    async def test_of_a_text_pdf_has_stretches_of_fifty_pages(self, harness: ReaderHarness):
        survey = await survey_of(harness, making.pages_of(*(f"Page {at}" for at in range(1, 121))))
        assert (survey.kind, survey.page_count, survey.scanned) == (Kind.PDF, 120, ())
        assert [(each.origin, each.first, each.last) for each in survey.stretches] == [
            ("text", 1, 50),
            ("text", 51, 100),
            ("text", 101, 120),
        ]

    async def test_of_a_scan_has_a_stretch_for_each_page(self, harness: ReaderHarness):
        survey = await survey_of(harness, making.scan_of(*[making.INVOICE] * 3))
        assert (survey.page_count, survey.scanned) == (3, (1, 2, 3))
        assert survey.stretches == tuple(map(ocr_stretch, (1, 2, 3)))

    async def test_of_text_and_scans_keeps_a_block_with_text_together(self, harness: ReaderHarness):
        survey = await survey_of(harness, text_and_scans(text=STRETCH_PAGES - 1, scans=3))
        assert survey.scanned == (50, 51, 52)
        first = Stretch(origin="text", first=1, last=50, suspects=(50,))
        assert survey.stretches == (first, ocr_stretch(51), ocr_stretch(52))

    async def test_of_an_invisible_layer_leaves_the_verdict_to_the_reading(self, harness: ReaderHarness):
        survey = await survey_of(harness, making.scan_of(making.INVOICE, layer="Words that nobody can see " * 9))
        assert (survey.scanned, [each.origin for each in survey.stretches]) == ((), ["text"])

    async def test_of_a_form_with_text_finds_no_scan(self, harness: ReaderHarness):
        pdf = making.painted(making.in_a_form(making.words("Words in a form")))
        assert (await survey_of(harness, pdf)).scanned == ()

    async def test_of_an_image_has_a_stretch_for_each_frame(self, harness: ReaderHarness):
        frames = [making.picture_of([line], width=400) for line in making.INVOICE]
        fax = making.saved_as(frames[0], "TIFF", save_all=True, append_images=frames[1:])
        survey = await survey_of(harness, fax, "fax.tif")
        assert (survey.kind, survey.page_count) == (Kind.TIFF, len(frames))
        assert survey.stretches == tuple(ocr_stretch(number) for number in range(1, len(frames) + 1))

    async def test_of_a_text_file_has_one_stretch_and_no_number_of_pages(self, harness: ReaderHarness):
        survey = await survey_of(harness, b"name,total\na,1\n", "table.csv")
        assert (survey.kind, survey.page_count) == (Kind.CSV, None)
        assert survey.stretches == (Stretch(origin="file", first=1, last=None),)

    async def test_is_plain_values_that_can_be_stored(self, harness: ReaderHarness):
        survey = await survey_of(harness, text_and_scans(text=49, scans=3))
        assert msgspec.json.decode(msgspec.json.encode(survey), type=Survey) == survey


class TestAStretch:
    async def test_read_alone_and_in_any_order_gives_the_pages_of_the_whole(self, harness: ReaderHarness):
        source = await stored(harness, text_and_scans(text=70, scans=31))
        async with reader_of(harness).open(source) as document:
            survey = await document.survey()
        alone: dict[int, Page] = {}
        for stretch in reversed(survey.stretches):
            for batch in await read_alone(harness, source, stretch):
                recognized = [await read_alone(harness, source, each) for each in batch.ocr]
                found = [*batch.pages, *itertools.chain.from_iterable(map(pages_of, recognized))]
                alone |= {page.number: page for page in found}
        whole = await harness.pages(await harness.read(text_and_scans(text=70, scans=31)))
        assert [alone[number] for number in sorted(alone)] == whole

    async def test_of_text_leaves_pages_for_ocr_to_others(self, harness: ReaderHarness):
        source = await stored(harness, text_and_scans(text=2, scans=2))
        (batch,) = await read_alone(harness, source, Stretch(origin="text", first=1, last=4, suspects=(3, 4)))
        assert [page.number for page in batch.pages] == [1, 2]
        assert batch.ocr == (ocr_stretch(3), ocr_stretch(4))

    async def test_is_readable_though_another_is_broken(self, harness: ReaderHarness):
        pdf = with_broken_page(making.pages_of(*(f"This is page {at}" for at in range(1, 61))), page=60)
        source = await stored(harness, pdf)
        pages = pages_of(await read_alone(harness, source, Stretch(origin="text", first=1, last=50)))
        assert [page.markdown for page in pages] == [f"This is page {at}" for at in range(1, 51)]

    async def test_reads_only_its_own_pages_of_a_large_file(self, harness: ReaderHarness):
        """With less memory than the file has bytes, which another page fills."""
        harness.limits = ReaderLimits(parser_memory_bytes=64 * MIB)
        pdf = with_bulk(making.pages_of(*(f"This is page {at}" for at in range(1, 61))), page=60, size_bytes=96 * MIB)
        source = await stored(harness, pdf)
        small = Source(key=source.key, filename=source.filename, size_bytes=1)  # the memory limit grows with the size
        (batch,) = await read_alone(harness, small, Stretch(origin="text", first=1, last=50))
        assert len(batch.pages) == 50

    async def test_has_no_page_beyond_its_own(self, harness: ReaderHarness):
        source = await stored(harness, making.pages_of(*(f"This is page {at}" for at in range(1, 61))))
        pages = pages_of(await read_alone(harness, source, Stretch(origin="text", first=51, last=60)))
        assert [page.number for page in pages] == list(range(51, 61))


class TestTheFile:
    async def test_of_a_local_store_is_opened_and_not_copied(self, harness: ReaderHarness):
        source = await stored(harness, making.report())
        async with reader_of(harness).open(source) as document:
            await document.survey()
            (opened,) = harness.leftovers()
            assert opened.samefile(harness.scratch.parent / "blobs/objects/users~/7~/raw~/1~/paper")
        assert harness.leftovers() == []

    async def test_of_a_remote_store_is_read_once_for_the_survey_and_all_stretches(self, harness: ReaderHarness):
        harness.blobs = remote = RemoteBlobs(harness.scratch.parent / "blobs")
        content = text_and_scans(text=60, scans=1)
        reading = await harness.read(content)
        assert reading.page_count == 61
        assert remote.streamed_bytes[PAPER] == len(content)
        assert harness.leftovers() == []

    async def test_that_the_caller_has_open_is_not_read_again(self, harness: ReaderHarness, tmp_path: Path):
        paper = tmp_path / "paper.pdf"
        paper.write_bytes(making.report())
        source = Source(key="not/there", filename="a.pdf", size_bytes=paper.stat().st_size, path=paper)
        async with reader_of(harness).open(source) as document:
            assert (await document.survey()).page_count == 1

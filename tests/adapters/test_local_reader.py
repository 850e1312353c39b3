"""The provider `local`, from a stored file to markdown and pages, with the real engine."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from PIL import Image

from penstock.adapters.local_reader import ReaderLimits
from penstock.documents.errors import (
    DocumentEmpty,
    DocumentEncrypted,
    DocumentKindUnknown,
    DocumentTooLarge,
    DocumentUnreadable,
)
from penstock.kernel.errors import PenstockError
from tests.adapters.local_reader_harness import ReaderHarness, Sandboxes, harness_in, open_sandboxes
from tests.documents import pdf_files as making

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1024 * 1024
WRONG = "Words of an old machine that nobody can see on the page at all.\n" * 6


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandboxes() -> AsyncIterator[Sandboxes]:
    async with open_sandboxes() as both:
        yield both


@pytest.fixture
def harness(sandboxes: Sandboxes, tmp_path: Path) -> ReaderHarness:
    return harness_in(tmp_path, sandboxes)


class TestATextPdf:
    async def test_becomes_markdown_and_pages(self, harness: ReaderHarness):
        reading = await harness.read(making.report())
        markdown = await harness.markdown(reading)
        assert markdown.startswith("<!-- page 1 -->\n\n# Annual report of the harbour\n")
        assert "| January | 12 | 3,400 |" in markdown
        (page,) = await harness.pages(reading)
        assert page.origin == "text"
        assert page.markdown in markdown

    async def test_in_chinese_has_no_space_where_a_line_ends_whatever_fonts_the_machine_has(
        self, harness: ReaderHarness
    ):
        """The font is not in the file. With one of the machine's in its place, the parser reads 2024 as -0-4."""
        lines = ["港务局长有一本登记簿，每一艘船都要写在上", "面。合同编号：HT-2024-0317。"]
        (page,) = await harness.pages(await harness.read(making.chinese(lines)))
        assert page.markdown == "".join(lines)
        assert [span.text for span in page.spans] == lines

    async def test_is_told_of_in_the_metadata(self, harness: ReaderHarness):
        reading = await harness.read(making.pages_of("This is page one", "This is page two"))
        seconds = reading.metadata.pop("seconds")
        assert 0 < seconds < 60
        assert reading.metadata.pop("version").startswith("rapidocr ")
        assert reading.metadata == {"provider": "local", "profile": "fast", "pages": 2, "ocr_pages": 0, "text_pages": 2}
        assert (reading.page_count, reading.provider_task_id[:6]) == (2, "local-")

    async def test_leaves_nothing_behind_but_its_results(self, harness: ReaderHarness):
        await harness.read(making.report())
        assert await harness.keys() == {"mineru.md", "pages.jsonl", "pages/done.json"}
        assert harness.leftovers() == []

    async def test_of_a_thousand_pages_is_read_in_order_with_progress(self, harness: ReaderHarness):
        reading = await harness.read(making.pages_of(*(f"This is page {at} of many" for at in range(1, 1001))))
        pages = await harness.pages(reading)
        assert [page.markdown for page in pages] == [f"This is page {at} of many" for at in range(1, 1001)]
        assert (await harness.markdown(reading)).count("<!-- page ") == 1000
        assert harness.context.told == sorted(harness.context.told)
        assert len(harness.context.told) >= 10
        assert harness.context.told[-1] == (1000, 1000)

    async def test_with_an_empty_password_is_read(self, harness: ReaderHarness):
        assert "harbour" in await harness.markdown(await harness.read(making.locked(making.report(), user="")))


class TestAScan:
    async def test_is_read_by_ocr_with_boxes_in_the_units_of_its_page(self, harness: ReaderHarness):
        reading = await harness.read(making.scan_of(making.INVOICE))
        (page,) = await harness.pages(reading)
        assert [span.text for span in page.spans] == making.INVOICE
        assert page.origin == "ocr"
        assert page.width == pytest.approx(760 * 72 / 200, abs=0.1)
        assert all(span.box and 10 < span.box[0] < span.box[2] < page.width for span in page.spans)
        assert reading.metadata["ocr_pages"] == 1

    async def test_under_an_invisible_layer_is_read_by_ocr(self, harness: ReaderHarness):
        (page,) = await harness.pages(await harness.read(making.scan_of(making.INVOICE, layer=WRONG)))
        assert [span.text for span in page.spans] == making.INVOICE

    async def test_among_text_pages_is_the_only_one_read_by_ocr(self, harness: ReaderHarness):
        def draw(canvas):
            canvas.drawString(72, 760, "A page of text")
            canvas.showPage()
            canvas.drawImage(making.reader_of(making.picture_of(making.INVOICE)), 0, 0, 595, 150)
            canvas.showPage()
            canvas.drawString(72, 760, "Text again")

        reading = await harness.read(making.drawn(draw))
        pages = await harness.pages(reading)
        assert [page.origin for page in pages] == ["text", "ocr", "text"]
        assert [page.number for page in pages] == [1, 2, 3]
        assert harness.context.told == [(1, 3), (2, 3), (3, 3)]

    async def test_with_a_garbled_font_is_read_by_ocr(self, harness: ReaderHarness):
        pdf = making.garbled([making.PROSE] * 4, lambda code: ord("bcdfghjklm"[code % 10]))
        (page,) = await harness.pages(await harness.read(pdf))
        assert page.origin == "ocr"
        assert "more ships than in any year before" in page.markdown

    async def test_of_an_empty_sheet_is_an_empty_page(self, harness: ReaderHarness):
        (page,) = await harness.pages(await harness.read(making.pages_of("")))
        assert (page.markdown, page.spans) == ("", ())


class TestAnImage:
    @pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "WEBP"])
    async def test_of_each_kind_is_read_whatever_it_is_called(self, harness: ReaderHarness, kind: str):
        picture = making.picture_of(making.INVOICE[:1], width=400)
        reading = await harness.read(making.saved_as(picture, kind), "renamed.docx")
        (page,) = await harness.pages(reading)
        assert page.markdown == making.INVOICE[0]
        assert (page.width, page.height) == picture.size

    async def test_of_many_frames_has_as_many_pages(self, harness: ReaderHarness):
        frames = [making.picture_of([line], width=400) for line in making.INVOICE]
        reading = await harness.read(
            making.saved_as(frames[0], "TIFF", save_all=True, append_images=frames[1:]), "fax.tif"
        )
        assert [page.markdown for page in await harness.pages(reading)] == making.INVOICE
        assert harness.context.told == [(1, 3), (2, 3), (3, 3)]


class TestBadInput:
    async def failure(self, harness: ReaderHarness, content: bytes, filename: str = "paper.pdf") -> PenstockError:
        with pytest.raises(PenstockError) as failed:
            await harness.read(content, filename)
        assert failed.value.hint
        assert filename in str(failed.value)
        assert harness.leftovers() == []
        assert "harbour" in await harness.markdown(await harness.read(making.report()))  # the reader lives
        return failed.value

    async def test_that_is_encrypted(self, harness: ReaderHarness):
        assert isinstance(await self.failure(harness, making.locked(making.report(), user="x")), DocumentEncrypted)

    async def test_that_is_cut_short(self, harness: ReaderHarness):
        whole = making.report()
        assert isinstance(await self.failure(harness, whole[: len(whole) // 2]), DocumentUnreadable)

    async def test_that_has_no_byte(self, harness: ReaderHarness):
        assert isinstance(await self.failure(harness, b""), DocumentEmpty)

    async def test_that_has_no_page(self, harness: ReaderHarness):
        assert isinstance(await self.failure(harness, making.without_pages()), DocumentEmpty)

    async def test_that_is_no_document(self, harness: ReaderHarness):
        assert isinstance(await self.failure(harness, b"\x7fELF" + bytes(500), "paper.pdf"), DocumentKindUnknown)

    async def test_that_is_a_bomb(self, harness: ReaderHarness):
        failure = await self.failure(harness, making.bomb(size_bytes=160 * MIB))
        assert isinstance(failure, DocumentTooLarge)
        assert "unpacks" in str(failure)

    async def test_that_is_an_image_of_a_hundred_megapixels(self, harness: ReaderHarness):
        huge = making.saved_as(Image.new("1", (10_000, 10_000)), "PNG")
        failure = await self.failure(harness, huge, "huge.png")
        assert isinstance(failure, DocumentTooLarge)
        assert "ETL_MAX_PAGE_PIXELS" in str(failure)

    async def test_that_has_too_many_bytes(self, harness: ReaderHarness):
        harness.limits = ReaderLimits(max_file_bytes=len(making.report()) + 200)
        failure = await self.failure(harness, making.report() + bytes(1000))
        assert isinstance(failure, DocumentTooLarge)
        assert "ETL_MAX_FILE_BYTES" in str(failure)

"""The cloud: how a document is submitted, polled, and returned as pages."""

import io
import secrets

import pikepdf
import pypdfium2
import pytest

from penstock.adapters.mineru import split
from penstock.adapters.mineru.errors import MineruKeyMissing
from penstock.documents.errors import DocumentEmpty, DocumentEncrypted, DocumentKindUnknown, DocumentTooLarge
from tests.adapters.mineru import zips
from tests.adapters.mineru.harness import ReaderHarness
from tests.documents import pdf_files as making
from tests.fakes.mineru_server import TOKEN, MineruCloud, Step

pytestmark = pytest.mark.asyncio(loop_scope="module")


def texts_of(paper: bytes) -> list[str]:
    """The text of each page of a PDF."""
    pdf = pypdfium2.PdfDocument(paper)
    texts = [pdf[number].get_textpage().get_text_range().strip() for number in range(len(pdf))]
    pdf.close()
    return texts


def heavy(*pictures: bytes) -> bytes:
    """A PDF with a page per image, stored as it is."""
    out = io.BytesIO()
    with pikepdf.new() as pdf:
        for picture in pictures:
            page = pdf.add_blank_page()
            page.Resources = pikepdf.Dictionary(XObject=pikepdf.Dictionary(Im0=_image(pdf, picture)))
            page.Contents = pdf.make_stream(b"/Im0 Do")
        pdf.save(out, compress_streams=False)
    return out.getvalue()


def _image(pdf: pikepdf.Pdf, picture: bytes) -> pikepdf.Object:
    shape = {"Width": len(picture), "Height": 1, "BitsPerComponent": 8, "ColorSpace": pikepdf.Name.DeviceGray}
    return pdf.make_stream(picture, Type=pikepdf.Name.XObject, Subtype=pikepdf.Name.Image, **shape)


class TestADocument:
    async def test_goes_out_and_comes_back_as_pages(self, harness: ReaderHarness, cloud: MineruCloud):
        cloud.result = lambda tag, content: zips.pages("First page.", "Second page.")
        paper = making.pages_of("one", "two")
        reading = await harness.read(cloud, paper)
        pages = await harness.pages(reading)
        assert [(page.number, page.markdown) for page in pages] == [(1, "First page."), (2, "Second page.")]
        assert pages[0].spans[0].box == (100.0, 200.0, 900.0, 240.0)
        assert (
            await harness.markdown(reading) == "<!-- page 1 -->\n\nFirst page.\n\n<!-- page 2 -->\n\nSecond page.\n\n"
        )
        assert list(cloud.puts.values()) == [paper]
        assert harness.left_over() == []

    async def test_records_its_provider_and_upstream_id(self, harness: ReaderHarness, cloud: MineruCloud):
        cloud.result = lambda tag, content: zips.pages("One.", "Two.")
        reading = await harness.read(cloud, making.pages_of("one", "two"))
        assert reading.provider_task_id == "batch-1"
        assert reading.page_count == 2
        seconds = reading.metadata.pop("seconds")
        assert seconds >= 0
        assert reading.metadata == {
            "provider": "mineru",
            "protocol": "cloud",
            "model_version": "pipeline",
            "pages": 2,
            "parts": 1,
            "by_page": True,
        }

    async def test_has_its_id_stored_before_the_first_poll(self, harness: ReaderHarness, cloud: MineruCloud):
        cloud.result = lambda tag, content: zips.pages("One.")
        seen = []

        async def remember(provider_task_id: str) -> None:
            seen.append((provider_task_id, cloud.count("GET /api/v4/extract-results")))

        harness.context.remember = remember  # type: ignore[method-assign]  # the context notes when
        await harness.read(cloud, making.pages_of("one"))
        assert seen[0] == ("batch-1", 0)

    async def test_is_shown_with_the_pages_that_are_done(self, harness: ReaderHarness, cloud: MineruCloud):
        cloud.result = lambda tag, content: zips.pages("One.", "Two.")
        await harness.read(cloud, making.pages_of("one", "two"))
        order = list(dict.fromkeys(told for told in harness.context.told if told != (0, 1)))  # before they are counted
        assert order == [(0, 2), (1, 2), (2, 2)]

    async def test_is_asked_for_with_what_is_set(self, harness: ReaderHarness, cloud: MineruCloud):
        cloud.result = lambda tag, content: zips.pages("One.")
        await harness.read(cloud, making.pages_of("one"), "秘密 name.pdf", model_version="vlm", language="en")
        asked = cloud.heard("POST /api/v4/file-urls/batch")[0].asked
        assert asked["files"] == [{"name": "part-0001.pdf", "data_id": "part-0001"}]
        assert (asked["model_version"], asked["language"]) == ("vlm", "en")

    async def test_takes_the_token_to_the_endpoint_and_nowhere_else(self, harness: ReaderHarness, cloud: MineruCloud):
        cloud.result = lambda tag, content: zips.pages("One.")
        await harness.read(cloud, making.pages_of("one"))
        with_token = {call.path.split("/")[1] for call in cloud.calls if "Authorization" in call.headers}
        without = {call.path.split("/")[1] for call in cloud.calls if "Authorization" not in call.headers}
        assert with_token == {"api"}
        assert without == {"oss", "cdn", "far"}
        assert "Content-Type" not in cloud.heard("PUT /oss")[0].headers

    async def test_that_is_a_web_page_is_read_by_the_model_for_web_pages(
        self, harness: ReaderHarness, cloud: MineruCloud
    ):
        cloud.result = lambda tag, content: zips.without_list("# A page\n\nWith text.")
        reading = await harness.read(cloud, b"<html><body>Hi</body></html>", "site.html")
        assert cloud.heard("POST /api/v4/file-urls/batch")[0].asked["model_version"] == "MinerU-HTML"
        assert reading.metadata["by_page"] is False
        assert [page.markdown for page in await harness.pages(reading)] == ["# A page\n\nWith text."]

    async def test_whose_entries_have_no_tags_is_matched_by_its_place(self, harness: ReaderHarness, cloud: MineruCloud):
        cloud.tagged = False
        cloud.result = lambda tag, content: zips.pages("One.")
        reading = await harness.read(cloud, making.pages_of("one"))
        assert reading.page_count == 1


class TestRefusedBeforeAnythingIsSent:
    async def test_an_empty_one(self, harness: ReaderHarness, cloud: MineruCloud):
        with pytest.raises(DocumentEmpty):
            await harness.read(cloud, b"")
        assert cloud.calls == []

    async def test_one_of_an_unsupported_format(self, harness: ReaderHarness, cloud: MineruCloud):
        with pytest.raises(DocumentKindUnknown, match=r"\.csv, which MinerU does not support"):
            await harness.read(cloud, b"a,b\n1,2\n", "table.csv")
        assert cloud.calls == []

    async def test_one_with_a_password(self, harness: ReaderHarness, cloud: MineruCloud):
        with pytest.raises(DocumentEncrypted):
            await harness.read(cloud, making.locked(making.pages_of("one"), user="secret"))
        assert cloud.calls == []

    async def test_one_that_is_too_large_and_cannot_be_split(self, harness: ReaderHarness, cloud: MineruCloud):
        picture = making.saved_as(making.picture_of(["hello"]), "PNG")
        with pytest.raises(DocumentTooLarge, match="only PDFs can be split"):
            await harness.read(cloud, picture, "scan.png", max_file_bytes=100)
        assert cloud.calls == []

    async def test_one_with_a_page_that_is_too_large_by_itself(self, harness: ReaderHarness, cloud: MineruCloud):
        with pytest.raises(DocumentTooLarge, match="page 1 alone has"):
            await harness.read(cloud, making.pages_of("one", "two"), max_file_bytes=600)
        assert cloud.calls == []

    async def test_one_of_more_parts_than_a_batch_takes(self, harness: ReaderHarness, cloud: MineruCloud):
        with pytest.raises(DocumentTooLarge, match="more than 50 files of 1 pages"):
            await harness.read(cloud, making.pages_of(*"x" * 51), max_pages=1)
        assert cloud.calls == []

    async def test_one_of_more_pages_than_any_document_may_have(self, harness: ReaderHarness, cloud: MineruCloud):
        with pytest.raises(DocumentTooLarge, match="ETL_MAX_PAGES"):
            await harness.read(cloud, making.pages_of("one", "two"), max_document_pages=1)
        assert cloud.calls == []

    async def test_any_when_there_is_no_token(
        self, harness: ReaderHarness, cloud: MineruCloud, caplog: pytest.LogCaptureFixture
    ):
        with pytest.raises(MineruKeyMissing, match="MINERU_API_KEY"):
            await harness.read(cloud, making.pages_of("one"), api_key="")
        assert "MINERU_API_KEY is not set" in caplog.text
        assert cloud.calls == []


class TestALongDocument:
    async def test_goes_out_in_parts_of_one_batch_and_its_pages_are_numbered_on(
        self, harness: ReaderHarness, cloud: MineruCloud
    ):
        cloud.result = lambda tag, content: zips.pages(f"{tag} first.", f"{tag} second.")
        reading = await harness.read(cloud, making.pages_of(*"abcde"), max_pages=2)
        pages = await harness.pages(reading)
        assert [page.number for page in pages] == [1, 2, 3, 4, 5]
        assert [page.markdown for page in pages][2:4] == ["part-0002 first.", "part-0002 second."]
        assert pages[4].markdown == "part-0003 first.\n\npart-0003 second."  # one page was sent: all of it is that one
        assert cloud.count("POST /api/v4/file-urls/batch") == 1
        assert reading.metadata["parts"] == 3
        assert reading.provider_task_id == "batch-1"
        assert harness.left_over() == []

    async def test_is_cut_into_real_pdfs_of_its_pages(self, harness: ReaderHarness, cloud: MineruCloud):
        cloud.result = lambda tag, content: zips.pages("One.")
        await harness.read(cloud, making.pages_of("Alpha", "Beta", "Gamma"), max_pages=2)
        assert [texts_of(content) for content in cloud.puts.values()] == [["Alpha", "Beta"], ["Gamma"]]

    async def test_that_is_too_large_is_cut_until_every_part_fits(self, harness: ReaderHarness, cloud: MineruCloud):
        cloud.result = lambda tag, content: zips.pages("One.")
        paper = making.pages_of(*(f"Page {number}" for number in range(12)))
        reading = await harness.read(cloud, paper, max_file_bytes=len(paper) // 2)
        assert len(cloud.puts) > 1
        assert all(len(content) <= len(paper) // 2 for content in cloud.puts.values())
        assert [page.number for page in await harness.pages(reading)] == list(range(1, 13))

    async def test_with_parts_larger_than_what_comes_out_of_the_sandbox_at_once_is_cut_whole(
        self, harness: ReaderHarness, cloud: MineruCloud
    ):
        cloud.result = lambda tag, content: zips.pages("One.")
        pictures = [secrets.token_bytes(split.PIECE_BYTES + 1_000_000), b"small"]
        await harness.read(cloud, heavy(*pictures), max_pages=1)
        for content, picture in zip(cloud.puts.values(), pictures, strict=True):
            with pikepdf.open(io.BytesIO(content)) as pdf:
                assert pdf.pages[0].Resources.XObject.Im0.read_raw_bytes() == picture

    async def test_counts_the_pages_of_all_its_parts(self, harness: ReaderHarness, cloud: MineruCloud):
        cloud.result = lambda tag, content: zips.pages("One.", "Two.")
        cloud.steps_of["part-0002"] = [Step(state="running", done=1, of=2)] * 6 + [Step(state="done")]
        await harness.read(cloud, making.pages_of(*"abcd"), max_pages=2)
        assert (3, 4) in harness.context.told
        assert harness.context.told == sorted(harness.context.told)
        assert harness.context.told[-1] == (4, 4)


async def test_the_identity_of_a_reading_excludes_the_token(harness: ReaderHarness, cloud: MineruCloud):
    async with harness.reader(cloud, language="en") as reader:
        assert reader.name == "mineru"
        assert reader.identity["options"] == {"language": "en", "model_version": "pipeline"}
        assert TOKEN not in str(reader.identity)

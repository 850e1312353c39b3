"""The survey of a PDF: pages, suspects, and files that are rejected."""

import io

import pikepdf
import pytest

from penstock.documents.pdf.survey import PdfSurvey, survey_pdf
from penstock.documents.rejections import Rejection
from tests.documents import pdf_files


def look(pdf: bytes, max_pages: int = 100) -> PdfSurvey | Rejection:
    return survey_pdf(io.BytesIO(pdf), max_pages)


class TestPages:
    def test_are_counted(self):
        assert look(pdf_files.pages_of("one", "two", "three")) == PdfSurvey(pages=3)

    def test_are_counted_one_by_one_whatever_the_file_declares(self):
        with pikepdf.open(io.BytesIO(pdf_files.pages_of("one", "two", "three"))) as pdf:
            pdf.Root.Pages.Count = 1
            out = io.BytesIO()
            pdf.save(out, object_stream_mode=pikepdf.ObjectStreamMode.disable)
        assert look(out.getvalue().replace(b"/Count 3", b"/Count 1")) == PdfSurvey(pages=3)

    def test_are_refused_when_there_are_too_many(self):
        answer = look(pdf_files.pages_of("one", "two", "three"), max_pages=2)
        assert answer == Rejection(code="DOCUMENT_TOO_LARGE", reason="it has 3 pages; the limit is 2 (ETL_MAX_PAGES)")

    def test_that_may_look_different_from_their_text_are_suspects(self):
        pdf = pdf_files.scan_of(["one"], ["two"])
        assert look(pdf) == PdfSurvey(pages=2, suspects=(1, 2), scanned=(1, 2))


class TestAPassword:
    def test_is_a_reason_to_refuse(self):
        assert look(pdf_files.locked(pdf_files.report(), user="secret")) == Rejection(code="DOCUMENT_ENCRYPTED")

    def test_that_is_empty_opens_the_file(self):
        assert look(pdf_files.locked(pdf_files.report(), user="")) == PdfSurvey(pages=1)


class TestABrokenFile:
    @pytest.mark.parametrize("share", [0.3, 0.6, 0.97])
    def test_that_was_truncated_is_refused_and_not_half_read(self, share: float):
        whole = pdf_files.pages_of(*map(str, range(20)))
        answer = look(whole[: int(share * len(whole))])
        assert isinstance(answer, Rejection)
        assert answer.code == "DOCUMENT_UNREADABLE"

    def test_that_only_has_a_wrong_xref_offset_is_read(self):
        whole = pdf_files.pages_of("one", "two")
        assert look(whole.replace(b"startxref\n", b"startxref\n9")) == PdfSurvey(pages=2)

    def test_is_not_described_by_a_memory_address(self):
        answer = look(b"%PDF-1.7\nand nothing else")
        assert isinstance(answer, Rejection)
        assert "0x" not in answer.reason
        assert answer.reason

    def test_without_a_page_is_empty(self):
        assert look(pdf_files.without_pages()) == Rejection(code="DOCUMENT_EMPTY")

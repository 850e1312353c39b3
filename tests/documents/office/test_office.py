"""docx, pptx and xlsx: the markdown, cells and pages that are read."""

import re
from pathlib import Path

import docx
import pytest

from penstock.documents.blocks import to_pages
from penstock.documents.office.xlsx import read_xlsx
from penstock.documents.text.batches import ReadBatch, read_batch
from penstock.kernel.sandbox.call import Sandbox
from tests.documents.office_files import (
    cells,
    part_of,
    read_here,
    read_in_sandbox,
    repack,
    write_long_workbook,
    write_number,
    write_report,
    write_slides,
    write_workbook,
)


class TestDocx:
    @pytest.fixture
    def report(self, tmp_path: Path) -> Path:
        return write_report(tmp_path / "report.docx")

    def test_titles_become_headings_of_their_level(self, report):
        headings = re.findall(r"^#+ .*", read_here(report)[0].markdown, re.MULTILINE)
        assert headings == ["# 年度报告", "# Chapter one", "## 第二节 明细"]

    def test_lists_are_lists_and_numbers_are_counted(self, report):
        assert "- first\n- second\n\n1. one\n2. two\n" in read_here(report)[0].markdown

    def test_a_paragraph_that_looks_like_a_heading_is_not_one(self, report):
        assert "\n\\# not a heading\n" in read_here(report)[0].markdown

    def test_cells_keep_their_pipes_and_lines_and_places(self, report):
        (page,) = read_here(report)
        assert "| a\\|b | r0c1 | tall |\n| --- | --- | --- |\n| r1c0 | line one<br>line two |  |" in page.markdown
        assert cells(page)[0, 0] == "a|b"
        assert cells(page)[1, 1] == "line one\nline two"

    def test_a_merged_cell_leaves_the_others_empty(self, report):
        found = cells(read_here(report)[0])
        assert (found[0, 2], found[2, 0], found[2, 2]) == ("tall", "r2c0", "r2c2")
        assert not {(1, 2), (2, 1)} & set(found)

    def test_a_table_in_a_cell_is_text_of_that_cell(self, report):
        assert cells(read_here(report)[0], table=1) == {(0, 0): "outer", (0, 1): "inner"}

    def test_every_line_has_a_span(self, report):
        texts = [span.text for span in read_here(report)[0].spans]
        assert "合计金额：1,234.50 元" in texts
        assert "Plain text with bold words" in texts

    def test_what_was_deleted_with_tracking_on_is_left_out(self, report):
        changed = part_of(report, "word/document.xml").replace(
            b"<w:t>Chapter one</w:t>",
            b"<w:t>Chapter one</w:t></w:r><w:del><w:r><w:delText>gone</w:delText></w:r></w:del>"
            b"<w:ins><w:r><w:t> and new</w:t></w:r></w:ins><w:moveFrom><w:r><w:t>moved</w:t></w:r></w:moveFrom><w:r>",
        )
        assert "# Chapter one and new\n" in read_here(repack(report, {"word/document.xml": changed}))[0].markdown

    def test_a_text_box_is_read_once(self, report):
        box = b"<w:txbxContent><w:p><w:r><w:t>in a box</w:t></w:r></w:p></w:txbxContent>"
        both = b"<mc:Choice>%s</mc:Choice><mc:Fallback>%s</mc:Fallback>" % (box, box)
        changed = part_of(report, "word/document.xml").replace(
            b"<w:t>Chapter one</w:t>",
            b'<w:t>Chapter one</w:t><mc:AlternateContent xmlns:mc="http://x/mc">' + both + b"</mc:AlternateContent>",
        )
        markdown = read_here(repack(report, {"word/document.xml": changed}))[0].markdown
        assert markdown.count("in a box") == 1
        assert "# Chapter one\n\nin a box\n" in markdown

    def test_a_long_document_is_cut_into_pages_and_can_be_entered_at_each(self, tmp_path):
        path = write_long_report(tmp_path / "long.docx")
        pages = read_here(path)
        assert [page.number for page in pages] == list(range(1, len(pages) + 1))
        assert len(pages) > 3
        assert re.findall(r"# Chapter (\d+)", "\n".join(page.markdown for page in pages)) == [str(n) for n in range(40)]
        with path.open("rb") as file:
            batch = read_batch(file, "docx", 3, "")
        assert isinstance(batch, ReadBatch)
        assert list(batch.pages) == pages[2:]


class TestPptx:
    @pytest.fixture
    def slides(self, tmp_path: Path) -> Path:
        return write_slides(tmp_path / "slides.pptx")

    def test_each_slide_is_a_page_also_an_empty_one(self, slides):
        pages = read_here(slides)
        assert [page.number for page in pages] == [1, 2, 3]
        assert pages[2].markdown == ""

    def test_title_bullets_and_notes(self, slides):
        assert read_here(slides)[0].markdown == "## 第一页 Title\n\n- point\n   - below it\n\nNotes: say hello"

    def test_shapes_come_from_top_to_bottom_and_tables_keep_their_cells(self, slides):
        page = read_here(slides)[1]
        assert page.markdown == (
            "## Figures\n\n| 0\\|0 |  | 0\\|2 |\n| --- | --- | --- |\n| 1\\|0 | 1\\|1 | 1\\|2 |\n\nat the foot"
        )
        assert cells(page) == {(0, 0): "0|0", (0, 2): "0|2", (1, 0): "1|0", (1, 1): "1|1", (1, 2): "1|2"}

    def test_reading_can_go_on_at_any_slide(self, slides):
        with slides.open("rb") as file:
            batch = read_batch(file, "pptx", 2, "1")
        assert isinstance(batch, ReadBatch)
        assert list(batch.pages) == read_here(slides)[1:]


class TestXlsx:
    @pytest.fixture
    def workbook(self, tmp_path: Path) -> Path:
        return write_workbook(tmp_path / "book.xlsx")

    def test_each_sheet_is_a_page_also_an_empty_one(self, workbook):
        assert [page.markdown.split("\n")[0] for page in read_here(workbook)] == ["## 销售", "## Empty", "## Far"]

    def test_values_are_written_as_people_write_them(self, workbook):
        found = cells(read_here(workbook)[0])
        assert [found[1, column] for column in range(4)] == ["苹果|红", "1.5", "2026-01-02", "25%"]
        assert found[2, 3] == "TRUE"

    def test_a_formula_shows_its_value_and_else_itself(self, workbook):
        assert cells(read_here(workbook)[0])[2, 1] == "=SUM(B2:B2)"
        kept = re.sub(rb"</f><v\s*/>|</f><v></v>", b"</f><v>1.5</v>", part_of(workbook, "xl/worksheets/sheet1.xml"))
        assert cells(read_here(repack(workbook, {"xl/worksheets/sheet1.xml": kept}))[0])[2, 1] == "1.5"

    @pytest.mark.parametrize(
        ("cell", "shown"),
        [
            ('<c t="inlineStr"><is><r><t>東</t></r><r><t>京</t></r><rPh><t>TOKYO</t></rPh></is></c>', "東京"),
            ("<c><v>110101199003071234</v></c>", "110101199003071234"),
            ("<c><v>0.30000000000000004</v></c>", "0.3"),
            ("<c><v>1.5E+17</v></c>", "150000000000000000"),
            ('<c t="e"><v>#DIV/0!</v></c>', "#DIV/0!"),
            ('<c t="str"><f>A1</f><v>text</v></c>', "text"),
            ('<c t="s"><v>99999</v></c><c><v>1</v></c>', "1"),
        ],
    )
    def test_cells_of_every_type(self, cell, shown, workbook):
        sheet = f"<worksheet><sheetData><row>{cell}</row></sheetData></worksheet>"
        page, *_ = read_here(repack(workbook, {"xl/worksheets/sheet1.xml": sheet.encode()}))
        assert cells(page) == {(0, 0): shown}

    @pytest.mark.parametrize(
        ("code", "shown"),
        [
            ("yyyy/m/d h:mm", "2026-01-02 12:00:00"),
            ('yyyy"年"m"月"d"日"', "2026-01-02 12:00:00"),
            ("[$-409]d-mmm-yy", "2026-01-02 12:00:00"),
            ("[h]:mm:ss", "2026-01-02 12:00:00"),
            ('0.00"days"', "46024.5"),
            ("[Red]#,##0.00", "46024.5"),
            ("0%", "4602450%"),
            ("General", "46024.5"),
        ],
    )
    def test_the_format_of_a_cell_says_what_its_number_means(self, code, shown, tmp_path):
        assert cells(read_here(write_number(tmp_path / "a.xlsx", 46024.5, code))[0]) == {(0, 0): shown}

    def test_a_merged_cell_stands_once(self, workbook):
        assert "\n| merged |  |  |  |" in read_here(workbook)[0].markdown

    def test_cells_far_apart_make_a_small_table(self, workbook):
        assert read_here(workbook)[2].markdown == "## Far\n\n| here |  |\n| --- | --- |\n|  | there |"

    def test_a_long_sheet_is_cut_under_its_head_and_can_be_entered_at_each_page(self, tmp_path):
        path = write_long_workbook(tmp_path / "long.xlsx", rows=1001)
        pages = read_here(path)
        assert len(pages) == 7
        assert [cells(page)[0, 0] for page in pages[:6]] == ["序号"] * 6
        numbers = [cell for page in pages[:6] for (row, column), cell in cells(page).items() if row and not column]
        assert numbers == [str(number) for number in range(1001)]
        for page in (2, 4, 6):
            with path.open("rb") as file:
                batch = read_batch(file, "xlsx", page, resume_of(path, page))
            assert isinstance(batch, ReadBatch)
            assert list(batch.pages) == pages[page - 1 :]


def resume_of(path: Path, page: int) -> str:
    """Where the reader says that it can begin with this page."""
    with path.open("rb") as file:
        return next(resume for each, resume in to_pages(read_xlsx(file, ""), first=1) if each.number == page - 1)


def write_long_report(path: Path) -> Path:
    document = docx.Document()
    for chapter in range(40):
        document.add_heading(f"Chapter {chapter}", 1)
        document.add_paragraph("long text 长文 " * 120)
    document.save(str(path))
    return path


@pytest.mark.parametrize(
    ("write", "name"), [(write_report, "a.docx"), (write_slides, "a.pptx"), (write_workbook, "a.xlsx")]
)
@pytest.mark.asyncio(loop_scope="module")
async def test_all_formats_are_read_in_the_sandbox(sandbox: Sandbox, write, name, tmp_path):
    path = write(tmp_path / name)
    assert await read_in_sandbox(sandbox, path) == read_here(path)

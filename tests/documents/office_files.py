"""Writes office files with common libraries, and patches them where a test needs a defect."""

import html
import re
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import docx
import openpyxl
import pptx
from pptx.util import Inches

from penstock.documents.pages import Page, Span
from penstock.documents.text.batches import DetectedKind, ReadBatch, detect_kind_in_file, read_batch
from penstock.documents.text.document import detect_file_kind, read_batches
from penstock.kernel.sandbox.call import Sandbox


def read_here(path: Path) -> list[Page]:
    """The pages of a file, read in this process, where a failure has a traceback."""
    pages: list[Page] = []
    with path.open("rb") as file:
        detected = detect_kind_in_file(file, path.name)
        assert isinstance(detected, DetectedKind), detected
        page, resume = 1, ""
        while True:
            file.seek(0)
            batch = read_batch(file, detected.kind, page, resume)
            assert isinstance(batch, ReadBatch), batch
            pages += batch.pages
            if batch.following is None:
                return pages
            page, resume = batch.following.page, batch.following.resume


async def read_in_sandbox(sandbox: Sandbox, path: Path) -> list[Page]:
    """The pages of a file, read in the sandbox."""
    async with sandbox.session(path) as session:
        kind = await detect_file_kind(session, path.name)
        return [page async for batch in read_batches(session, kind, path.name) for page in batch.pages]


def cells(page: Page, table: int = 0) -> dict[tuple[int, int], str]:
    """The cells of a table of a page, by row and column."""
    return {_place(span): span.text for span in page.spans if span.table == table}


def _place(span: Span) -> tuple[int, int]:
    assert span.row is not None
    assert span.column is not None
    return span.row, span.column


def write_report(path: Path) -> Path:
    """A docx with headings, text, lists, a table with merged cells, and a table with a nested one."""
    document = docx.Document()
    document.add_heading("年度报告", 0)
    document.add_heading("Chapter one", 1)
    document.add_paragraph("Plain text with ").add_run("bold words").bold = True
    document.add_paragraph("# not a heading")
    for text, style in (
        ("first", "List Bullet"),
        ("second", "List Bullet"),
        ("one", "List Number"),
        ("two", "List Number"),
    ):
        document.add_paragraph(text, style=style)
    document.add_heading("第二节 明细", 2)
    table = document.add_table(rows=3, cols=3)
    for row in range(3):
        for column in range(3):
            table.cell(row, column).text = f"r{row}c{column}"
    table.cell(0, 0).text = "a|b"
    table.cell(1, 1).text = "line one\nline two"
    table.cell(2, 1).text = ""
    table.cell(2, 0).merge(table.cell(2, 1))
    table.cell(0, 2).merge(table.cell(1, 2)).text = "tall"
    document.add_paragraph("合计金额：1,234.50 元")
    outer = document.add_table(rows=1, cols=2)
    outer.cell(0, 0).text = "outer"
    outer.cell(0, 1).add_table(1, 1).cell(0, 0).text = "inner"
    document.save(str(path))
    return path


def write_slides(path: Path) -> Path:
    """A pptx of three slides: bullets and notes, a table with a merged cell, and nothing."""
    show = pptx.Presentation()
    first = show.slides.add_slide(show.slide_layouts[1])
    first.shapes.title.text = "第一页 Title"
    frame = first.placeholders[1].text_frame
    frame.text = "point"
    below = frame.add_paragraph()
    below.text, below.level = "below it", 1
    first.notes_slide.notes_text_frame.text = "say hello"
    second = show.slides.add_slide(show.slide_layouts[5])
    second.shapes.add_textbox(Inches(1), Inches(6), Inches(2), Inches(1)).text_frame.text = "at the foot"
    second.shapes.title.text = "Figures"
    table = second.shapes.add_table(2, 3, Inches(1), Inches(2), Inches(6), Inches(2)).table
    for row in range(2):
        for column in range(3):
            table.cell(row, column).text = f"{row}|{column}"
    table.cell(0, 1).text = ""
    table.cell(0, 0).merge(table.cell(0, 1))
    show.slides.add_slide(show.slide_layouts[6])
    show.save(str(path))
    return path


def write_workbook(path: Path) -> Path:
    """An xlsx of three sheets: values of many types, nothing, and two cells far apart."""
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "销售"
    sheet.append(["名称", "price", "day", "share"])
    sheet.append(["苹果|红", 1.5, date(2026, 1, 2), 0.25])
    sheet["D2"].number_format = "0.00%"
    sheet.append(["sum", "=SUM(B2:B2)", None, True])
    sheet.merge_cells("A5:B5")
    sheet["A5"] = "merged"
    book.create_sheet("Empty")
    far = book.create_sheet("Far")
    far["C3"], far["XFD1048576"] = "here", "there"
    book.save(path)
    return _with_shared_texts(path, "xl/worksheets/sheet1.xml")


def write_long_workbook(path: Path, rows: int) -> Path:
    """An xlsx with a sheet of that many numbered rows, and a short one after it."""
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("长表")
    sheet.append(["序号", "text"])
    for row in range(rows):
        sheet.append([row, f"文字 {row}"])
    book.create_sheet("last").append(["end"])
    book.save(path)
    return path


def write_number(path: Path, number: float, code: str) -> Path:
    """An xlsx of one cell, with a number in this format."""
    book = openpyxl.Workbook()
    book.active["A1"] = number
    book.active["A1"].number_format = code
    book.save(path)
    return path


def _with_shared_texts(path: Path, sheet: str) -> Path:
    """Move the texts of a sheet to shared strings of two runs each, as spreadsheet programs write them."""
    texts: list[str] = []

    def share(found: re.Match[str]) -> str:
        texts.append(found[1])
        return f't="s"><v>{len(texts) - 1}</v>'

    content = re.sub(r't="inlineStr"><is><t>(.*?)</t></is>', share, part_of(path, sheet).decode())
    listed = "".join(
        f"<si><r><t>{head}</t></r><r><t>{tail}</t></r><rPh><t>said</t></rPh></si>" for head, tail in map(_halves, texts)
    )
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/sharedStrings"
    relation = f'<Relationship Type="{kind}" Target="/xl/sharedStrings.xml" Id="shared"/></Relationships>'
    relations = part_of(path, "xl/_rels/workbook.xml.rels").decode().replace("</Relationships>", relation)
    changed = {sheet: content, "xl/sharedStrings.xml": f"<sst>{listed}</sst>", "xl/_rels/workbook.xml.rels": relations}
    return repack(path, {name: text.encode() for name, text in changed.items()})


def _halves(text: str) -> tuple[str, str]:
    """A text in two parts, without splitting an entity."""
    plain = html.unescape(text)
    return html.escape(plain[:1]), html.escape(plain[1:])


def repack(path: Path, changed: dict[str, bytes]) -> Path:
    """Replace or add parts of a package."""
    with zipfile.ZipFile(path) as old:
        parts = {name: old.read(name) for name in old.namelist()} | changed
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in parts.items():
            new.writestr(name, content)
    return path


def part_of(path: Path, name: str) -> bytes:
    """The bytes of a part of a package."""
    with zipfile.ZipFile(path) as package:
        return package.read(name)


@contextmanager
def patched(path: Path) -> Iterator[bytearray]:
    """The bytes of a file, to change in place."""
    content = bytearray(path.read_bytes())
    yield content
    path.write_bytes(content)


def entry_at(content: bytearray, name: str) -> int:
    """The offset of a part in the central directory of an archive."""
    at = content.index(b"PK\x01\x02")
    while True:
        length, extra, comment = struct.unpack_from("<HHH", content, at + 28)
        if content[at + 46 : at + 46 + length] == name.encode():
            return at
        at += 46 + length + extra + comment

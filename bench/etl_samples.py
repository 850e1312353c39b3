"""One report with headings and tables in every format, with known content."""

import html
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import docx
import openpyxl
import pptx
import pypdfium2
from pptx.util import Inches
from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.platypus import Flowable, Paragraph, SimpleDocTemplate, Spacer, Table

from bench.etl_documents import DPI, POINTS, chinese_font

Row = tuple[str, ...]
FONT = "Sample"


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """A heading, some text, and a table with a header row."""

    heading: str
    text: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A file and its expected content."""

    name: str
    path: Path
    headings: tuple[str, ...]
    rows: tuple[Row, ...]


CHAPTERS = (
    Chapter(
        heading="Ships by month",
        text="The harbour took in more ships than in any year before, and most of them came in spring.",
        rows=(
            ("Month", "Ships", "Tonnes", "Longest stay"),
            ("January", "12", "3,400", "4 days"),
            ("February", "9", "2,150", "6 days"),
            ("March", "17", "5,020", "2 days"),
            ("April", "21", "6,310", "3 days"),
        ),
    ),
    Chapter(
        heading="货物明细",
        text="下表列出本年度到港的主要货物，金额均不含税。",
        rows=(
            ("货物", "数量", "单价", "金额"),
            ("咖啡", "120", "35.50", "4,260.00"),
            ("木材", "80", "210.00", "16,800.00"),
            ("钢板", "45", "980.25", "44,111.25"),
        ),
    ),
    Chapter(
        heading="What is planned",
        text="Three pipeline are planned for the next year. All of them are paid for by the town.",
        rows=(
            ("Work", "Begins", "Cost"),
            ("Second crane", "2027-03-01", "1,200,000"),
            ("Road to the station", "2027-05-15", "860,500"),
            ("Longer quay", "2027-09-01", "2,450,000"),
        ),
    ),
)


def write_samples(folder: Path) -> Iterator[Sample]:
    """The report in every format."""
    headings = tuple(chapter.heading for chapter in CHAPTERS)
    rows = tuple(itertools.chain.from_iterable(chapter.rows for chapter in CHAPTERS))
    for name, ending, write in WAYS:
        path = folder / f"{name.replace(' ', '-')}.{ending}"
        write(path)
        yield Sample(name=name, path=path, headings=headings, rows=rows)


def _pdf_with_grid(path: Path) -> None:
    _pdf(path, [("GRID", (0, 0), (-1, -1), 0.5, colors.black)])


def _pdf_without_grid(path: Path) -> None:
    _pdf(path, [("LINEBELOW", (0, 0), (-1, 0), 0.5, colors.black)])


def _pdf(path: Path, lines: Sequence[tuple[object, ...]]) -> None:
    pdfmetrics.registerFont(TTFont(FONT, str(chinese_font())))
    body = ParagraphStyle("body", fontName=FONT, fontSize=11, leading=16)
    title = ParagraphStyle("title", parent=body, fontSize=18, leading=30)
    story: list[Flowable] = []
    for chapter in CHAPTERS:
        style = [("FONTNAME", (0, 0), (-1, -1), FONT), *lines]
        table = Table(chapter.rows, style=style, colWidths=[110] * len(chapter.rows[0]))
        story += [Paragraph(chapter.heading, title), Paragraph(chapter.text, body), table, Spacer(0, 20)]
    SimpleDocTemplate(str(path), pagesize=A4).build(story)


def _scan(path: Path) -> None:
    """The PDF as a scan."""
    drawn = path.with_suffix(".drawn")
    _pdf_with_grid(drawn)
    with pypdfium2.PdfDocument(drawn) as document:
        document[0].render(scale=DPI / POINTS).to_pil().convert("L").save(path, quality=85)


def _docx(path: Path) -> None:
    document = docx.Document()
    for chapter in CHAPTERS:
        document.add_heading(chapter.heading, 1)
        document.add_paragraph(chapter.text)
        table = document.add_table(rows=len(chapter.rows), cols=len(chapter.rows[0]))
        for row, column in _places(chapter):
            table.cell(row, column).text = chapter.rows[row][column]
    document.save(str(path))


def _pptx(path: Path) -> None:
    show = pptx.Presentation()
    for chapter in CHAPTERS:
        slide = show.slides.add_slide(show.slide_layouts[5])
        slide.shapes.title.text = chapter.heading
        size = len(chapter.rows), len(chapter.rows[0])
        table = slide.shapes.add_table(*size, Inches(1), Inches(2), Inches(8), Inches(3)).table
        for row, column in _places(chapter):
            table.cell(row, column).text = chapter.rows[row][column]
    show.save(str(path))


def _xlsx(path: Path) -> None:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for chapter in CHAPTERS:
        sheet = book.create_sheet(chapter.heading)
        for row in chapter.rows:
            sheet.append(row)
    book.save(path)


def _html(path: Path) -> None:
    parts = []
    for chapter in CHAPTERS:
        rows = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in chapter.rows]
        table = "".join(f"<tr>{row}</tr>" for row in rows)
        parts.append(f"<h2>{chapter.heading}</h2><p>{chapter.text}</p><table>{table}</table>")
    path.write_text(f'<!doctype html><meta charset="utf-8"><body>{"".join(parts)}</body>')


def _places(chapter: Chapter) -> Iterator[tuple[int, int]]:
    return itertools.product(range(len(chapter.rows)), range(len(chapter.rows[0])))


WAYS: tuple[tuple[str, str, Callable[[Path], None]], ...] = (
    ("PDF", "pdf", _pdf_with_grid),
    ("PDF without a grid", "pdf", _pdf_without_grid),
    ("scan", "jpg", _scan),
    ("docx", "docx", _docx),
    ("pptx", "pptx", _pptx),
    ("xlsx", "xlsx", _xlsx),
    ("html", "html", _html),
)

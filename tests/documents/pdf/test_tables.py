"""Tables of a text layer: each run is in one cell, rows and words are whole."""

import io
import re
from collections import Counter
from itertools import pairwise

import pytest
from liteparse._liteparse import LiteParse

from penstock.documents.pages import Page
from penstock.documents.pdf.parsed_page import parse_page
from penstock.documents.pdf.text_layer import TextLayers, read_text_layers
from tests.documents import pdf_files
from tests.documents.pdf import articles
from tests.documents.pdf.fake_parser import Block, Parsed, Rect, Run, TableCell
from tests.documents.pdf_files import placed

Row = tuple[float, list[tuple[float, str]]]
COLUMNS = (66, 116, -369, -444, -529)  # those below 0 are where a column ends on the right
HEAD = ("Code", "Description", "Qty", "Unit", "Amount")
ITEMS = [
    ("D273", "Lamp", "6", "300.95", "1,805.70"),
    ("E164", "Bracket for a cable", "29", "856.17", "24,828.93"),
    ("F329", "Housing of a cable", "25", "710.74", "17,768.50"),
    ("B825", "Filter with a panel", "27", "800.67", "21,618.09"),
    ("E251", "Bracket with a washer", "2", "45.93", "91.86"),
]
SUMS = [("Subtotal", "66,113.08"), ("VAT (20%)", "13,222.62"), ("Total due", "79,335.70")]
LETTER_HEAD: list[Row] = [
    (35, [(40, "Brightwater Supply Co."), (-555, "INVOICE")]),
    (71, [(40, "48 Harbour Lane"), (360, "Invoice number"), (-555, "BW-2026-00417")]),
    (83, [(40, "Bristol BS1 4QA"), (360, "Invoice date"), (-555, "14 March 2026")]),
    (95, [(40, "VAT Reg. GB 284 1190 33"), (360, "Due date"), (-555, "13 April 2026")]),
    (107, [(40, "accounts@brightwater.example"), (360, "PO number"), (-555, "PO 7781/C")]),
    (119, [(360, "Account"), (-555, "C-20931")]),
]


def rows_of(top: float, *rows: tuple[str, ...], pitch: float = 16.8) -> list[Row]:
    """Rows of five columns; of shorter ones, the last columns."""
    return [
        (top + pitch * at, list(zip(COLUMNS[len(COLUMNS) - len(row) :], row, strict=True)))
        for at, row in enumerate(rows)
    ]


def page_of(pdf: bytes) -> Page:
    layers = read_text_layers(io.BytesIO(pdf), 1, 1, ())
    assert isinstance(layers, TextLayers)
    [layer] = layers.layers
    assert layer.page is not None
    return layer.page


def table_regions(pdf: bytes) -> list[list[list[str]]]:
    """The tables of the only page, by rows and cells."""
    blocks = [block.splitlines() for block in page_of(pdf).markdown.split("\n\n") if block.startswith("|")]
    return [[[*map(str.strip, line.split("|")[1:-1])] for line in block if "---" not in line] for block in blocks]


def words_in(*texts: str) -> Counter[str]:
    return Counter(re.findall(r"[^\W_]+", " ".join(texts)))


def with_rule() -> bytes:
    """An item of two lines, one below it, and sums under a rule, which hides the figures of the last item."""
    item, last, *_ = ITEMS
    wrap: Row = (318, [(116, "with a long cord")])
    items = [*rows_of(276, *ITEMS[2:4], item, pitch=14), wrap, *rows_of(332, last)]
    sums: list[Row] = [(358 + 16 * at, [(380, label), (-529, total)]) for at, (label, total) in enumerate(SUMS)]
    return placed(*rows_of(256, HEAD), *items, *sums, rule=353)


def far_apart() -> bytes:
    """Columns so far apart that they are taken for columns of text."""
    xs = (50, -360, -440, -560)
    rows = [
        ("SERVICE", "HOURS", "RATE", "LINE TOTAL"),
        ("Data cleaning and ingest", "18.0", "$145.00", "$2,610.00"),
        ("Model calibration", "32.5", "$185.00", "$6,012.50"),
        ("Board presentation", "4.0", "$185.00", "$740.00"),
    ]
    return placed(*((223 + 18 * at, list(zip(xs, row, strict=True))) for at, row in enumerate(rows)))


PAPERS = {
    "sums": lambda: placed(*rows_of(207, HEAD, *ITEMS, *SUMS, pitch=14)),
    "letter head": lambda: placed(*LETTER_HEAD),
    "rule": with_rule,
    "far apart": far_apart,
    "invoice": pdf_files.whole_invoice,
    "report": pdf_files.report,
    "grid": lambda: pdf_files.table([["Part", "Use", "Qty"], ["Pump\nXL-200", "For deep\nwells", "2"]]),
    "paper": lambda: articles.paper(articles.text(articles.SPRING), articles.table()),
}


@pytest.mark.parametrize("name", PAPERS)
def test_each_word_of_a_page_is_written_once(name: str):
    pdf = PAPERS[name]()
    parser = LiteParse(ocr_enabled=False, quiet=True, image_mode="off", keep_headers_footers=True)
    items = words_in(*(item.text for item in parser.parse_bytes(pdf).pages[0].text_items))
    page = page_of(pdf)
    assert words_in(*(span.text for span in page.spans)) == items
    assert words_in(page.markdown) == items


class TestRows:
    def test_of_totals_are_no_part_of_the_last_item(self):
        [rows] = table_regions(PAPERS["sums"]())
        assert rows == [[*HEAD], *map(list, ITEMS), *(["", "", "", label, total] for label, total in SUMS)]

    def test_of_labels_and_values_are_kept_apart(self):
        [rows] = table_regions(PAPERS["letter head"]())
        assert rows[-2:] == [["accounts@brightwater.example", "PO number", "PO 7781/C"], ["", "Account", "C-20931"]]

    def test_have_all_of_their_figures(self):
        rows, sums = table_regions(with_rule())
        assert rows[-2:] == [["D273", "Lamp with a long cord", "6", "300.95", "1,805.70"], [*ITEMS[1]]]
        assert sums == [*map(list, SUMS)]

    def test_are_found_across_columns_that_are_far_apart(self):
        [rows] = table_regions(far_apart())
        assert rows[0] == ["SERVICE", "HOURS", "RATE", "LINE TOTAL"]
        assert rows[-1] == ["Board presentation", "4.0", "$185.00", "$740.00"]

    def test_go_on_below_a_row_that_was_taken_for_text(self):
        tops, xs = (50, 66, 82, 98, 114), (54, 129, 379, 509)
        texts = [(f"{at} Sep", "Card payment", f"{at}6.71", f"1,{at}43.84") for at in range(1, 6)]
        places = [[*zip(xs, row, strict=True)] for row in texts]
        items = [Run(text, x, y, 40, 10, 9) for y, row in zip(tops, places, strict=True) for x, text in row]
        cells = [[TableCell(text, Rect(x, y, 40, 10)) for x, text in row] for y, row in zip(tops, places, strict=True)]
        blocks = [
            Block("table", Rect(54, 50, 495, 26), header=cells[0], rows=cells[1:2]),
            Block("paragraph", Rect(54, 82, 495, 10), " ".join(texts[2])),
            Block("table", Rect(54, 98, 495, 26), header=cells[3], rows=cells[4:]),
        ]
        [region] = parse_page(Parsed(items, blocks)).regions
        assert [[cell.text for cell in row] for row in region.cells] == [*map(list, texts)]


class TestCells:
    def test_of_a_head_that_was_taken_for_one_are_above_their_columns(self):
        heads = [Run(text, x, 50, 30, 10, 9) for x, text in ((60, "Code"), (120, "Name"), (300, "Amount"))]
        items = [Run(text, x, 66, 25, 10, 9) for x, text in ((60, "D5"), (120, "Gasket"), (300, "5.16"))]
        head = [TableCell("Code Name Amount", Rect(60, 50, 270, 10)), TableCell(""), TableCell("")]
        row = [TableCell(item.text, Rect(item.x, 66, 25, 10)) for item in items]
        block = Block("table", Rect(60, 50, 270, 26), header=head, rows=[row])
        [region] = parse_page(Parsed([*heads, *items], [block])).regions
        assert region.markdown == "| Code | Name | Amount |\n|---|---|---|\n| D5 | Gasket | 5.16 |"

    def test_hold_whole_words_where_another_row_has_a_border(self):
        texts = [(50, "Full name", "Catherine", "Date of birth"), (70, "Gender", "Female or male", "Nationality")]
        items = [
            Run(text, x, y, 5.5 * len(text), 10, 11)
            for y, *row in texts
            for x, text in zip((90, 198, 306), row, strict=True)
        ]
        cut = [["Full name", "Catherine", "", "Date of", "birth"], ["Gender", "Female", "or male", "Nationality", ""]]
        borders = (85, 193, 229, 301, 373, 517)
        cells = [
            [
                TableCell(text, Rect(left, y, right - left, 20))
                for text, (left, right) in zip(row, pairwise(borders), strict=True)
            ]
            for y, row in zip((48, 68), cut, strict=True)
        ]
        block = Block("table", Rect(85, 48, 432, 40), header=cells[0], rows=cells[1:])
        [region] = parse_page(Parsed(items, [block])).regions
        assert [[cell.text for cell in row] for row in region.cells] == [[*row] for _, *row in texts]

    def test_hold_a_number_that_only_the_text_of_the_page_has(self):
        labels = ("Initial term", "Notice period", "Annual fee")
        items = [Run(text, 90, 50 + 14.0 * at) for at, text in enumerate(labels)]
        values = [Run("36 months", 306, 50), Run("EUR 4", 306, 78)]
        cells = [
            [TableCell(label, Rect(85, 48 + 14 * at, 216, 14)), TableCell(value, Rect(301, 48 + 14 * at, 216, 14))]
            for at, (label, value) in enumerate(zip(labels, ("36 months", "", "EUR 4"), strict=True))
        ]
        block = Block("table", Rect(85, 48, 432, 42), header=cells[0], rows=cells[1:])
        text = "Initial term     36 months\nNotice period    90\nAnnual fee       EUR 4\n\n\n      7"
        [region] = parse_page(Parsed([items[0], values[0], *items[1:], values[1]], [block], text=text)).regions
        assert [row[1].text for row in region.cells] == ["36 months", "90", "EUR 4"]
        assert [round(row[1].box[0]) for row in region.cells if row[1].box] == [306, 306, 306]


def test_figures_beside_running_text_count_its_lines():
    prose = "The harbour took in more ships than in any year before, and most of them came in spring"
    items = [Run(str(at), 40, 50 + 14 * at, 10, 10, 9) for at in range(5)]
    items += [Run(prose, 80, 50 + 14 * at, 400, 10, 9) for at in range(5)]
    blocks = [Block("paragraph", Rect(40, 50, 10, 66)), Block("paragraph", Rect(80, 50, 400, 66))]
    assert all(region.lines for region in parse_page(Parsed(items, blocks)).regions)


def test_a_table_of_very_many_runs_is_not_rebuilt():
    items = [Run(str(at), at % 500, 2.0 * (at // 9), 0.5, 1.5, 1) for at in range(6000)]
    table = Block("table", Rect(0, 0, 600, 1400), header=[TableCell("1")], rows=[[TableCell("2")]])
    [region] = parse_page(Parsed(items, [table])).regions
    assert len(region.runs) == len(items)

"""Wrapped table cells, and columns that were recognized as one or as two."""

from collections.abc import Sequence

from penstock.documents.ocr.layout import build_page
from penstock.documents.pages import Page
from tests.documents.ocr.test_layout import line

LEFTS = (50.0, 250.0, 450.0, 600.0)
HEAD = ("Code", "Description", "Qty", "Amount")


def table(*rows: tuple[float, Sequence[str]]) -> Page:
    """A page of rows, each with how far below the one above it stands."""
    lines, top = [], 50.0
    for pitch, cells in rows:
        top += pitch
        lines += [line(cell, left, top) for left, cell in zip(LEFTS, cells, strict=False) if cell]
    return build_page(lines, 1, width=800, height=1000)


def rows_of(page: Page) -> list[list[str]]:
    rows = [row for row in page.markdown.splitlines() if row.startswith("|") and "---" not in row]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


class TestASecondLineOfACell:
    def test_is_joined_where_it_is_closer_than_rows(self):
        page = table(
            (0, ("Full name", "Catherine", "Born", "1987-11-05")),
            (22, ("", "O'Malley-Ruiz")),
            (30, ("Phone", "+353 85 010", "Smoker", "no")),
            (22, ("", "7732")),
            (30, ("City", "Dublin", "Country", "Ireland")),
        )
        assert rows_of(page) == [
            ["Full name", "Catherine O'Malley-Ruiz", "Born", "1987-11-05"],
            ["Phone", "+353 85 010 7732", "Smoker", "no"],
            ["City", "Dublin", "Country", "Ireland"],
        ]

    def test_is_one_span_with_the_cell_and_has_a_box_around_both(self):
        page = table(
            (0, ("Name", "Catherine", "Age")),
            (22, ("", "O'Malley")),
            (30, ("City", "Bonn", "5")),
            (30, ("a", "b", "c")),
        )
        [name] = [span for span in page.spans if (span.row, span.column) == (0, 1)]
        assert name.text == "Catherine O'Malley"
        assert name.box is not None
        assert (name.box[1], name.box[3]) == (50, 92)
        assert [span.text for span in page.spans if span.row == 1] == ["City", "Bonn", "5"]

    def test_may_be_in_the_first_column(self):
        page = table(
            (0, ("Site", "Region", "Units")),
            (30, ("Site 13", "Baltic", "8,943")),
            (24, ("Uppsala",)),
            (30, ("Site 14", "Nordic", "8,907")),
            (24, ("Gdansk",)),
            (30, ("Site 15", "UK", "1,630")),
            (30, ("Site 16", "UK", "7")),
        )
        assert [row[0] for row in rows_of(page)] == ["Site", "Site 13 Uppsala", "Site 14 Gdansk", "Site 15", "Site 16"]

    def test_may_be_the_last_of_the_table(self):
        page = table(
            (0, ("Site", "Region", "Units")),
            (30, ("Site 13", "Baltic", "8,943")),
            (30, ("Site 14", "Nordic", "8,907")),
            (22, ("Gdansk",)),
        )
        assert rows_of(page)[-1] == ["Site 14 Gdansk", "Nordic", "8,907"]

    def test_of_chinese_has_no_space_before_it(self):
        page = table((0, ("品名", "数量")), (30, ("硬质合金", "50")), (24, ("钻头",)), (30, ("刀片刀片", "20")))
        assert rows_of(page)[1] == ["硬质合金钻头", "50"]

    def test_of_an_address_that_breaks_off_is_the_same_word(self):
        page = table(
            (0, ("Email", "c.omalley@post.", "Fax")),
            (22, ("", "example")),
            (30, ("City", "Bonn", "5")),
            (30, ("a", "b")),
        )
        assert rows_of(page)[0][1] == "c.omalley@post.example"

    def test_is_joined_at_any_distance_where_it_is_all_that_lacks_the_first_column(self):
        page = table(
            (0, HEAD),
            (25, ("MSK-3P", "Face masks", "10", "89.00")),
            (25, ("STR-SLF", "Self-seal pouches", "6", "85.50")),
            (25, ("", "90 x 230 mm, pack of 200")),
            (25, ("SVC-DEL", "Delivery", "1", "12.00")),
        )
        assert rows_of(page)[2:] == [
            ["STR-SLF", "Self-seal pouches 90 x 230 mm, pack of 200", "6", "85.50"],
            ["SVC-DEL", "Delivery", "1", "12.00"],
        ]


class TestARowWithEmptyCells:
    def test_is_kept_where_it_is_as_far_off_as_others(self):
        page = table(
            (0, HEAD), (25, ("A-1", "Rope", "2", "7.50")), (25, ("Spare parts",)), (25, ("B-1", "Oil", "1", "3.00"))
        )
        assert rows_of(page)[2] == ["Spare parts", "", "", ""]

    def test_is_kept_where_it_has_figures(self):
        page = table(
            (0, HEAD),
            (25, ("01 May", "Rent", "", "7.50")),
            (25, ("", "Card payment", "", "9.20")),
            (25, ("", "Balance", "", "9.20")),
            (25, ("02 May", "Salary", "1", "3.00")),
        )
        assert len(rows_of(page)) == 5

    def test_is_kept_where_others_lack_the_first_column_too(self):
        page = table(
            (0, HEAD), (25, ("Fruit", "Apple", "2", "7.50")), (25, ("", "Pear")), (25, ("", "Plum", "3", "1.00"))
        )
        assert [row[1] for row in rows_of(page)] == ["Description", "Apple", "Pear", "Plum"]

    def test_is_kept_where_its_text_would_have_fit_in_the_row_above(self):
        page = table(
            (0, ("Item", "Price")),
            (30, ("A very long name", "7.50")),
            (30, ("Oil", "2.00")),
            (24, ("Deps",)),
            (30, ("Hammer", "9.00")),
            (30, ("Saw", "8.00")),
        )
        assert ["Deps", ""] in rows_of(page)

    def test_is_kept_where_totals_are_closer_than_items(self):
        page = table(
            (0, HEAD),
            (34, ("A-1", "Rope", "2", "7.50")),
            (34, ("A-2", "Oil", "1", "7.50")),
            (34, ("", "", "Net", "15.00")),
            (24, ("", "", "", "3.00")),
            (24, ("", "", "Sum", "18.00")),
        )
        assert [row[3] for row in rows_of(page)] == ["Amount", "7.50", "7.50", "15.00", "3.00", "18.00"]


class TestColumns:
    def test_are_two_though_their_boxes_touch_in_the_header(self):
        rows = [("1", "Shaft of steel", "2"), ("2", "Seals", "10"), ("3", "Hours", "3")]
        lines = [line("Pos.", 50, 50, width=80), line("Name", 115, 50, width=90), line("Qty", 500, 50)]
        for at, cells in enumerate(rows, 1):
            lines += [line(cell, left, 50 + 30 * at) for left, cell in zip((50, 128, 500), cells, strict=True)]
        page = build_page(lines, 1, width=800, height=1000)
        assert rows_of(page)[:2] == [["Pos.", "Name", "Qty"], ["1", "Shaft of steel", "2"]]

    def test_are_one_where_a_header_is_centred_over_short_and_long_texts(self):
        lines = [line("No.", 50, 50), line("Goods", 260, 50), line("Qty", 500, 50)]
        lines += [line("1", 50, 80), line("Light panel, forty watts", 120, 80), line("7", 500, 80)]
        lines += [line("2", 50, 110), line("Driver", 120, 110), line("5", 500, 110)]
        page = build_page(lines, 1, width=800, height=1000)
        assert rows_of(page) == [["No.", "Goods", "Qty"], ["1", "Light panel, forty watts", "7"], ["2", "Driver", "5"]]

    def test_stay_apart_under_a_title_over_both(self):
        lines = [line("Rope and oil in the year of 1931", 120, 50), line("Qty", 600, 50)]
        lines += [line("Rope", 120, 80), line("Oil", 350, 80), line("7", 600, 80)]
        lines += [line("Hemp", 120, 110), line("Whale", 350, 110), line("5", 600, 110)]
        assert rows_of(build_page(lines, 1, width=800, height=1000))[1] == ["Rope", "Oil", "7"]

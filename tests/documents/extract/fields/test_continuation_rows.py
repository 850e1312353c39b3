"""A truncated value is dropped: a row may continue the row above, or the last row of the previous page."""

from typing import Any

from msgspec.structs import replace

from tests.documents.extract.fields.fill import INTEGER, NUMBER, TEXT, array, boxed, fill, record, tabled, written

HEADER = ("Code", "Description", "Qty", "Amount")
ITEMS = record(items=array(code=TEXT, description=TEXT, quantity=INTEGER, amount=NUMBER))
ROPE = ("A-1", "Rope, hemp", "2", "7.50")
OIL = ("B-1", "Oil", "1", "3.00")


def names(*pages: Any) -> list[tuple[str | None, str | None]]:
    return [(item["code"], item["description"]) for item in fill(ITEMS, *pages)["items"]]


class TestAnItem:
    def test_drops_a_value_that_may_continue_in_the_next_row(self):
        for rest in (("", "of the best kind", "", ""), ("", "Best kind", "", "")):
            page = tabled(HEADER, ROPE, rest, OIL)
            assert names(page) == [("A-1", None), ("B-1", "Oil")]
            assert fill(ITEMS, page)["items"][0]["amount"] == 7.5

    def test_drops_it_in_the_first_column_where_the_line_was_full(self):
        assert names(tabled(HEADER, ("A-1 and", *ROPE[1:]), ("A-2", "", "", ""), OIL))[0] == (None, "Rope, hemp")

    def test_drops_it_where_the_rest_is_in_the_wrong_column(self):
        page = tabled(HEADER, ROPE, ("of the best kind", "", "", ""), OIL)
        spans = [replace(span, box=(100, *span.box[1:])) if span.row == 2 and span.box else span for span in page.spans]
        assert names(replace(page, spans=tuple(spans))) == [("A-1", None), ("B-1", "Oil")]

    def test_keeps_it_before_a_title(self):
        rows = (
            [("Code", 50), ("Description", 200), ("Qty", 400), ("Amount", 500)],
            [("A-1", 50), ("Rope", 200), ("2", 400), ("7.50", 500)],
            [("Oils", 50)],
            [("B-1000000000", 50), ("Oil", 200), ("1", 400), ("3.00", 500)],
        )
        assert names(boxed(*rows)) == [("A-1", "Rope"), ("B-1000000000", "Oil")]
        (page,) = written(
            "| Code | Description | Amount |\n|---|---|---|\n| A-1 | Rope | 7 |\n| Oils | | |\n| B | Oil | 3 |"
        )
        assert names(page) == [("A-1", "Rope"), ("B", "Oil")]

    def test_keeps_it_before_a_row_with_a_number_of_its_own(self):
        assert names(tabled(HEADER, ROPE, ("", "Twine", "", "2.00"), OIL))[0] == ("A-1", "Rope, hemp")

    def test_keeps_numbers_whatever_is_below_them(self):
        page = tabled(HEADER, ROPE, ("", "", "", "per piece"), OIL)
        assert [item["amount"] for item in fill(ITEMS, page)["items"]] == [7.5, 3]

    def test_keeps_it_before_a_total(self):
        assert names(tabled(HEADER, ROPE, ("", "Subtotal", "", "USD 7.50"), ("", "Total", "", "")))[0] == ROPE[:2]

    def test_at_the_end_of_a_page_drops_a_value_that_may_continue_on_the_next(self):
        first, second = tabled(HEADER, OIL, ROPE), tabled(HEADER, ("", "of the best kind", "", ""), OIL, number=2)
        assert names(first, second) == [("B-1", "Oil"), ("A-1", None), ("B-1", "Oil")]

    def test_is_not_continued_by_a_row_further_down_the_next_page(self):
        first, second = tabled(HEADER, ROPE), tabled(HEADER, OIL, ("", "of whales", "", ""), number=2)
        assert names(first, second) == [("A-1", "Rope, hemp"), ("B-1", None)]


class TestAForm:
    SCHEMA = record(full_name=TEXT, address=TEXT, age=INTEGER)

    def test_drops_a_value_that_may_continue_below(self):
        page = tabled(
            ("Full name", "Catherine"), ("", "O'Malley"), ("Address", "Flat 4,"), ("", "Dublin"), ("Age", "5")
        )
        assert fill(self.SCHEMA, page) == {"full_name": None, "address": None, "age": 5}

    def test_keeps_a_number_and_what_has_a_label_below_it(self):
        page = tabled(("Age", "5"), ("", "years"), ("Full name", "Catherine"), ("", "Phone: 7"), ("Address", "Bonn"))
        assert fill(self.SCHEMA, page) == {"full_name": "Catherine", "address": "Bonn", "age": 5}

"""Tables that the reader has cut below each other, and headers with two names in one cell."""

from collections.abc import Sequence

from penstock.documents.pages import Page, Span
from tests.documents.extract.fields.fill import DATE, NUMBER, TEXT, WHOLE, array, fill, find, record, tabled

LEFTS = (50.0, 150.0, 300.0, 400.0, 500.0)
HEADER = ("Date", "Details", "Paid out", "Paid in", "Balance")
FIRST = ("2026-09-01", "Rent", "96.71", "", "2,043.84")
SECOND = ("2026-09-02", "Cash", "20.00", "", "2,023.84")
WANTED = record(
    transactions=array(date=DATE, details=TEXT, paid_out=NUMBER, paid_in=NUMBER, balance=NUMBER), balance=NUMBER
)


def cut(*tables: Sequence[Sequence[str]]) -> Page:
    """A page of tables below each other. A column that is empty in all of a table is none of it."""
    spans: list[Span] = []
    for number, rows in enumerate(tables):
        for row, cells in enumerate(rows):
            top = 100 + 200.0 * number + 15 * row
            spans += [
                Span(text=text, box=(left, top, left + 60, top + 10), table=number, row=row, column=column)
                for column, (text, left) in enumerate(zip(cells, LEFTS, strict=True))
                if text
            ]
    return Page(number=1, origin="text", markdown="", spans=tuple(spans), width=600, height=800)


def details(page: Page) -> list[str]:
    return [each["details"] for each in fill(WANTED, page)["transactions"]]


class TestATableThatGoesOnOnTheSamePage:
    def test_fills_the_columns_of_the_first_part_by_the_boxes(self):
        found = find(WANTED, cut((HEADER, FIRST), (SECOND, SECOND)))
        assert [each["details"] for each in found.value["transactions"]] == ["Rent", "Cash", "Cash"]
        assert found.value["transactions"][1] == {
            "date": "2026-09-02",
            "details": "Cash",
            "paid_out": 20,
            "paid_in": None,
            "balance": 2023.84,
        }
        assert found.ambiguous == ()

    def test_tells_that_a_part_is_missing_which_cannot_be_read(self):
        two_in_one = ("", "Cash Rent", "20.00 30.00", "", "2,023.84 1,993.84")
        found = find(WANTED, cut((HEADER, FIRST), (two_in_one, SECOND), (SECOND, SECOND)))
        assert [each["details"] for each in found.value["transactions"]] == ["Rent", "Cash", "Cash"]
        assert found.ambiguous == ("/transactions",)

    def test_is_another_table_where_its_values_are_of_another_kind(self):
        other = ("Branch", "Manager", "Phone", "", "Street")
        found = find(WANTED, cut((HEADER, FIRST), (other, other)))
        assert (len(found.value["transactions"]), found.ambiguous) == (1, ())


class TestAHeaderWithTwoNamesInACell:
    WANTED = record(items=array(pos=WHOLE, name=TEXT, amount=NUMBER, qty=NUMBER))

    def test_names_two_columns_where_the_row_below_has_two(self):
        for header in (("Pos. Name", "", "Qty", "Amount"), ("", "Pos. Name", "Qty", "Amount")):
            page = tabled(header, ("1", "Shaft", "2", "5.00"), header, ("2", "Seal", "1", "3.00"))
            assert [(item["pos"], item["name"]) for item in fill(self.WANTED, page)["items"]] == [
                (1, "Shaft"),
                (2, "Seal"),
            ]

    def test_names_none_where_the_row_below_has_one(self):
        page = tabled(("Pos. Name", "", "Qty", "Amount"), ("Shaft", "", "2", "5.00"))
        assert fill(self.WANTED, page)["items"] == [{"pos": None, "name": None, "qty": 2, "amount": 5}]

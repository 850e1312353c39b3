"""Tables that the reader split vertically, and header cells with two names."""

from collections.abc import Sequence

from penstock.documents.pages import Page, Span
from tests.documents.extract.fields.fill import DATE, INTEGER, NUMBER, TEXT, array, fill, find, record, tabled

LEFTS = (50.0, 150.0, 300.0, 400.0, 500.0)
HEADER = ("Date", "Details", "Paid out", "Paid in", "Balance")
FIRST = ("2026-09-01", "Rent", "96.71", "", "2,043.84")
SECOND = ("2026-09-02", "Cash", "20.00", "", "2,023.84")
SCHEMA = record(
    transactions=array(date=DATE, details=TEXT, paid_out=NUMBER, paid_in=NUMBER, balance=NUMBER), balance=NUMBER
)


def cut(*tables: Sequence[Sequence[str]]) -> Page:
    """A page of tables below each other. A column that is empty in a whole table is not part of it."""
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
    return [each["details"] for each in fill(SCHEMA, page)["transactions"]]


class TestATableThatContinuesOnTheSamePage:
    def test_fills_the_columns_of_the_first_part_by_the_boxes(self):
        found = find(SCHEMA, cut((HEADER, FIRST), (SECOND, SECOND)))
        assert [each["details"] for each in found.value["transactions"]] == ["Rent", "Cash", "Cash"]
        assert found.value["transactions"][1] == {
            "date": "2026-09-02",
            "details": "Cash",
            "paid_out": 20,
            "paid_in": None,
            "balance": 2023.84,
        }
        assert found.ambiguous == ()

    def test_is_ambiguous_where_a_part_does_not_fit(self):
        two_in_one = ("", "Cash Rent", "20.00 30.00", "", "2,023.84 1,993.84")
        found = find(SCHEMA, cut((HEADER, FIRST), (two_in_one, SECOND), (SECOND, SECOND)))
        assert [each["details"] for each in found.value["transactions"]] == ["Rent", "Cash", "Cash"]
        assert found.ambiguous == ("/transactions",)

    def test_is_another_table_where_its_values_are_of_another_kind(self):
        other = ("Branch", "Manager", "Phone", "", "Street")
        found = find(SCHEMA, cut((HEADER, FIRST), (other, other)))
        assert (len(found.value["transactions"]), found.ambiguous) == (1, ())


class TestAHeaderCellWithTwoNames:
    SCHEMA = record(items=array(pos=INTEGER, name=TEXT, amount=NUMBER, qty=NUMBER))

    def test_names_two_columns_where_the_row_below_has_two(self):
        for header in (("Pos. Name", "", "Qty", "Amount"), ("", "Pos. Name", "Qty", "Amount")):
            page = tabled(header, ("1", "Shaft", "2", "5.00"), header, ("2", "Seal", "1", "3.00"))
            assert [(item["pos"], item["name"]) for item in fill(self.SCHEMA, page)["items"]] == [
                (1, "Shaft"),
                (2, "Seal"),
            ]

    def test_names_none_where_the_row_below_has_one(self):
        page = tabled(("Pos. Name", "", "Qty", "Amount"), ("Shaft", "", "2", "5.00"))
        assert fill(self.SCHEMA, page)["items"] == [{"pos": None, "name": None, "qty": 2, "amount": 5}]

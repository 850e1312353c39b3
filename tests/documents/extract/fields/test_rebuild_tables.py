"""Tables that the reader split or missed are rebuilt from boxes."""

from penstock.documents.pages import Page, Span
from tests.documents.extract.fields.fill import INTEGER, NUMBER, TEXT, array, boxed, citation, fill, find, record

SCHEMA = record(items=array(description=TEXT, qty=INTEGER, amount=NUMBER), total=NUMBER)
APPLE = {"description": "Apple", "qty": 2, "amount": 3}
PEAR = {"description": "Pear, the long green kind", "qty": 10, "amount": 1000.5}
ROWS = (
    [("Description", 50), ("Qty", 250), ("Amount", 400)],
    [("Apple", 50), ("2", 262), ("3.00", 412)],
    [("Pear, the long green kind", 50), ("10", 256), ("1,000.50", 388)],
)


def in_tables(page: Page, *columns: int) -> Page:
    """The page with each text as a table cell; `columns` gives the table of each column."""
    width = len(columns)
    cells = (
        Span(text=span.text, box=span.box, table=columns[at % width], row=at // width, column=at % width)
        for at, span in enumerate(page.spans)
    )
    return Page(number=1, origin="text", markdown="", spans=tuple(sorted(cells, key=lambda cell: cell.table or 0)))


def test_lines_in_columns_below_a_header_are_a_table():
    found = find(SCHEMA, boxed(*ROWS))
    assert found.value == {"items": [APPLE, PEAR], "total": None}
    assert citation(found, "/items/1/amount").box == (388, 130, 436, 140)


def test_two_tables_side_by_side_are_one():
    assert fill(SCHEMA, in_tables(boxed(*ROWS), 0, 0, 1))["items"] == [APPLE, PEAR]


def test_a_missing_column_is_added():
    page = in_tables(boxed(*ROWS), 0, 1, 1)
    spans = [Span(text=span.text, box=span.box) if span.table == 0 else span for span in page.spans]
    whole = Page(number=1, origin="text", markdown="", spans=tuple(spans))
    assert fill(SCHEMA, whole)["items"] == [APPLE, PEAR]


def test_a_total_below_the_table_is_not_an_item():
    assert fill(SCHEMA, boxed(*ROWS, [("Total", 250), ("1,003.50", 388)])) == {"items": [APPLE, PEAR], "total": 1003.5}


def test_the_table_ends_at_a_wide_gap_and_at_running_text():
    assert fill(SCHEMA, boxed(*ROWS, [], [], [], [("Fig", 50), ("2", 262), ("3.00", 412)]))["items"] == [APPLE, PEAR]
    text = [("Delivery is free of charge for all orders over 50.00 in one calendar month", 50)]
    assert fill(SCHEMA, boxed(*ROWS, text, [("Fig", 50), ("2", 262)]))["items"] == [APPLE, PEAR]


def test_labels_with_colons_are_not_a_header():
    page = boxed([("Description:", 50), ("Amount:", 250)], [("Apple", 50), ("3", 250)])
    assert fill(SCHEMA, page)["items"] == []


def test_a_table_of_the_reader_is_unchanged():
    assert fill(SCHEMA, in_tables(boxed(*ROWS), 0, 0, 0))["items"] == [APPLE, PEAR]

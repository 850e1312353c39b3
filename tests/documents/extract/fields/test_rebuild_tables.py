"""Tables that the reader has cut apart, or has not seen at all, are put together by their boxes."""

from penstock.documents.pages import Page, Span
from tests.documents.extract.fields.fill import NUMBER, TEXT, WHOLE, array, boxed, citation, fill, find, record

WANTED = record(items=array(description=TEXT, qty=WHOLE, amount=NUMBER), total=NUMBER)
APPLE = {"description": "Apple", "qty": 2, "amount": 3}
PEAR = {"description": "Pear, the long green kind", "qty": 10, "amount": 1000.5}
ROWS = (
    [("Description", 50), ("Qty", 250), ("Amount", 400)],
    [("Apple", 50), ("2", 262), ("3.00", 412)],
    [("Pear, the long green kind", 50), ("10", 256), ("1,000.50", 388)],
)


def in_tables(page: Page, *columns: int) -> Page:
    """The page with each of its texts as a cell of a table, which table told by its column."""
    width = len(columns)
    cells = (
        Span(text=span.text, box=span.box, table=columns[at % width], row=at // width, column=at % width)
        for at, span in enumerate(page.spans)
    )
    return Page(number=1, origin="text", markdown="", spans=tuple(sorted(cells, key=lambda cell: cell.table or 0)))


def test_lines_in_columns_under_a_header_are_a_table():
    found = find(WANTED, boxed(*ROWS))
    assert found.value == {"items": [APPLE, PEAR], "total": None}
    assert citation(found, "/items/1/amount").box == (388, 130, 436, 140)


def test_two_tables_side_by_side_are_one():
    assert fill(WANTED, in_tables(boxed(*ROWS), 0, 0, 1))["items"] == [APPLE, PEAR]


def test_a_column_that_was_left_out_is_put_in_again():
    page = in_tables(boxed(*ROWS), 0, 1, 1)
    spans = [Span(text=span.text, box=span.box) if span.table == 0 else span for span in page.spans]
    whole = Page(number=1, origin="text", markdown="", spans=tuple(spans))
    assert fill(WANTED, whole)["items"] == [APPLE, PEAR]


def test_a_sum_under_the_table_is_no_item():
    assert fill(WANTED, boxed(*ROWS, [("Total", 250), ("1,003.50", 388)])) == {"items": [APPLE, PEAR], "total": 1003.5}


def test_the_table_ends_at_a_wide_gap_and_at_running_text():
    assert fill(WANTED, boxed(*ROWS, [], [], [], [("Fig", 50), ("2", 262), ("3.00", 412)]))["items"] == [APPLE, PEAR]
    text = [("Delivery is free of charge for all orders over 50.00 in one calendar month", 50)]
    assert fill(WANTED, boxed(*ROWS, text, [("Fig", 50), ("2", 262)]))["items"] == [APPLE, PEAR]


def test_labels_with_colons_are_no_header():
    page = boxed([("Description:", 50), ("Amount:", 250)], [("Apple", 50), ("3", 250)])
    assert fill(WANTED, page)["items"] == []


def test_what_the_reader_saw_as_one_table_stays_as_it_is():
    assert fill(WANTED, in_tables(boxed(*ROWS), 0, 0, 0))["items"] == [APPLE, PEAR]

"""Array items belong to rows: a short value is found in its row, and a value of another row is detected."""

from typing import Any

from penstock.documents.pages import Page
from tests.documents.extract.fields.fill import NUMBER, TEXT, array, boxed, lines, record, tabled
from tests.documents.grounding.ground import citation, flagged, ground

HEADER = ["Pos", "Description", "Qty", "Price", "Sum"]
ROWS = [
    ["1", "Blue paint", "2", "12.50", "25.00"],
    ["2", "Brush", "3", "7.00", "21.00"],
    ["3", "Ladder, 3 m", "1", "89.90", "89.90"],
]
ITEMS = [
    {"what": "Blue paint", "count": 2, "each": 12.5, "all": 25},
    {"what": "Brush", "count": 3, "each": 7, "all": 21},
    {"what": "Ladder, 3 m", "count": 1, "each": 89.9, "all": 89.9},
]


def with_item(at: int, **changed: Any) -> dict[str, Any]:
    return {"items": [{**item, **(changed if at == number else {})} for number, item in enumerate(ITEMS)]}


def as_lines() -> Page:
    return lines(*(f"{name}  {count} x {each}  {all_}" for _, name, count, each, all_ in ROWS))


def as_boxes() -> Page:
    return boxed(*([(text, 60.0 + 100 * at) for at, text in enumerate(row)] for row in [HEADER, *ROWS]))


def test_each_value_is_found_in_its_own_row():
    found = ground({"items": ITEMS}, tabled(HEADER, *ROWS))
    assert not flagged(found)
    assert citation(found, "/items/1/count").box == (200.0, 30.0, 290.0, 40.0)
    assert citation(found, "/items/2/count").box == (200.0, 45.0, 290.0, 55.0)


def test_a_value_of_the_row_below_is_flagged_and_its_own_row_cited():
    for page in (tabled(HEADER, *ROWS), as_boxes()):
        found = ground(with_item(0, each=7), page)
        assert flagged(found) == {"/items/0/each"}
        assert citation(found, "/items/0/each").text == "12.50"


def test_a_name_of_another_row_is_flagged_and_its_neighbours_are_not():
    for page in (tabled(HEADER, *ROWS), as_boxes(), as_lines()):
        assert flagged(ground(with_item(1, what="Ladder, 3 m"), page)) == {"/items/1/what"}


def test_a_value_of_another_column_is_flagged():
    assert flagged(ground(with_item(0, each=25), tabled(HEADER, *ROWS))) == {"/items/0/each"}


def test_in_lines_without_cells_a_number_of_another_line_is_flagged():
    found = ground(with_item(0, each=89.9), as_lines())
    assert flagged(found) == {"/items/0/each"}
    assert citation(found, "/items/0/each").text == "12.50"


def test_the_header_decides_the_column_of_a_single_row():
    schema = record(items=array(description=TEXT, qty=NUMBER, price=NUMBER, sum=NUMBER))
    item = {"description": "Blue paint", "qty": 2, "price": 25, "sum": 25}
    found = ground({"items": [item]}, tabled(HEADER, ROWS[0]), schema=schema)
    assert flagged(found) == {"/items/0/price"}


def test_a_value_that_is_never_in_its_row_may_be_elsewhere():
    items = [{**item, "currency": "EUR", "tax": 19} for item in ITEMS]
    assert not flagged(ground({"items": items}, tabled(HEADER, *ROWS, before=["All prices in EUR, with 19 % tax"])))


def test_all_values_of_an_invented_row_are_flagged():
    invented = {"what": "Green paint", "count": 9, "each": 13.5, "all": 121.5}
    found = ground({"items": [*ITEMS, invented]}, tabled(HEADER, *ROWS))
    assert flagged(found) == {f"/items/3/{name}" for name in invented}


def test_equal_rows_are_all_grounded():
    twice = [*ROWS, ROWS[1]]
    assert not flagged(ground({"items": [*ITEMS, ITEMS[1]]}, tabled(HEADER, *twice)))


def test_a_table_may_continue_on_the_next_page():
    found = ground({"items": ITEMS}, tabled(HEADER, *ROWS[:2]), tabled(*ROWS[2:], number=2))
    assert not flagged(found)
    assert citation(found, "/items/2/count").page == 2

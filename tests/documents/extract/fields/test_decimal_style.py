"""An ambiguous number is read in the decimal style of the document."""

import pytest

from tests.documents.extract.fields.fill import INTEGER, NUMBER, array, citation, find, lines, record, tabled

SCHEMA = record(net=NUMBER)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.234 €", 1234),
        ("1,234 kg", 1.234),
        ("12.345", 12345),
        ("0.125", 0.125),
        ("0,125", 0.125),
        ("1.234,50", 1234.5),
    ],
)
@pytest.mark.parametrize("other", ["Gross: 1.468,46 €", "Gross: 234,46 €", "Gross: 1 468,46", "Gross: 1.468.000"])
def test_where_commas_are_decimal_points_group(text: str, number: float, other: str):
    for page in (lines(f"Net: {text}", other), lines(other, f"Net: {text}")):
        assert find(SCHEMA, page).value == {"net": number}


@pytest.mark.parametrize("other", ["Gross: 1,468.46", "Gross: 12", "Date: 05.01.2026", "See 10,20 and 30", ""])
def test_without_evidence_a_number_is_read_as_in_english(other: str):
    assert find(SCHEMA, lines("Net: 1.234", other)).value == {"net": 1.234}
    assert find(SCHEMA, lines("Net: 1,234", other)).value == {"net": 1234}


def test_where_both_are_decimal_but_commas_more_often_the_number_is_dropped():
    mixed = ("A: 12,50 €", "B: 13,50 €", "C: 14.50 €")
    found = find(SCHEMA, lines("Net: 1.234 €", *mixed))
    assert (found.value, found.citations) == ({"net": None}, ())
    assert find(SCHEMA, lines("Net: 1.234,50 €", *mixed)).value == {"net": 1234.5}


def test_a_later_page_counts_too():
    assert find(SCHEMA, lines("Net: 1.234 €"), lines("Gross: 1.468,46 €", number=2)).value == {"net": 1234}


def test_items_are_read_the_same_way_and_their_citations_stay():
    schema = record(items=array(pos=INTEGER, price=NUMBER))
    found = find(schema, tabled(("Pos", "Price"), ("1", "1.245 €"), ("2", "1.300,50 €")))
    assert found.value == {"items": [{"pos": 1, "price": 1245}, {"pos": 2, "price": 1300.5}]}
    assert citation(found, "/items/0/price").text == "1.245 €"

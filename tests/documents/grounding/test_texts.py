"""Text is found by its tokens."""

import pytest

from penstock.documents.pages import Page
from tests.documents.extract.fields.fill import boxed, lines, tabled, written
from tests.documents.grounding.ground import citation, ground, is_grounded

CLAUSE = (
    "The supplier shall deliver the goods to the place named in the order within thirty days of its receipt, and shall "
    "bear the risk of loss until they have been accepted by the buyer at 14 Mill Lane."
)


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ("ACME Pumps GmbH", ["Acme  Pumps GmbH."]),
        ("上海某某科技有限公司", ["名称：上海某某科技", "有限公司"]),
        ("ABC123", ["ＡＢＣ１２３"]),
        ("international agreement", ["an inter-", "national agree-", "ment of"]),
        ("DE89370400440532013000", ["IBAN: DE89 3704 0044 0532 0130 00"]),
        ("+492211234567", ["Tel. +49 (0)221 123 45 67"]),
        ("https://www.example.org/shop", ["see example.org/shop"]),
        ("Doe, Jane", ["Dr. Jane M. Doe"]),
        ("credit_card", ["paid by Credit card"]),
        ("5551234567", ["call 555.123.4567"]),
        ("1,234.50", ["Summe 1.234,50"]),
        ("12.5mg", ["12.5 mg daily"]),
        ("09:05", ["at 9:05"]),
        ("€", ["12 €"]),
        ("EUR", ["total 12 €"]),
        ("CNY", ["共12元"]),
        ("R&D", ["the R & D team"]),
        ("A", ["Grade A"]),
        ("A-", ["Grade A-"]),
    ],
)
def test_text_is_found_in_any_case_width_and_punctuation(value: str, texts: list[str]):
    assert is_grounded(value, *texts)


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ("ACME Pump GmbH", ["ACME Pumps GmbH"]),
        ("Jane Smith", ["Jane Doe wrote to John of the house of the old Smith"]),
        ("INV-2O26", ["INV-2026"]),
        ("1250", ["12.50"]),
        ("12.5 mg", ["1.25 mg"]),
        ("paid", ["unpaid"]),
        ("A", ["a house"]),
        ("A", ["Grade A-"]),
        ("B+", ["Grade B"]),
        ("USD", ["total 12 €"]),
        ("USD", ["Invoice US-22"]),
        ("上海某某科技公司", ["上海某某科技有限公司"]),
    ],
)
def test_text_that_is_not_there_is_not_found(value: str, texts: list[str]):
    assert not is_grounded(value, *texts)


def test_lines_of_an_address_may_be_beside_those_of_another():
    page = boxed(
        [("Jane Doe Ltd.", 50.0), ("Dock 9", 300.0)],
        [("1 High Street", 50.0), ("Harbour Road 2", 300.0)],
        [("London E1 6AN", 50.0), ("Dover CT16", 300.0)],
    )
    found = ground({"address": "1 High Street, London E1 6AN", "wrong": "1 High Street, London E1 6AM"}, page)
    assert citation(found, "/address").grounded
    assert citation(found, "/address").box == (50.0, 115.0, 128.0, 140.0)
    assert not citation(found, "/wrong").grounded


def test_a_long_text_may_be_interrupted_by_other_words():
    begun, ended = CLAUSE.split(" within ")
    page = lines(begun, "Page 3 of 9", f"within {ended}")
    assert ground({"clause": CLAUSE}, page).citations[0].grounded


@pytest.mark.parametrize("wrong", [CLAUSE.replace("14", "15"), CLAUSE.replace("goods", "money").replace("risk", "cost"),
                                   " ".join(reversed(CLAUSE.split()))])  # fmt: skip
def test_a_long_text_with_other_numbers_words_or_order_is_not_found(wrong: str):
    assert (
        not ground({"clause": wrong.replace("loss", "delay").replace("accepted", "refused")}, lines(CLAUSE))
        .citations[0]
        .grounded
    )


def test_a_name_may_continue_in_the_next_cell():
    assert ground({"name": "Blue paint, 5 litres"}, tabled(["Blue paint", "5 litres"])).citations[0].grounded


def test_text_that_is_only_in_the_markdown_is_found_without_a_box():
    page = boxed([("Invoice", 50.0)], markdown="Invoice\n\n| Total | 12.50 |")
    [found] = ground({"total": 12.5}, page).citations
    assert (found.grounded, found.page, found.box) == (True, 1, None)


def test_pages_without_spans_are_read_from_their_markdown():
    found = ground({"name": "Jane Doe"}, *written("# Report", "written by **Jane Doe**"))
    assert (found.citations[0].page, found.citations[0].text) == (2, "Jane Doe")


def test_null_and_empty_text_claim_nothing():
    assert ground({"a": None, "b": "", "c": [], "d": {}}, lines("x")).citations == ()


def test_pointers_are_escaped():
    assert ground({"a/b": {"c~d": ["x"]}}, lines("x")).citations[0].pointer == "/a~1b/c~0d/0"


def test_a_document_without_pages_grounds_nothing():
    assert not ground("x").citations[0].grounded
    assert not ground("x", Page(number=1, origin="text", markdown="")).citations[0].grounded

"""A value next to the wrong label is detected where its own label has another value."""

from tests.documents.extract.fields.fill import BOOLEAN, DATE, NUMBER, TEXT, boxed, lines, record, tabled
from tests.documents.grounding.ground import citation, flagged, ground

HEAD = lines("Invoice No.: A-17", "Customer No.: C-991", "Invoice date: 2026-01-05", "Due date: 2026-02-04")
SCHEMA = record(invoice_number=TEXT, customer_number=TEXT, invoice_date=DATE, due_date=DATE)
TRUE = {"invoice_number": "A-17", "customer_number": "C-991", "invoice_date": "2026-01-05", "due_date": "2026-02-04"}


def test_values_next_to_their_labels_are_grounded():
    assert not flagged(ground(TRUE, HEAD, schema=SCHEMA))


def test_swapped_values_are_flagged_and_the_right_ones_cited():
    wrong = {**TRUE, "customer_number": "A-17", "due_date": "2026-01-05"}
    found = ground(wrong, HEAD, schema=SCHEMA)
    assert flagged(found) == {"/customer_number", "/due_date"}
    assert citation(found, "/customer_number").text == "C-991"


def test_of_equal_values_the_one_next_to_its_label_is_cited():
    page = boxed(
        [("Net", 50.0), ("12.00", 300.0)], [("Tip", 50.0), ("0.00", 300.0)], [("Total", 50.0), ("12.00", 300.0)]
    )
    found = ground({"total": 12}, page, schema=record(total=NUMBER))
    assert citation(found, "/total").box == (300.0, 130.0, 330.0, 140.0)


def test_a_longer_label_is_a_label_too():
    page = lines("Total: 100.00", "Total due: 119.00", "Subtotal: 90.00")
    assert not flagged(ground({"total": 119}, page, schema=record(total=NUMBER)))
    assert flagged(ground({"total": 90}, page, schema=record(total=NUMBER))) == {"/total"}


def test_more_or_less_of_the_labelled_text_is_not_another_value():
    page = lines("Address: 1 High Street", "London E1 6AN")
    assert not flagged(ground({"address": "1 High Street, London E1 6AN"}, page, schema=record(address=TEXT)))


def test_an_ambiguous_date_is_still_another_date():
    page = lines("Collected: 03/04/26", "Born: 08-Mar-03")
    schema = record(collected=DATE, born=DATE)
    assert flagged(ground({"collected": "2003-03-08"}, page, schema=schema)) == {"/collected"}
    assert not flagged(ground({"collected": "2026-04-03", "born": "2003-03-08"}, page, schema=schema))
    assert not flagged(ground({"collected": "2026-03-04"}, page, schema=schema))


def test_labels_in_another_language_are_known():
    page = tabled(["Rechnungsnummer", "A-17"], ["Kundennummer", "C-991"])
    schema = record(invoice_number=TEXT, customer_number=TEXT)
    assert flagged(ground({"invoice_number": "C-991"}, page, schema=schema)) == {"/invoice_number"}
    page = lines("发票号码：A-17", "客户编号：C-991")
    assert flagged(ground({"invoice_number": "C-991"}, page, schema=schema)) == {"/invoice_number"}


def test_labels_that_disagree_decide_nothing():
    page = lines("Reference: A-17", "Reference: C-991", "seen by us: X-5")
    assert not flagged(ground({"reference": "X-5"}, page, schema=record(reference=TEXT)))


def test_a_section_ends_at_a_page_without_labels():
    schema = record(seller=record(name=TEXT), buyer=record(name=TEXT))
    pages = [lines("Seller", number=1), lines("nothing here", number=2), lines("Name: Ann", "Bob", number=3)]
    assert not flagged(ground({"seller": {"name": "Bob"}}, *pages, schema=schema))


def test_booleans_need_a_word_or_a_checkbox_at_their_label():
    schema = record(fasting=BOOLEAN, paid=BOOLEAN)
    stated = lines("Fasting: yes", "[ ] Paid")
    assert not flagged(ground({"fasting": True, "paid": False}, stated, schema=schema))
    assert flagged(ground({"fasting": False, "paid": True}, stated, schema=schema)) == {"/fasting", "/paid"}
    unstated = lines("Yes, we deliver. Paid vacation for all.")
    assert flagged(ground({"fasting": True, "paid": False}, unstated, schema=schema)) == {"/fasting", "/paid"}
    assert not flagged(ground({"fasting": True}, lines("Fasting: ja"), schema=schema))


def test_an_enum_value_may_be_in_another_case_or_language():
    schema = record(sex={"enum": ["female", "male"]}, state={"enum": ["in_progress", "done"]})
    page = lines("Sex: weiblich", "State: In progress")
    assert not flagged(ground({"sex": "female", "state": "in_progress"}, page, schema=schema))
    assert flagged(ground({"sex": "male", "state": "done"}, page, schema=schema)) == {"/sex", "/state"}

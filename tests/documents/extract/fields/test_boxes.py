"""Labels and values that belong together by their boxes."""

from tests.documents.extract.fields.fill import DATE, NUMBER, TEXT, boxed, citation, fill, find, record

INVOICE = record(invoice_no=TEXT, date=DATE, total=NUMBER)


def test_a_value_may_be_right_of_its_label():
    page = boxed(
        [("Invoice No.", 50), ("A-17", 200)],
        [("Date", 50), ("5 Jan 2026", 200)],
        [("Total", 50), ("€ 1.234,50", 200)],
    )
    assert fill(INVOICE, page) == {"invoice_no": "A-17", "date": "2026-01-05", "total": 1234.5}


def test_a_value_may_be_at_the_far_edge_of_the_page():
    page = boxed(
        [("A line of text over the whole width, as there are on most of the pages", 50)], [("Total", 50), ("55", 300)]
    )
    assert fill(INVOICE, page)["total"] == 55


def test_a_value_may_be_below_its_label():
    page = boxed(
        [("Invoice No.", 50), ("Date", 200), ("Total", 350)],
        [("A-17", 50), ("2026-01-05", 200), ("9.00", 350)],
    )
    assert fill(INVOICE, page) == {"invoice_no": "A-17", "date": "2026-01-05", "total": 9}


def test_a_value_with_digits_wins_over_a_neighbour_without():
    page = boxed([("Invoice No.", 50), ("Remarks", 200)], [("A-17", 50), ("none so far", 200)])
    assert fill(INVOICE, page)["invoice_no"] == "A-17"


def test_labels_above_labels_have_their_values_to_the_right():
    page = boxed([("Customer", 50), ("Ann", 200)], [("Way of paying", 50), ("Card", 200)], [("Total", 50), ("55", 200)])
    assert fill(record(customer=TEXT, total=NUMBER), page) == {"customer": "Ann", "total": 55}


def test_a_label_with_two_possible_values_has_none():
    page = boxed([("Customer", 50), ("Agent", 200)], [("Ann", 50), ("Bob", 200)])
    found = find(record(customer=TEXT), page)
    assert (found.value, found.ambiguous) == ({"customer": None}, ("/customer",))


def test_a_column_of_values_is_not_a_single_value():
    page = boxed([("Date", 50), ("Total", 200)], [("2026-01-05", 50), ("1", 200)], [("2026-01-06", 50), ("2", 200)])
    found = find(INVOICE, page)
    assert (found.value["date"], found.value["total"]) == (None, None)
    assert found.ambiguous == ("/date", "/total")


def test_a_line_below_a_free_text_label_is_not_enough():
    assert fill(record(customer=TEXT), boxed([("Customer", 50)], [("Please pay soon", 50)])) == {"customer": None}
    assert fill(record(customer=TEXT), boxed([("Customer:", 50)], [("Ann", 50)])) == {"customer": "Ann"}


def test_text_far_below_a_label_is_not_its_value():
    page = boxed([("Total", 50)], [], [], [], [("12", 50)])
    assert fill(INVOICE, page)["total"] is None


def test_two_texts_above_each_other_are_not_in_one_row():
    page = boxed([("Total", 50)], [("12", 300)])
    assert fill(INVOICE, page)["total"] is None


def test_objects_may_be_side_by_side():
    schema = record(bill_to=record(name=TEXT, city=TEXT), ship_to=record(name=TEXT, city=TEXT))
    page = boxed(
        [("Bill to", 50), ("Ship to", 300)],
        [("Name: Ann", 50), ("Name: Bob", 300)],
        [("City:", 50), ("Bonn", 120), ("City:", 300), ("Kiel", 370)],
    )
    assert fill(schema, page) == {
        "bill_to": {"name": "Ann", "city": "Bonn"},
        "ship_to": {"name": "Bob", "city": "Kiel"},
    }


def test_the_box_is_that_of_the_value():
    page = boxed([("Total", 50), ("55", 200)])
    assert citation(find(INVOICE, page), "/total").box == (200, 100, 212, 110)


def test_a_rate_and_a_currency_belong_to_the_label():
    page = boxed(
        [("Subtotal", 400), ("1,325.00", 500)],
        [("VAT 19%", 400), ("251.75", 512)],
        [("Total EUR", 400), ("1,576.75", 500)],
    )
    titled = record(vat={**NUMBER, "title": "VAT 19%"}, total={**NUMBER, "x-labels": ["Total EUR", "Total"]})
    for schema in (titled, record(vat=NUMBER, total=NUMBER)):
        assert fill(schema, page) == {"vat": 251.75, "total": 1576.75}
    assert fill(record(vat=NUMBER), boxed([("VAT 19%", 400)])) == {"vat": None}


def test_a_rate_between_a_label_and_an_amount_is_ambiguous():
    for label in ("VAT", "VAT:"):
        found = find(record(vat=NUMBER), boxed([(label, 50), ("19%", 200), ("251.75", 300)]))
        assert (found.value, found.ambiguous) == ({"vat": None}, ("/vat",))
    assert fill(record(vat_rate=NUMBER), boxed([("VAT rate", 50), ("19%", 200), ("251.75", 300)])) == {"vat_rate": 19}


def test_an_empty_value_is_not_filled_with_the_next_label():
    filled = [("Name", 50), ("Ann", 150), ("City", 300), ("Rome", 400)]
    page = boxed([("Passport No.", 50), ("Visa type", 300), ("B1", 400)], filled)
    assert fill(record(passport_no=TEXT, name=TEXT), page) == {"passport_no": None, "name": "Ann"}
    page = boxed([("Passport No.", 50), ("Email", 300)], [("Born in", 50), *filled[1:]])
    assert fill(record(passport_no=TEXT), page) == {"passport_no": None}
    page = boxed([("Apples", 50), ("3", 200), ("5.00", 300)], [("Total", 50), ("5.00", 300)])
    assert fill(record(total=NUMBER), page) == {"total": 5}


def test_the_header_of_the_next_column_is_not_a_value():
    page = boxed([("Bill to", 50), ("Ship to", 300)], [("Jane", 50), ("Dock", 300)])
    assert fill(record(bill_to=TEXT), page) == {"bill_to": "Jane"}


def test_a_label_in_another_block_does_not_decide_where_values_are():
    heads = [("Bill to", 50), ("Consignee", 300)], [("Jane", 50), ("Bob", 300)]
    page = boxed(*heads, [], [], [], [("Total", 50), ("5", 300)])
    assert fill(record(bill_to=TEXT, total=NUMBER), page) == {"bill_to": None, "total": 5}
    page = boxed(*heads, [("VAT ID: DE1", 50), ("Dock", 300)])
    assert fill(record(bill_to=TEXT, vat_id=TEXT), page) == {"bill_to": None, "vat_id": "DE1"}

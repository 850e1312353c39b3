"""Rows below the items that are not items: totals, taxes, discounts, other blocks in the same table."""

from tests.documents.extract.fields.fill import NUMBER, TEXT, array, fill, record, tabled

HEADER = ("Description", "Qty", "Amount")
SCHEMA = record(items=array(description=TEXT, qty=NUMBER, amount=NUMBER), total=NUMBER)
WIDGET = ("Widget", "2", "5.00")


def names(*rows: tuple[str, ...]) -> list[str]:
    return [item["description"] for item in fill(SCHEMA, tabled(HEADER, WIDGET, *rows))["items"]]


def test_a_tax_a_discount_and_a_balance_are_not_items():
    for label in ("VAT 20%", "VAT (20%)", "Discount 5%", "Balance", "USt. 19 %", "折扣"):
        assert names((label, "", "1.00")) == ["Widget"]


def test_a_product_of_that_name_is_an_item():
    assert names(("Discount", "3", "1.00"), ("Tax guide", "", "9.00")) == ["Widget", "Discount", "Tax guide"]


def test_a_label_and_an_amount_below_the_total_are_not_an_item():
    assert names(("Shipping", "", "3.00"), ("Total", "", "8.00"), ("Cash", "", "10.00"), ("Change", "", "2.00")) == [
        "Widget",
        "Shipping",
    ]


def test_a_subtotal_between_two_groups_does_not_end_the_items():
    rows = (("Subtotal", "", "5.00"), ("Shipping", "", "3.00"), ("Gadget", "1", "1.00"), ("Total", "", "9.00"))
    assert names(*rows) == ["Widget", "Shipping", "Gadget"]


def test_a_total_is_read_after_its_amount_in_words():
    number = {"type": "number"}
    schema = record(
        total={**number, "x-labels": ["小写"]},
        items=array(
            name={"type": "string", "title": "货物名称"},
            qty={**number, "title": "数量"},
            sum={**number, "title": "金额"},
        ),
    )
    page = tabled(
        ("货物名称", "数量", "金额"),
        ("打印机", "3", "3185.84"),
        ("合计", "", "¥8846.22"),
        ("价税合计（大写）", "玖仟陆佰圆整", "（小写）¥9600.00"),
    )
    assert fill(schema, page) == {"total": 9600, "items": [{"name": "打印机", "qty": 3, "sum": 3185.84}]}


def test_a_block_of_another_object_is_not_an_item():
    seller = {**record(tax_id={"type": "string", "title": "Tax ID"}), "title": "Seller"}
    page = tabled(HEADER, WIDGET, ("S e l l e r", "of the goods", "Tax no. 77"))
    assert fill(record(**SCHEMA["properties"], seller=seller), page)["items"] == [
        {"description": "Widget", "qty": 2, "amount": 5}
    ]

"""What is said of one party is never given to another."""

import pytest

from penstock.documents.pages import Page
from penstock.kernel.json_object import JsonObject
from tests.documents.extract.fields.fill import NUMBER, TEXT, array, boxed, fill, lines, record, tabled, written

SELLER = record(seller=record(tax_id=TEXT))
BOTH = record(buyer=record(tax_id=TEXT), seller=record(tax_id=TEXT))


def titled(title: str, **properties: JsonObject) -> JsonObject:
    return {**record(**properties), "title": title}


class TestAPartyThatTheSchemaDoesNotName:
    @pytest.mark.parametrize(
        "page",
        [
            lines("Buyer: A Ltd", "Tax ID: 1"),
            lines("Buyer", "Tax ID: 1"),
            lines("Bill to:", "A Ltd", "Tax ID: 1"),
            lines("Customer: A Ltd, Tax ID: 1"),
            tabled(("Buyer", "A Ltd"), ("Tax ID", "1"), ("Seller", "B Ltd")),
            tabled(("Buyer: A Ltd", "Agent: C Ltd"), ("Tax ID: 1", "")),
            boxed([("Buyer", 50)], [("Tax ID: 1", 50)]),
            *written("# Buyer\n\nTax ID: 1"),
            *written("# Buyer\n\n## Numbers\n\nTax ID: 1"),
        ],
    )
    def test_keeps_what_stands_in_its_part(self, page: Page):
        assert fill(SELLER, page) == {"seller": {"tax_id": None}}

    def test_keeps_what_another_would_have_deep_inside(self):
        wanted = record(seller=record(address=record(street=TEXT)))
        assert fill(wanted, lines("Buyer: A Ltd", "Street: High")) == {"seller": {"address": {"street": None}}}
        assert fill(wanted, lines("Street: High")) == {"seller": {"address": {"street": "High"}}}

    def test_has_its_part_beside_that_of_another(self):
        page = boxed([("Buyer", 50), ("Seller", 300)], [("Tax ID: 1", 50), ("Tax ID: 2", 300)])
        assert fill(SELLER, page) == {"seller": {"tax_id": "2"}}

    def test_may_be_another_word_for_one_that_it_names(self):
        assert fill(SELLER, lines("Vendor: B Ltd", "Tax ID: 2")) == {"seller": {"tax_id": "2"}}

    def test_leaves_alone_what_is_of_no_party(self):
        wanted = record(totals=record(total=NUMBER), no=TEXT)
        assert fill(wanted, lines("Buyer: A Ltd", "Total: 5", "No.: 7")) == {"totals": {"total": 5}, "no": "7"}

    def test_leaves_alone_what_has_the_name_of_its_party(self):
        assert fill(SELLER, lines("Buyer: A Ltd", "Seller tax ID: 2")) == {"seller": {"tax_id": "2"}}

    def test_has_no_part_after_the_items(self):
        wanted = record(**SELLER["properties"], items=array(item=TEXT, amount=NUMBER))
        table = "| Item | Amount |\n|---|---|\n| Apple | 3 |"
        assert fill(wanted, *written(f"Buyer: A Ltd\n\n{table}\n\nTax ID: 2"))["seller"] == {"tax_id": "2"}

    def test_is_none_inside_a_record_that_has_it_for_a_value(self):
        wanted = record(supplier=record(client=TEXT, tax_id=TEXT))
        page = lines("Supplier", "Client: Bob", "Tax ID: 2")
        assert fill(wanted, page) == {"supplier": {"client": "Bob", "tax_id": "2"}}


class TestTwoPartiesOfTheSchema:
    @pytest.mark.parametrize(
        "page",
        [
            lines("Buyer: A Ltd", "Tax ID: 1", "Seller: B Ltd", "Tax ID: 2"),
            tabled(("Buyer: A Ltd", "Seller: B Ltd"), ("Tax ID: 1", "Tax ID: 2")),
        ],
    )
    def test_have_each_their_own_after_their_names(self, page: Page):
        assert fill(BOTH, page) == {"buyer": {"tax_id": "1"}, "seller": {"tax_id": "2"}}

    @pytest.mark.parametrize("line", ["Buyer: A Ltd   Seller: B Ltd", "Buyer: A Ltd Seller: B Ltd"])
    def test_in_one_line_leave_open_whose_the_next_is(self, line: str):
        assert fill(BOTH, lines(line, "Tax ID: 1")) == {"buyer": {"tax_id": None}, "seller": {"tax_id": None}}

    def test_do_not_lend_each_other_what_only_one_is_asked_for(self):
        name, bank = {**TEXT, "title": "名称"}, {**TEXT, "title": "开户行"}
        wanted = record(buyer=titled("购买方", name=name), seller=titled("销售方", name=name, bank=bank))
        page = lines("购买方", "名称：甲公司", "开户行：招行", "销售方", "名称：乙公司")
        assert fill(wanted, page) == {"buyer": {"name": "甲公司"}, "seller": {"name": "乙公司", "bank": None}}

    def test_of_any_name_are_told_by_what_both_have(self):
        wanted = record(first=record(name=TEXT), second=record(name=TEXT, code=TEXT))
        page = lines("First", "Name: Ann", "Code: 5", "Second", "Name: Bob")
        assert fill(wanted, page) == {"first": {"name": "Ann"}, "second": {"name": "Bob", "code": None}}

"""A value of one party is never assigned to another."""

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
    def test_keeps_the_values_of_its_section(self, page: Page):
        assert fill(SELLER, page) == {"seller": {"tax_id": None}}

    def test_keeps_values_that_a_nested_object_would_have(self):
        schema = record(seller=record(address=record(street=TEXT)))
        assert fill(schema, lines("Buyer: A Ltd", "Street: High")) == {"seller": {"address": {"street": None}}}
        assert fill(schema, lines("Street: High")) == {"seller": {"address": {"street": "High"}}}

    def test_has_its_section_beside_that_of_another(self):
        page = boxed([("Buyer", 50), ("Seller", 300)], [("Tax ID: 1", 50), ("Tax ID: 2", 300)])
        assert fill(SELLER, page) == {"seller": {"tax_id": "2"}}

    def test_may_be_a_synonym_of_one_that_it_names(self):
        assert fill(SELLER, lines("Vendor: B Ltd", "Tax ID: 2")) == {"seller": {"tax_id": "2"}}

    def test_does_not_affect_values_of_no_party(self):
        schema = record(totals=record(total=NUMBER), no=TEXT)
        assert fill(schema, lines("Buyer: A Ltd", "Total: 5", "No.: 7")) == {"totals": {"total": 5}, "no": "7"}

    def test_does_not_affect_values_with_the_name_of_their_party(self):
        assert fill(SELLER, lines("Buyer: A Ltd", "Seller tax ID: 2")) == {"seller": {"tax_id": "2"}}

    def test_has_no_section_after_the_items(self):
        schema = record(**SELLER["properties"], items=array(item=TEXT, amount=NUMBER))
        table = "| Item | Amount |\n|---|---|\n| Apple | 3 |"
        assert fill(schema, *written(f"Buyer: A Ltd\n\n{table}\n\nTax ID: 2"))["seller"] == {"tax_id": "2"}

    def test_opens_no_section_in_an_object_that_has_it_as_a_field(self):
        schema = record(supplier=record(client=TEXT, tax_id=TEXT))
        page = lines("Supplier", "Client: Bob", "Tax ID: 2")
        assert fill(schema, page) == {"supplier": {"client": "Bob", "tax_id": "2"}}


class TestTwoPartiesOfTheSchema:
    @pytest.mark.parametrize(
        "page",
        [
            lines("Buyer: A Ltd", "Tax ID: 1", "Seller: B Ltd", "Tax ID: 2"),
            tabled(("Buyer: A Ltd", "Seller: B Ltd"), ("Tax ID: 1", "Tax ID: 2")),
        ],
    )
    def test_have_their_own_values_after_their_names(self, page: Page):
        assert fill(BOTH, page) == {"buyer": {"tax_id": "1"}, "seller": {"tax_id": "2"}}

    @pytest.mark.parametrize("line", ["Buyer: A Ltd   Seller: B Ltd", "Buyer: A Ltd Seller: B Ltd"])
    def test_in_one_line_make_the_next_line_ambiguous(self, line: str):
        assert fill(BOTH, lines(line, "Tax ID: 1")) == {"buyer": {"tax_id": None}, "seller": {"tax_id": None}}

    def test_do_not_share_a_field_that_only_one_has(self):
        name, bank = {**TEXT, "title": "名称"}, {**TEXT, "title": "开户行"}
        schema = record(buyer=titled("购买方", name=name), seller=titled("销售方", name=name, bank=bank))
        page = lines("购买方", "名称：甲公司", "开户行：招行", "销售方", "名称：乙公司")
        assert fill(schema, page) == {"buyer": {"name": "甲公司"}, "seller": {"name": "乙公司", "bank": None}}

    def test_of_any_name_are_told_apart_by_common_fields(self):
        schema = record(first=record(name=TEXT), second=record(name=TEXT, code=TEXT))
        page = lines("First", "Name: Ann", "Code: 5", "Second", "Name: Bob")
        assert fill(schema, page) == {"first": {"name": "Ann"}, "second": {"name": "Bob", "code": None}}

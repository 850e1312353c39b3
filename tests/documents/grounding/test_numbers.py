"""Numbers are found by value, in every notation."""

import pytest

from tests.documents.extract.fields.fill import boxed, lines, tabled
from tests.documents.grounding.ground import citation, ground, is_grounded


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.5, "Total 1,234.50"),
        (1234.5, "Summe 1.234,50 €"),
        (1234.5, "1234.5"),
        (1234567, "1 234 567 pieces"),
        (-12, "Balance (12.00)"),
        (-12, "Saldo 12,00-"),
        (-12, "Change -12.00 EUR"),
        (12, "VAT 12 %"),
        (0.12, "VAT 12 %"),
        (1200, "¥1,200"),
        (1200, "金额：￥１，２００．００"),
        (1200, "共计一千二百元"),
        (1356, "壹仟叁佰伍拾陆圆整"),
        (1356.89, "壹仟叁佰伍拾陆圆捌角玖分"),
        (1356.8, "（大写）壹仟叁佰伍拾陆元捌角整"),
        (100.05, "一百元零五分"),
        (0.13, "税率：百分之十三"),
        (0.05, "百分之五"),
        (2, "数量：两台"),
        (12000, "1.2万"),
        (12000000, "1.2千万"),
        (3200000, "a budget of 3.2 million dollars"),
        (30000000, "a grant of Rs. 3 crore"),
        (1500000, "Umsatz 1,5 Mio. €"),
        (12, "a term of twelve months"),
        (1.25, "weighs 1,250 kg"),
        (1250, "weighs 1,250 kg"),
        (12345678, "Account 1234 5678"),
        (10, "Discount: -10.00"),
    ],
)
def test_a_number_is_found_in_every_notation(value: float, text: str):
    assert is_grounded(value, text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1243.5, "Total 1,234.50"),
        (12.5, "Total 1,250"),
        (1250, "Total 12.50"),
        (12, "Balance -12.00"),
        (-12, "Total 12.00"),
        (0.12, "12 pieces"),
        (100, "l00 pieces of IO0"),
        (3, "三十天"),
        (17, "Invoice INV-2026-17"),
        (12, "on 12 March 2026"),
        (30, "at 14:30"),
        (3, "3. Termination"),
        (3, "第三条"),
        (56.89, "壹仟叁佰伍拾陆圆捌角玖分"),
        (1356.8, "壹仟叁佰伍拾陆圆捌角玖分"),
        (0.1, "百分之十三"),
        (1, "one of them"),
        (True, "1"),
        (1e300, "1"),
    ],
)
def test_a_number_that_is_not_there_is_not_found(value: float, text: str):
    assert not is_grounded(value, text)


def test_a_number_inside_an_identifier_is_found_next_to_its_label():
    assert ground({"invoice_year": 26}, lines("Invoice year: A-26")).citations[0].grounded


def test_a_list_number_is_no_value_except_in_a_cell():
    assert not ground({"it": 3}, lines("3. Kündigung")).citations[0].grounded
    assert ground({"it": 3}, tabled(["Etage", "3. OG"])).citations[0].grounded


def test_the_citation_of_a_number_has_its_box_and_text():
    found = ground(
        {"total": 1576.75}, boxed([("Net", 50.0), ("1,325.00", 300.0)], [("Total", 50.0), ("1,576.75", 300.0)])
    )
    assert citation(found, "/total").box == (300.0, 115.0, 348.0, 125.0)
    assert citation(found, "/total").text == "1,576.75"


def test_of_several_the_one_near_a_word_of_its_name_is_cited():
    found = ground({"votes_against": 2}, lines("Room 2", "approved with two votes against"))
    assert citation(found, "/votes_against").text == "two"

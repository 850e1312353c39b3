"""An unambiguous magnitude after a number multiplies it; an ambiguous one makes it unreadable."""

import pytest

from penstock.documents.extract.fields.numbers import readings
from tests.documents.extract.fields.fill import (
    INTEGER,
    NUMBER,
    TEXT,
    array,
    citation,
    fill,
    find,
    lines,
    one,
    record,
    tabled,
)

ENGLISH = [
    ("1.2 million", 1_200_000),
    ("3 thousand", 3000),
    ("3 hundred", 300),
    ("2 bn", 2_000_000_000),
    ("1.2 billion", 1_200_000_000),
    ("4 trillion", 4_000_000_000_000),
    ("7.5 mn", 7_500_000),
    ("3 Lakh", 300_000),
    ("1.2 Crore", 12_000_000),
    ("1,234 million", 1_234_000_000),
    ("USD 5 million", 5_000_000),
    ("1.2 million USD", 1_200_000),
    ("5 million people", 5_000_000),
    ("3k", 3000),
    ("5k units", 5000),
    ("USD 5 K", 5000),
    ("$1.2M", 1_200_000),
    ("£5m", 5_000_000),
    ("$5MM", 5_000_000),
    ("$1.2B", 1_200_000_000),
    ("5 MUSD", 5_000_000),
    ("(1.2 million)", -1_200_000),
    ("-5 bn", -5_000_000_000),
]
GERMAN = [
    ("1,5 Mio.", 1_500_000),
    ("1,5 Mio. €", 1_500_000),
    ("1.234,5 Mio. EUR", 1_234_500_000),
    ("2,25 Mrd. EUR", 2_250_000_000),
    ("3 Milliarden", 3_000_000_000),
    ("2 Billionen", 2_000_000_000_000),
    ("12 Tsd.", 12_000),
    ("5 TEUR", 5000),
    ("5 T€", 5000),
    ("5 k€", 5000),
    ("2,5 M€", 2_500_000),
]
CHINESE = [
    ("5千元", 5000),
    ("3百", 300),
    ("3百万元", 3_000_000),
    ("1.2千万", 12_000_000),
    ("人民币5千万元整", 50_000_000),
    ("3十亿", 3_000_000_000),
    ("3.5 亿元", 350_000_000),
    ("1.2万亿元", 1_200_000_000_000),
    ("5仟元整", 5000),
    ("3.5億円", 350_000_000),
    ("5K元", 5000),
    ("5万千瓦", 50_000),
]
AMBIGUOUS_MAGNITUDES = [
    *("5m", "5 M", "5 MM", "20 k", "1.29 B", "5 T", "5 tn", "5 m people"),  # metres, kelvin, bytes, tax codes, tesla
    *("€ 1.29 B", "$1.2T", "₹5L", "T€ 5", "K€ 5", "5 USDm"),
    *("5 dozen", "5打", "5 KPCS", "5 grand", "5 mil", "5 млн", "5만원", "5兆"),
    *("5 thousandths", "5 millionaires", "5 hundred thousand", "2 million k"),
    *("1,234 Mio.", "1.234 TEUR", "1,234 milliards"),  # a comma that is decimal, a point that groups
    *("5个亿", "10多万元", "2万能胶", "3万5千", "1万2000"),
]
AMBIGUOUS_SIGNS = [
    "120 overdrawn",
    "120 CR",
    "120 DR",
    "₹ 120 Cr",
    "5 below",
    "120,00 S",
    "120,00 H",
    "120借",
    "120透支",
]
UNITS = [
    *("5 kg", "5 mm", "5 t", "5 L", "5 kWh", "5 KITS", "5 BAGS", "5 EURO", "5 pairs", "5 A"),
    *("HK$ 5", "NT$ 5", "5千克", "5千米", "5兆瓦", "5千斤顶", "5百叶窗", "5个百分点"),
]


def test_an_unambiguous_magnitude_multiplies():
    for text, number in (*ENGLISH, *GERMAN, *CHINESE):
        assert (one(NUMBER, text), one(INTEGER, text)) == (number, number), text


def test_an_ambiguous_magnitude_or_sign_leaves_no_number():
    for text in (*AMBIGUOUS_MAGNITUDES, *AMBIGUOUS_SIGNS):
        assert one(NUMBER, text) is None, text


def test_a_unit_does_not_change_the_number():
    for text in UNITS:
        assert one(NUMBER, text) == 5, text


@pytest.mark.parametrize(
    ("text", "number"), [("1.1 million", 1_100_000), ("2.3 thousand", 2300), ("0.29 million", 290_000)]
)
def test_a_product_is_exact_and_an_integer_where_possible(text: str, number: int):
    (read,) = readings(text)
    assert read == number
    assert isinstance(read, int)


def test_a_product_that_is_not_an_integer_has_the_digits_of_its_number():
    assert list(readings("1.2345678901234 thousand")) == [1234.5678901234]


def test_a_field_has_the_product_and_the_citation_of_the_whole_text():
    found = find(record(total=NUMBER), lines("Total: 5 million"))
    assert found.value == {"total": 5_000_000}
    assert citation(found, "/total").text == "5 million"


def test_an_ambiguous_field_is_null_and_not_cited():
    found = find(record(length=NUMBER, balance=NUMBER), lines("Length: 5 m", "Balance: 120 CR"))
    assert found.value == {"length": None, "balance": None}
    assert found.citations == ()


def test_a_text_field_keeps_the_text_as_printed():
    assert one({"type": ["number", "string"]}, "5 m") == "5 m"


def test_the_cells_of_a_table_are_read_the_same_way():
    schema = record(lines=array(item=TEXT, amount=NUMBER))
    table = tabled(
        ["Item", "Amount"], ["A", "1.2 million"], ["B", "3k"], ["C", "1,5 Mio. €"], ["D", "3百万元"], ["E", "5 m"]
    )
    assert [line["amount"] for line in fill(schema, table)["lines"]] == [1_200_000, 3000, 1_500_000, 3_000_000, None]

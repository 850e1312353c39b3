"""Key-value pairs in lines of text, in English and Chinese."""

import pytest

from tests.documents.extract.fields.fill import (
    BOOLEAN,
    DATE,
    NUMBER,
    TEXT,
    boxed,
    citation,
    fill,
    find,
    lines,
    record,
    written,
)

INVOICE = record(invoice_number=TEXT, date=DATE, total=NUMBER)


class TestALabel:
    @pytest.mark.parametrize(
        "label",
        [
            "Invoice Number",
            "invoice number",
            "INVOICE_NUMBER",
            "InvoiceNumber",
            "Invoice No.",
            "InvoiceNo.",
            "Invoice #",
            "Invoice No",
            "Number of the invoice",
            "lnvoice N0",
            "Invoice  Ｎｏ．",
            "**Invoice No.**",
            "Invoice No. (original)",
            "发票号码 / Invoice No.",
            "发票号码 Invoice No.",
        ],
    )
    def test_is_the_same_however_it_is_printed(self, label: str):
        assert fill(INVOICE, lines(f"{label}: A-17"))["invoice_number"] == "A-17"

    @pytest.mark.parametrize("name", ["invoice_number", "invoiceNumber", "InvoiceNumber", "invoice-no", "INVOICE NO"])
    def test_is_the_same_however_the_schema_spells_it(self, name: str):
        assert fill(record(**{name: TEXT}), lines("Invoice No.: A-17")) == {name: "A-17"}

    def test_of_other_words_is_another(self):
        assert fill(INVOICE, lines("Order No.: A-17", "Invoice: A-18", "Invoice number plate: A-19")) == {
            "invoice_number": None,
            "date": None,
            "total": None,
        }

    @pytest.mark.parametrize(
        "hints",
        [
            {"title": "Reference"},
            {"title": "Kennung / Reference"},
            {"title": "Kennung (reference)"},
            {"x-labels": ["Kennung", "Reference"]},
            {"description": "Reference, as printed at the top"},
            {"description": 'What stands after "Reference".'},
            {"description": "Kennung; Reference"},
        ],
    )
    def test_may_come_from_the_title_or_description_of_the_property(self, hints: dict[str, object]):
        assert fill(record(x={"type": "string", **hints}), lines("Ref.: 12")) == {"x": "12"}

    def test_is_not_a_word_out_of_a_description(self):
        total = {"type": "number", "description": "The total amount including tax of the order"}
        assert fill(record(x=total), lines("Tax: 5", "Order: 6", "Amount: 7")) == {"x": None}

    def test_with_the_best_rank_wins(self):
        total = {"type": "number", "x-labels": ["Total"], "title": "Sum"}
        assert fill(record(total=total), lines("Sum: 1", "Total: 2")) == {"total": 2}

    def test_that_is_listed_first_wins_over_those_after_it(self):
        due = {"type": "number", "x-labels": ["Amount due", "Total"], "title": "Sum"}
        page = lines("Sum: 1", "Total: 2", "Amount due: 3")
        assert fill(record(due=due), page) == {"due": 3}
        assert fill(record(due=due), lines("Sum: 1", "Total: 2")) == {"due": 2}
        assert fill(record(due=due), lines("Sum: 1", "Due: 4")) == {"due": 1}


class TestALine:
    @pytest.mark.parametrize(
        "line",
        [
            "Total: 12.50",
            "Total：12.50",
            "Total :12.50",
            "Total:12.50",
            "Total 12.50",
            "Total      12.50",
            "Total\t12.50",
            "Total ........... 12.50",
            "Total…… 12.50",
            "- Total: 12.50",
            "3. Total: 12.50",
            "**Total:** 12.50",
        ],
    )
    def test_has_a_label_and_a_value(self, line: str):
        assert fill(INVOICE, lines(line))["total"] == 12.5

    @pytest.mark.parametrize(
        "line",
        [
            "Invoice No.: A-17 Date: 2026-01-05 Total: 9",
            "Invoice No.:A-17   Date:2026-01-05   Total:9",
            "Invoice No.: A-17; Date: 5 January 2026; Total: 9.00",
            "Invoice No.   A-17      Date   2026-01-05     Total   9",
        ],
    )
    def test_may_have_several_pairs(self, line: str):
        assert fill(INVOICE, lines(line)) == {"invoice_number": "A-17", "date": "2026-01-05", "total": 9}

    def test_ends_a_value_before_a_common_label_that_is_not_in_the_schema(self):
        assert fill(record(name=TEXT), lines("Name: Bob Smith Tel: 123")) == {"name": "Bob Smith"}
        assert fill(record(date=DATE), lines("Date: 2026-01-05 Shipped: 2026-02-01")) == {"date": "2026-01-05"}

    def test_keeps_colons_that_belong_to_the_value(self):
        schema = record(note=TEXT, link={"type": "string", "format": "uri"})
        page = lines("Note: see section A: it is good", "Link: https://example.com/a:b")
        assert fill(schema, page) == {"note": "see section A: it is good", "link": "https://example.com/a:b"}

    @pytest.mark.parametrize(
        "line",
        [
            "Name of the game is chess",
            "Name Bob",
            "The total: is not here",
            "Total: see page 4",
            "Total: n/a",
            "Total 12 months",
        ],
    )
    def test_of_prose_has_no_value(self, line: str):
        assert fill(record(name=TEXT, total=NUMBER), lines(line)) == {"name": None, "total": None}

    @pytest.mark.parametrize(
        "line",
        [
            "Due date: 2026-01-05",
            "Expected delivery date: 2026-01-05",
            "City: Bonn Due Date: 2026-01-05",
            "City: Bonn Estimated Date: 2026-01-05",
            "City: Bonn estimated date: 2026-01-05",
            "Place of the date: 2026-01-05",
            "1. Due date: 2026-01-05",
            "Terms; due date: 2026-01-05",
            "Delivery - Date: 2026-01-05",
        ],
    )
    def test_with_a_longer_label_is_not_the_value_of_the_shorter(self, line: str):
        assert fill(record(date=DATE), lines(line)) == {"date": None}

    @pytest.mark.parametrize("weak", [{"pattern": "[0-9]"}, {"format": "hostname"}, {"format": "colour"}])
    def test_without_a_separator_is_not_read_as_free_text(self, weak: dict[str, str]):
        schema = record(order={"type": "string", **weak})
        assert fill(schema, lines("Order now and get 5 percent")) == {"order": None}
        assert fill(schema, lines("Order: now5")) == {"order": "now5"}

    def test_that_is_a_label_alone_is_followed_by_its_value(self):
        assert fill(INVOICE, lines("Invoice No.:", "A-17", "Total", "12")) == {
            "invoice_number": "A-17",
            "date": None,
            "total": 12,
        }

    def test_that_is_a_label_alone_does_not_make_prose_its_value(self):
        contents = written("Summary\n\nConclusion\n\nIndex")
        assert fill(record(summary=TEXT), *contents) == {"summary": None}
        assert fill(record(summary=TEXT), *written("## Summary\n\nIt rained.")) == {"summary": "It rained."}

    def test_with_a_label_of_its_own_is_not_the_value_of_the_one_before(self):
        assert fill(INVOICE, lines("Invoice No.:", "Ship by: boat"))["invoice_number"] is None

    def test_of_a_checkbox_is_a_boolean(self):
        schema = record(paid=BOOLEAN, shipped=BOOLEAN, gift=BOOLEAN)
        assert fill(schema, lines("☑ Paid ☐ Shipped", "- [x] Gift")) == {"paid": True, "shipped": False, "gift": True}
        assert fill(schema, lines("● Paid")) == {"paid": None, "shipped": None, "gift": None}


class TestChinese:
    SCHEMA = record(
        number={"type": "string", "title": "发票号码"},
        date={"type": "string", "format": "date", "title": "开票日期"},
        total={"type": "number", "title": "价税合计"},
    )

    @pytest.mark.parametrize(
        "page",
        [
            lines("发票号码：12345678", "开票日期：2026年01月05日", "价税合计：¥1,356.00"),
            lines("发票号码:12345678 开票日期:2026年1月5日 价税合计:￥1，356.00"),
            lines("发票号码：１２３４５６７８开票日期：２０２６年１月５日价税合计：１３５６元"),
            lines("发票代码：0440 发票号码：12345678 校验码：99", "开 票 日 期：2026-01-05", "价税合计 1356.00元"),
            lines("发票号：12345678", "开票日期 2026年1月5日", "价税合计（小写）：¥1356.00"),
            boxed(
                [("发票号码", 50), ("12345678", 200)],
                [("开票日期", 50), ("2026/1/5", 200)],
                [("价税合计：", 50), ("1356", 200)],
            ),
        ],
    )
    def test_is_read_as_english_is(self, page: object):
        assert fill(self.SCHEMA, page) == {"number": "12345678", "date": "2026-01-05", "total": 1356}  # type: ignore[arg-type]  # a parameter of pytest

    @pytest.mark.parametrize(
        "line",
        [
            "合同签订日期：2026-01-05",
            "编号：5合同日期：2026-01-05",
            "名称：甲公司预计日期：2026-01-05",
            "到期日期 2026-01-05",
        ],
    )
    def test_longer_label_is_not_the_shorter_one(self, line: str):
        assert fill(record(date={**DATE, "title": "日期"}), lines(line)) == {"date": None}

    def test_label_may_be_in_brackets_before_its_value(self):
        schema = record(total={"type": "number", "x-labels": ["小写"]})
        assert fill(schema, lines("价税合计（大写）壹仟圆整（小写）：¥1,000.00")) == {"total": 1000}
        assert fill(schema, lines("（小写）¥1,000.00")) == {"total": 1000}

    def test_value_ends_before_a_common_label(self):
        schema = record(name={"type": "string", "title": "名称"})
        assert fill(schema, lines("名称：上海某某公司纳税人识别号：9131")) == {"name": "上海某某公司"}


class TestTwoValues:
    def test_that_differ_are_dropped_and_reported_as_ambiguous(self):
        found = find(INVOICE, lines("Date: 2026-01-05", "Date: 2026-01-06", "Total: 4"))
        assert found.value == {"invoice_number": None, "date": None, "total": 4}
        assert found.ambiguous == ("/date",)
        assert [citation.pointer for citation in found.citations] == ["/total"]

    def test_on_different_pages_differ_too(self):
        found = find(INVOICE, lines("Total: 4"), lines("Total: 5", number=2))
        assert (found.value["total"], found.ambiguous) == (None, ("/total",))

    def test_that_are_equal_are_cited_at_the_first_one(self):
        found = find(INVOICE, lines("Total: 4.00"), lines("Total: 4", number=2))
        assert (found.value["total"], found.ambiguous) == (4, ())
        assert citation(found, "/total").page == 1

    def test_of_different_rank_do_not_compete(self):
        date = {"type": "string", "format": "date", "title": "Invoice date"}
        found = find(record(date=date), lines("Date: 2026-01-06", "Invoice date: 2026-01-05"))
        assert (found.value, found.ambiguous) == ({"date": "2026-01-05"}, ())

    def test_of_which_one_is_invalid_are_one(self):
        found = find(INVOICE, lines("Total: see below", "Total: 5"))
        assert (found.value["total"], found.ambiguous) == (5, ())


class TestACitation:
    def test_exists_only_for_values_that_were_found(self):
        page = boxed([("Invoice No.: A-17", 50)], [("Total", 50), ("EUR 9,00", 300)])
        found = find(INVOICE, page)
        assert {
            citation.pointer: (citation.text, citation.page, citation.grounded) for citation in found.citations
        } == {
            "/invoice_number": ("A-17", 1, True),
            "/total": ("EUR 9,00", 1, True),
        }
        assert citation(found, "/invoice_number").box == page.spans[0].box
        assert citation(found, "/total").box == page.spans[2].box

    def test_has_the_original_text(self):
        found = find(INVOICE, lines("Date： ２０２６年１月５日"))
        assert (found.value["date"], citation(found, "/date").text) == ("2026-01-05", "２０２６年１月５日")

    def test_escapes_names_in_its_pointer(self):
        found = find(record(**{"a/b": TEXT, "c~d": TEXT}), lines("a b: 1", "c d: 2"))
        assert [citation.pointer for citation in found.citations] == ["/a~1b", "/c~0d"]


class TestARateAfterALabel:
    @pytest.mark.parametrize(
        "line", ["VAT 19% 251.75", "VAT @ 19% 251.75", "VAT (19%) 251.75", "VAT 19%: 251.75", "VAT   19%   251.75"]
    )
    def test_is_not_its_value(self, line: str):
        assert fill(record(vat=NUMBER), lines(line)) == {"vat": 251.75}

    def test_alone_is_not_a_value(self):
        assert fill(record(vat=NUMBER), lines("VAT 19%")) == {"vat": None}

    def test_is_its_value_when_it_is_the_label_of_a_rate(self):
        assert fill(record(vat_rate=NUMBER), lines("VAT rate 19%")) == {"vat_rate": 19}


class TestALabelAfterASentence:
    def test_counts(self):
        page = lines("Payment within 30 days. IBAN: DE89 3704 0044 0532 0130 00")
        assert fill(record(iban=TEXT), page) == {"iban": "DE89 3704 0044 0532 0130 00"}

    @pytest.mark.parametrize("line", ["Tel. No.: 77", "Please quote our cust. No.: 77", "Give us your Inv. No.: 77"])
    def test_is_not_one_after_an_abbreviation(self, line: str):
        assert fill(record(no=TEXT), lines(line)) == {"no": None}


class TestABracketAfterALabel:
    @pytest.mark.parametrize("line", ["VAT (20%)", "VAT（20%）", "VAT   (20%)", "VAT (65.38)", "VAT (2 kg)"])
    def test_is_part_of_the_label_and_not_a_value(self, line: str):
        assert fill(record(vat=NUMBER), lines(line)) == {"vat": None}

    @pytest.mark.parametrize("label", ["VAT (20%)", "VAT (domestic)", "VAT（2 kg）"])
    def test_leaves_the_value_to_what_follows(self, label: str):
        assert fill(record(vat=NUMBER), lines(label, "£65.38")) == {"vat": 65.38}

    def test_with_a_magnitude_makes_the_value_ambiguous(self):
        assert fill(record(total=NUMBER), lines("Total (in thousands)", "45")) == {"total": None}

    def test_after_a_colon_is_negative(self):
        assert fill(record(vat=NUMBER), lines("VAT: (65.38)")) == {"vat": -65.38}


def test_a_value_ends_before_a_next_label_in_brackets():
    schema = record(amount={"type": "number", "title": "合同总金额"})
    found = find(schema, lines("合同总金额：人民币8,900.00元（大写：捌仟玖佰元整）。"))
    assert (found.value, citation(found, "/amount").text) == ({"amount": 8900}, "人民币8,900.00元")

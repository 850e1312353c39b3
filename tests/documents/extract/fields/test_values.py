"""Text is parsed into a value that satisfies its schema, or into none."""

from typing import Any

import pytest

from tests.documents.extract.fields.fill import (
    BOOLEAN,
    DATE,
    INTEGER,
    NUMBER,
    TEXT,
    citation,
    fill,
    find,
    lines,
    one,
    record,
)

UUID = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"


class TestANumber:
    @pytest.mark.parametrize(
        ("text", "number"),
        [
            ("12", 12),
            ("1,234.50", 1234.5),
            ("1.234,50", 1234.5),
            ("1 234,50", 1234.5),
            ("1\u00a0234,50 €", 1234.5),
            ("1'234.50", 1234.5),
            ("12,34,567.00", 1234567),
            ("1,234", 1234),
            ("1,234,567", 1234567),
            ("1.234.567", 1234567),
            ("0,5", 0.5),
            (".5", 0.5),
            ("¥ 1,200", 1200),
            ("￥１，２００．５０", 1200.5),
            ("1200元", 1200),
            ("人民币1200元整", 1200),
            ("US$ 3.10", 3.1),
            ("USD 3.10", 3.1),
            ("3.10 EUR", 3.1),
            ("13%", 13),
            ("-7", -7),
            ("−7", -7),
            ("(7.50)", -7.5),
            ("7.50-", -7.5),
            ("$-7", -7),
            ("1.2万", 12000),
            ("3亿", 300000000),
            ("12 pcs", 12),
            ("3个", 3),
            ("**55**", 55),
        ],
    )
    def test_is_read_as_it_is_printed(self, text: str, number: float):
        assert one(NUMBER, text) == number

    @pytest.mark.parametrize(
        "text",
        [
            "twelve",
            "12 of 13",
            "1,23,4",
            "12/13",
            "1-2",
            "INV-12",
            "12abc34",
            "(7",
            "--7",
            "1.2.3",
            "9" * 30,
            "1e5",
            "",
        ],
    )
    def test_is_not_read_from_text_that_is_not_just_a_number(self, text: str):
        assert one(NUMBER, text) is None

    def test_of_percent_is_a_fraction_where_the_schema_allows_at_most_one(self):
        assert one({"type": "number", "maximum": 1}, "13%") == 0.13

    @pytest.mark.parametrize("most", [{"maximum": 1}, {"exclusiveMaximum": 1}, {"maximum": 0.5}])
    def test_of_percent_is_then_only_a_fraction(self, most: dict[str, float]):
        part = {"type": "number", **most}
        assert [one(part, text) for text in ("-7.5%", "0.5%", "1%", "5.6%", "250%")] == [
            -0.075,
            0.005,
            0.01,
            0.056,
            None,
        ]

    def test_of_percent_is_no_fraction_where_the_schema_allows_more(self):
        assert one({"type": "number", "maximum": 100}, "250%") is None

    def test_of_percent_in_brackets_may_be_a_remark(self):
        assert (one(NUMBER, "(20%)"), one({"type": "number", "maximum": 1}, "(20%)")) == (None, None)

    @pytest.mark.parametrize(
        ("text", "number"),
        [
            ("EUR 184,500.00 (excl. VAT)", 184500),
            ("EUR 184,500.00 per year", 184500),
            ("￥8,900.00（含税）", 8900),
            ("8,900.00元。", 8900),
            ("1,284.5 kg (net)", 1284.5),
            ("20 °C", 20),
            ("-5℃", -5),
            ("0,125", 0.125),
        ],
    )
    def test_may_be_followed_by_text_that_does_not_change_it(self, text: str, number: float):
        assert one(NUMBER, text) == number

    @pytest.mark.parametrize(
        "text",
        [
            "120 (CR)",
            "120 (loss)",
            "5 (million)",
            "5（万元）",
            "5 per cent",
            "5 per 100",
            "12 + VAT",
            "5 (6)",
            "5（大写负伍）",
        ],
    )
    def test_is_not_read_where_the_text_after_it_may_change_it(self, text: str):
        assert one(NUMBER, text) is None

    def test_that_is_an_integer_may_be_grouped_by_points(self):
        assert (one(NUMBER, "1.234"), one(INTEGER, "1.234"), one(INTEGER, "1.5"), one(INTEGER, "2.0")) == (
            1.234,
            1234,
            None,
            2,
        )

    def test_must_be_within_its_bounds(self):
        assert one({"type": "integer", "minimum": 10}, "9") is None
        assert one({"type": "integer", "multipleOf": 5}, "10") == 10


class TestADate:
    @pytest.mark.parametrize(
        "text",
        [
            "2026-01-05",
            "2026/1/5",
            "2026.01.05",
            "20260105",
            "2026年1月5日",
            "２０２６年０１月０５日",
            "2026 年 1 月 5 日",
            "5 January 2026",
            "5th Jan. 2026",
            "January 5, 2026",
            "Jan 5 2026",
            "05-Jan-2026",
            "Monday, 5 January 2026",
            "2026年1月5日 星期一",
            "05.01.2026",
            "2026-01-05 18:42",
            "05.01.2026, 18:42:10",
            "2026-01-05T23:30:00Z",
            "05 JAN 2026 10:22",
            "5. Januar 2026",
            "5 janvier 2026",
            "二〇二六年一月五日",
        ],
    )
    def test_is_read_as_it_is_printed(self, text: str):
        assert one(DATE, text) == "2026-01-05"

    def test_in_numbers_is_read_where_day_and_month_can_be_told_apart(self):
        assert (one(DATE, "13/01/2026"), one(DATE, "01/13/2026"), one(DATE, "4/4/2026")) == (
            "2026-01-13",
            "2026-01-13",
            "2026-04-04",
        )
        assert one(DATE, "03/04/2026") is None

    @pytest.mark.parametrize(
        ("text", "day"),
        [
            ("3. März 2026", "2026-03-03"),
            ("3 mars 2026", "2026-03-03"),
            ("1er août 2026", "2026-08-01"),
            ("31. Dez. 2026", "2026-12-31"),
            ("二〇二六年三月三日", "2026-03-03"),
            ("二〇二六年十二月三十一日", "2026-12-31"),
            ("二零二六年十月二十日", "2026-10-20"),
            ("二〇二六年十三月三日", None),
            ("二〇二六年三月十十日", None),
            ("2026-01-05 25:61", None),
        ],
    )
    def test_may_be_in_words(self, text: str, day: str | None):
        assert one(DATE, text) == day

    @pytest.mark.parametrize("text", ["2026-02-30", "5 Jan 26", "soon", "2026-01-05 or so", "1/2", "2026"])
    def test_is_not_guessed(self, text: str):
        assert one(DATE, text) is None

    @pytest.mark.parametrize(
        ("text", "moment"),
        [
            ("2026-01-05T10:30:00Z", "2026-01-05T10:30:00Z"),
            ("2026-01-05 10:30 UTC", "2026-01-05T10:30:00Z"),
            ("5 Jan 2026 10:30:15 pm +0800", "2026-01-05T22:30:15+08:00"),
            ("2026年1月5日 10:30 +08:00", "2026-01-05T10:30:00+08:00"),
            ("2026-01-05 10:30", None),  # which zone?
            ("2026-01-05", None),
            ("2026-01-05 25:00Z", None),
        ],
    )
    def test_with_a_time_needs_a_zone(self, text: str, moment: str | None):
        assert one({"type": "string", "format": "date-time"}, text) == moment

    def test_may_be_a_time_of_day(self):
        time = {"type": "string", "format": "time"}
        assert (one(time, "9:05 pm Z"), one(time, "12:00 am UTC"), one(time, "9:05")) == (
            "21:05:00Z",
            "00:00:00Z",
            None,
        )


class TestABoolean:
    @pytest.mark.parametrize(
        ("text", "truth"),
        [
            *(
                (text, True)
                for text in ("yes", "Yes", "Y", "TRUE", "是", "有", "✓", "☑", "[x]", "☑ Yes ☐ No", "■是 □否")
            ),
            *((text, False) for text in ("no", "No", "N", "false", "否", "无", "☐", "[ ]", "☐ Yes ☑ No", "□是 ■否")),
            *((text, None) for text in ("perhaps", "yes and no", "☑ Yes ☑ No", "☐ Yes ☐ No", "1", "-")),
        ],
    )
    def test_is_read_as_it_is_printed(self, text: str, truth: bool | None):
        assert one(BOOLEAN, text) is truth


class TestAFormat:
    @pytest.mark.parametrize(
        ("name", "text", "value"),
        [
            ("email", "bob@example.com", "bob@example.com"),
            ("email", "Bob <bob@example.com>, at work", "bob@example.com"),
            ("email", "a@example.com, b@example.com", None),
            ("email", "bob at example.com", None),
            ("uri", "see https://example.com/x.", "https://example.com/x"),
            ("uri", "example", None),
            ("uuid", f"{{{UUID}}}"[1:-1], UUID),
            ("uuid", "3f2504e0", None),
            ("ipv4", "host 10.0.0.1", "10.0.0.1"),
            ("ipv4", "10.0.0.256", None),
            ("ipv6", "::1", "::1"),
            ("hostname", "mail.example.com", "mail.example.com"),
        ],
    )
    def test_is_found_in_the_text_where_only_one_part_has_it(self, name: str, text: str, value: str | None):
        assert one({"type": "string", "format": name}, text) == value

    def test_that_is_unknown_accepts_the_text(self):
        assert one({"type": "string", "format": "colour"}, "red") == "red"


class TestAChoice:
    @pytest.mark.parametrize(
        ("text", "value"),
        [("usd", "USD"), ("ＥＵＲ", "EUR"), ("Per-Cent", "per cent"), ("☐ USD ☑ EUR", "EUR"), ("NOT USD", None)],
    )
    def test_is_one_of_its_options(self, text: str, value: str | None):
        assert one({"enum": ["USD", "EUR", "per cent"]}, text) == value

    def test_may_be_of_numbers_and_booleans(self):
        assert one({"enum": [10, 20]}, "20 %") == 20
        assert one({"enum": [True]}, "yes") is True
        assert one({"enum": [True]}, "no") is None

    def test_of_a_constant_is_found_or_not(self):
        assert (one({"const": "Net"}, "net"), one({"const": "Net"}, "gross")) == ("Net", None)


class TestAText:
    @pytest.mark.parametrize("text", ["-", "—", "N/A", "n.a.", "_____", "......", "none", "   "])
    def test_that_means_empty_is_null(self, text: str):
        assert one(TEXT, text) is None

    def test_with_a_pattern_is_the_part_that_matches(self):
        order = {"type": "string", "pattern": "^PO-[0-9]+$"}
        assert one(order, "PO-17") == "PO-17"
        assert one(order, "ＰＯ-１７") == "PO-17"
        assert one(order, "PO-17 (copy)") == "PO-17"
        assert one(order, "PO-17, PO-18") is None
        assert one(order, "17") is None

    def test_must_be_within_its_length(self):
        assert one({"type": "string", "maxLength": 3}, "four") is None
        assert one(TEXT, "x" * 2000) is None

    def test_may_be_one_of_several_types(self):
        assert one({"type": ["number", "string"]}, "12") == 12
        assert one({"type": ["number", "string"]}, "a dozen") == "a dozen"
        assert one({"type": ["number", "null"]}, "a dozen") is None

    def test_may_be_the_first_of_several_schemas_that_fits(self):
        either: dict[str, Any] = {"anyOf": [{"type": "null"}, NUMBER, DATE]}
        assert (one(either, "12"), one(either, "5 Jan 2026"), one(either, "soon")) == (12, "2026-01-05", None)
        only_one: dict[str, Any] = {"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 5}]}
        assert (one(only_one, "3"), one(only_one, "7")) == (3, None)  # 7 matches both branches of oneOf


def test_the_citation_of_a_part_is_that_part():
    found = find(record(mail={"type": "string", "format": "email"}), lines("Mail: Bob <bob@example.com>"))
    assert citation(found, "/mail").text == "bob@example.com"


def test_an_invalid_value_leaves_the_field_to_a_valid_one():
    schema = record(total={"type": "number", "minimum": 0})
    assert fill(schema, lines("Total: -5", "Total: 5")) == {"total": 5}

"""Numbers on a page, compared by value.

All notations of a number share its digits. So the digits, without leading and trailing zeros, are looked up first, and
only a hit is parsed. Sign, percent and words such as "million" are read from the text around it.
"""

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from typing import NamedTuple

from penstock.documents.extract.fields.magnitudes import END, HAN, WORD, multiplier
from penstock.documents.extract.fields.numbers import readings

MAX_AFTER = 12  # characters after a number that may be "million"
MAX_INDENT = 10  # characters before a list number
MAX_PREFIX = 20  # characters before a number without a space
MAX_GROUPS = 5  # of digits separated by spaces

_DIGITS = re.compile(r"\d+(?:[.,'’．]\d+|，\d{3}(?!\d))*")
_THIN = frozenset(" \u00a0\u202f\u2009")
_MONEY = r"(?:[A-Z]{0,3}[$€£¥￥₩₹]|[A-Z]{3}|Rs\.?)"
_SIGN = re.compile(rf"(?P<sign>[-−–(（])(?P<gap>\s?)(?:{_MONEY}\s?)?$")
_MAGNITUDE = re.compile(rf"\s?(?P<magnitude>(?:{WORD}|[KMkm]){END}|{HAN})")  # "m" may mean millions
_PERCENT = (
    (re.compile(r"\s?(?:[%％]|per\s?cent|prozent|pct)", re.IGNORECASE), 100),
    (re.compile(r"\s?‰"), 1000),
)
_DEDUCTION = re.compile(
    r"discount|rabatt|skonto|nachlass|credit|gutschrift|\bless\b|minus|abzug|deduct|refund|loss|withh|"
    r"折扣|优惠|扣|减|退|亏|负",
    re.IGNORECASE,
)
_LIST_ITEM = re.compile(r"(?:[.)]\s|[、）])\s*[^\W\d_]")  # "3. Termination"
_TIME = re.compile(r"\d:$|^:\d")
_LATIN = re.compile(r"[A-Za-z]")


class NumberSpan(NamedTuple):
    """A number in a text: its offsets, and the digits to look it up by."""

    start: int
    end: int
    digits: str


class Amount(NamedTuple):
    """The possible absolute values of a number, and its sign; None where the sign is ambiguous."""

    absolute_values: frozenset[Decimal]
    is_negative: bool | None

    def matches(self, number: Decimal, row: str) -> bool:
        """Whether it may be this number. `row` is the text of its row: after "discount" either sign matches."""
        if abs(number) not in self.absolute_values:
            return False
        return (
            self.is_negative is None
            or number == 0
            or self.is_negative == (number < 0)
            or _DEDUCTION.search(row) is not None
        )


def digits_of(number: Decimal) -> str:
    """The digits by which a number is looked up."""
    return "".join(map(str, number.as_tuple().digits)).strip("0")


def digit_spans(text: str) -> list[tuple[int, int]]:
    """The offsets of digit runs, points and commas between digits included."""
    return [match.span() for match in _DIGITS.finditer(text)]


def number_spans(text: str) -> Iterator[NumberSpan]:
    """The numbers of a text. Digits grouped by spaces count as one number and also separately."""
    found = digit_spans(text)
    for at, (start, end) in enumerate(found):
        yield _number_span(text, start, end)
        for last in _group_ends(text, found[at : at + MAX_GROUPS]):
            yield _number_span(text, start, last)


def _group_ends(text: str, found: list[tuple[int, int]]) -> Iterator[int]:
    (start, end), *after = found
    if end - start > 3:
        return
    for begin, last in after:
        group = text[begin:last]
        if begin - end != 1 or text[end] not in _THIN or len(re.split(r"[.,]", group)[0]) != 3:
            return
        yield last
        end = last


def _number_span(text: str, start: int, end: int) -> NumberSpan:
    digits = "".join(filter(str.isdigit, _normalize(text[start:end]))).strip("0")
    return NumberSpan(start, end, digits)


def is_part_of_identifier(text: str, start: int, end: int) -> bool:
    """Whether a number is part of an identifier, such as an invoice number, or of a time. Letters before it without a
    space, or a leading zero, make it an identifier; a unit after it does not."""
    begin = start
    while begin and not text[begin - 1].isspace() and start - begin < MAX_PREFIX:
        begin -= 1
    before = text[begin:start]
    if _TIME.search(before[-2:]) or _TIME.search(text[end : end + 2]):
        return True
    if before.endswith(("-", "/", "_", ".", "#")) and any(map(str.isalnum, before)):
        return bool(_LATIN.search(before)) or text[start] == "0"
    if before and _LATIN.match(before[-1]) and not re.search(r"(?:^|[^A-Za-z])(?:[A-Z]{3}|x|Rs)$", before):
        return True
    return text[start] == "0" and end - start > 1 and text[start:end].isdigit()


def is_list_number(text: str, start: int, end: int) -> bool:
    """Whether a number is the list number of its line: "3. Termination"."""
    return start <= MAX_INDENT and not text[:start].strip() and _LIST_ITEM.match(text, end) is not None


def amount_of(text: str, span: NumberSpan) -> Amount:
    """Parse a number with the text around it."""
    after = text[span.end : span.end + MAX_AFTER]
    return Amount(frozenset(_absolute_values(text[span.start : span.end], after)), _is_negative(text, span))


def contains_number(text: str, number: Decimal) -> bool:
    """Whether a short text contains this number."""
    return any(amount_of(text, span).matches(number, text) for span in number_spans(text))


def numbers_agree(one: str, other: str) -> bool:
    """Whether the numbers in two texts with equal keys may be equal."""
    first, second = (_DIGITS.findall(text.replace("(0)", "")) for text in (one, other))
    if len(first) != len(second):
        first, second = ["".join(first)], ["".join(second)]
    for one_number, other_number in zip(first, second, strict=True):
        left, right = set(_readings(one_number)), set(_readings(other_number))
        if left and right and not left & right:
            return False
    return True


def _absolute_values(raw: str, after: str) -> Iterator[Decimal]:
    magnitude = _MAGNITUDE.match(after)
    for number in _readings(raw):
        yield number
        if magnitude is not None:
            yield number * multiplier(magnitude["magnitude"])
        yield from (number / factor for pattern, factor in _PERCENT if pattern.match(after))


def _readings(raw: str) -> Iterator[Decimal]:
    plain = _normalize(raw)
    yield from (Decimal(repr(number)) for number in readings(plain))
    whole, comma, part = plain.partition(",")
    if comma and len(part) == 3 and part.isdigit() and whole.isdigit():
        yield Decimal(f"{whole}.{part}")  # a decimal comma with three places, as in "1,250 kg"


def _is_negative(text: str, span: NumberSpan) -> bool | None:
    """Whether a number is negative; None where that is ambiguous: in brackets, after a separate dash."""
    after = text[span.end : span.end + 2]
    if after[:1] in ("-", "−") and not after[1:].strip():
        return True
    begin = max(0, span.start - 10)
    sign = _SIGN.search(text[begin : span.start])
    if sign is None:
        return False
    if sign["sign"] in "(（":
        return None
    at = begin + sign.start()
    if at and text[at - 1].isalnum():  # "4.0-10.0" is a range
        return False
    return None if sign["gap"] and at else True


def _normalize(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text).replace("’", "'")

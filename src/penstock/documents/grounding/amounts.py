"""Numbers on a page, looked up by their value.

All ways to write a number have its digits in common, so these are looked up first, without the zeros at either end;
only where they are wanted is the text read as a number. Its sign, a percent mark and words such as "million" come from
what stands around it.
"""

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from typing import NamedTuple

from penstock.documents.extract.fields.magnitudes import END, HAN, WORD, times_of
from penstock.documents.extract.fields.numbers import readings

MOST_AFTER = 12  # characters after a number that may be "million"
MOST_INDENT = 10  # characters before the number of a clause
MOST_RUN = 20  # characters before a number without a space
MOST_GROUPS = 5  # of a number that is grouped by spaces

_ATOM = re.compile(r"\d+(?:[.,'’．]\d+|，\d{3}(?!\d))*")
_THIN = frozenset(" \u00a0\u202f\u2009")
_MONEY = r"(?:[A-Z]{0,3}[$€£¥￥₩₹]|[A-Z]{3}|Rs\.?)"
_MARK = re.compile(rf"(?P<mark>[-−–(（])(?P<gap>\s?)(?:{_MONEY}\s?)?$")
_SIZE = re.compile(rf"\s?(?P<size>(?:{WORD}|[KMkm]){END}|{HAN})")  # "m" may be millions here: it rules out nothing
_PARTS = (
    (re.compile(r"\s?(?:[%％]|per\s?cent|prozent|pct)", re.IGNORECASE), 100),
    (re.compile(r"\s?‰"), 1000),
)
_LESS = re.compile(
    r"discount|rabatt|skonto|nachlass|credit|gutschrift|\bless\b|minus|abzug|deduct|refund|loss|withh|"
    r"折扣|优惠|扣|减|退|亏|负",
    re.IGNORECASE,
)
_COUNTED = re.compile(r"(?:[.)]\s|[、）])\s*[^\W\d_]")  # "3. Termination"
_OF_TIME = re.compile(r"\d:$|^:\d")
_LATIN = re.compile(r"[A-Za-z]")


class Figure(NamedTuple):
    """Where a number stands in a text, and the digits that it is looked up by."""

    start: int
    end: int
    digits: str


class Amount(NamedTuple):
    """What a figure says: a size, in one or several readings, and whether it is below zero; None where that cannot be
    told."""

    sizes: frozenset[Decimal]
    is_less: bool | None

    def is_of(self, number: Decimal, row: str) -> bool:
        """Whether it is this number; `row` is all that stands in its row, and may say that something is taken off."""
        if abs(number) not in self.sizes:
            return False
        return self.is_less is None or number == 0 or self.is_less == (number < 0) or _LESS.search(row) is not None


def digits_of(number: Decimal) -> str:
    """By which digits a number is looked up."""
    return "".join(map(str, number.as_tuple().digits)).strip("0")


def atoms(text: str) -> list[tuple[int, int]]:
    """Where digits stand, with the points and commas between them."""
    return [atom.span() for atom in _ATOM.finditer(text)]


def figures(text: str) -> Iterator[Figure]:
    """The numbers of a text, those grouped by spaces as a whole and as what they would be without."""
    found = atoms(text)
    for at, (start, end) in enumerate(found):
        yield _figure(text, start, end)
        for last in _ends_of_groups(text, found[at : at + MOST_GROUPS]):
            yield _figure(text, start, last)


def _ends_of_groups(text: str, found: list[tuple[int, int]]) -> Iterator[int]:
    (start, end), *after = found
    if end - start > 3:
        return
    for begin, last in after:
        group = text[begin:last]
        if begin - end != 1 or text[end] not in _THIN or len(re.split(r"[.,]", group)[0]) != 3:
            return
        yield last
        end = last


def _figure(text: str, start: int, end: int) -> Figure:
    digits = "".join(filter(str.isdigit, _plain(text[start:end]))).strip("0")
    return Figure(start, end, digits)


def is_glued(text: str, start: int, end: int) -> bool:
    """Whether a number is a part of a longer mark, such as an invoice's, or of a time. Letters in the same run of a
    text, or a zero in front, make a mark of it; a unit after it does not."""
    begin = start
    while begin and not text[begin - 1].isspace() and start - begin < MOST_RUN:
        begin -= 1
    before = text[begin:start]
    if _OF_TIME.search(before[-2:]) or _OF_TIME.search(text[end : end + 2]):
        return True
    if before.endswith(("-", "/", "_", ".", "#")) and any(map(str.isalnum, before)):
        return bool(_LATIN.search(before)) or text[start] == "0"
    if before and _LATIN.match(before[-1]) and not re.search(r"(?:^|[^A-Za-z])(?:[A-Z]{3}|x|Rs)$", before):
        return True
    return text[start] == "0" and end - start > 1 and text[start:end].isdigit()


def is_count(text: str, start: int, end: int) -> bool:
    """Whether a number begins a line and counts it: "3. Termination"."""
    return start <= MOST_INDENT and not text[:start].strip() and _COUNTED.match(text, end) is not None


def amount_of(text: str, figure: Figure) -> Amount:
    """A figure, read."""
    after = text[figure.end : figure.end + MOST_AFTER]
    return Amount(frozenset(_sizes(text[figure.start : figure.end], after)), _sign(text, figure))


def says(text: str, number: Decimal) -> bool:
    """Whether one of the figures of a short text is this number."""
    return any(amount_of(text, figure).is_of(number, text) for figure in figures(text))


def same(one: str, other: str) -> bool:
    """Whether two texts of equal letters may be the same where they have numbers in them."""
    ours, theirs = (_ATOM.findall(text.replace("(0)", "")) for text in (one, other))
    if len(ours) != len(theirs):
        ours, theirs = ["".join(ours)], ["".join(theirs)]
    for mine, their in zip(ours, theirs, strict=True):
        left, right = set(_readings(mine)), set(_readings(their))
        if left and right and not left & right:
            return False
    return True


def _sizes(raw: str, after: str) -> Iterator[Decimal]:
    size = _SIZE.match(after)
    for number in _readings(raw):
        yield number
        if size is not None:
            yield number * times_of(size["size"])
        yield from (number / factor for pattern, factor in _PARTS if pattern.match(after))


def _readings(raw: str) -> Iterator[Decimal]:
    plain = _plain(raw)
    yield from (Decimal(repr(number)) for number in readings(plain))
    whole, comma, part = plain.partition(",")
    if comma and len(part) == 3 and part.isdigit() and whole.isdigit():
        yield Decimal(f"{whole}.{part}")  # three places behind a comma, as in "1,250 kg"


def _sign(text: str, figure: Figure) -> bool | None:
    """Whether a figure is below zero; None where that cannot be told: in brackets, behind a loose dash."""
    after = text[figure.end : figure.end + 2]
    if after[:1] in ("-", "−") and not after[1:].strip():
        return True
    begin = max(0, figure.start - 10)
    mark = _MARK.search(text[begin : figure.start])
    if mark is None:
        return False
    if mark["mark"] in "(（":
        return None
    at = begin + mark.start()
    if at and text[at - 1].isalnum():  # "4.0-10.0" is from one to the other
        return False
    return None if mark["gap"] and at else True


def _plain(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text).replace("’", "'")

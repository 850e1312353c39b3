"""Labels and values in one line.

"Invoice No.: 12   Date: 2026-01-05" is two pairs, and "发票号码：12开票日期：2026年1月5日" too. A label ends with a
colon, a wide gap, a row of dots; where it only stands before its value, that is told, and only values that cannot be
taken for prose are read so. Pieces are cut from the text as it stands, never from a cleaned copy, so that they can be
found again.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.documents.extract.fields.words import COMMON, HAN, MOST_LABEL, is_note, is_rate, names_a_unit

MOST_PAIRS = 50  # of one line
MOST_STARTS = 40  # where a label in the middle of a line may begin

_COLON = re.compile(r"[:：﹕]")
_GAP = re.compile(r"\s{3,}|\t+|(?:\s*[.．·…_]){4,}\s*|\s*…{1,}\s*|\s[=|]\s")
_WIDE = re.compile(r"\s{3,}|\t")
_START = re.compile(rf"(?<=[\s,，;；。|()（）*])(?=\S)|(?=[{HAN}])")
_BULLET = re.compile(r"\s*(?:[-*+•·▪◦]\s*|\d{1,3}[.)、]\s*)")
_BREAK = re.compile(r"\s{3,}|\t|[;；。|(（]\s*")  # a label cannot reach over these, except over a bracket
_SENTENCE_END = re.compile(r"(?P<last>[^\W\d_]{3,})[.!?]\s+(?=[^\W\d_a-z])")
FEWEST_WORDS = 3  # of a sentence; "Tel." and "Our ref." end none
_NEW_PAIR = re.compile(r"\s{3,}|\t|[;；|]\s*")
_WORD_BEFORE = re.compile(r"([^\W\d_]+)\s$")
_NEW_SCRIPT = re.compile(rf"(?<=[^\s{HAN}])(?=[{HAN}])|[\s;；|]{{2,}}|[;；|]\s*|\s+(?=[{HAN}])")
_PREFIX_END = re.compile(rf"(?<=\S)(?=\s)|(?<=[{HAN}])(?=[^\s{HAN}])")
_COUNTED = re.compile(r"[\d.,]+\s*(?![A-Z]{3}$)[A-Za-z]{2,}\.?")  # so many of something: more likely prose than a value

# What makes another label of the label after it. A company's name ends with the word for company, so that is not here.
QUALIFIERS = (
    "account|annual|average|bank|base|birth|buyer|company|contact|contract|cost|current|customer|delivery|document|due|"
    "effective|end|expiration|expiry|final|first|grand|gross|home|invoice|issue|item|last|max|min|mobile|monthly|net|"
    "new|next|old|order|original|other|part|payment|previous|product|project|purchase|reference|sales?|second|seller|"
    "serial|service|ship|start|sub|supplier|tax|total|tracking|unit|vat|vendor|work|[a-z]+ed|[a-z]+ing"
)
HAN_QUALIFIERS = (
    "预计|到期|交货|发货|收货|签订|签署|生效|付款|收款|出生|开始|结束|起始|截止|有效|下单|订单|合同|注册|联系|经营|"
    "办公|通讯|开户|开票|发票|购买方|销售方|法人|项目|产品|商品|不含税|含税|预付|应付|实付|累计"
)
_QUALIFIER = re.compile(rf"(?<![a-z])(?:{QUALIFIERS})\s$|(?:{HAN_QUALIFIERS})$", re.IGNORECASE)
MOST_QUALIFIER = 30  # characters

Known = Callable[[str], bool]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A label and what may be its value, the likeliest first. `parted`: something stands between the two."""

    label: str
    values: tuple[str, ...]
    parted: bool = True


def pairs(line: str, known: Known, common: Known, whole: Known) -> list[Pair]:
    """The pairs of a line. `known` are labels that are asked for; `common` ends a value as well. A line that is a label
    as a `whole` has no value in it: "VAT 19%", "Total EUR"."""
    found = list(_by_colon(line, known, common))
    if found or whole(line):
        return found
    return list(_by_gap(line, known)) or list(_by_prefix(line, known))


def _by_colon(line: str, known: Known, common: Known) -> Iterator[Pair]:
    colons = [at.start() for at in _COLON.finditer(line) if not _inside(line, at.start())][:MOST_PAIRS]
    starts = [
        _label_start(line, begin + 1, end, known, common) for begin, end in zip([-1, *colons], colons, strict=False)
    ]
    kept = [(start, colon) for start, colon in zip(starts, colons, strict=True) if start is not None]
    ends = [start for start, _ in kept[1:]] + [len(line)]
    for (start, colon), end in zip(kept, ends, strict=False):
        yield Pair(label=line[start:colon], values=_values(line[colon + 1 : end]))


def _inside(line: str, at: int) -> bool:
    """A colon of a time, a ratio or an address on the web is no end of a label."""
    before, after = line[at - 1 : at], line[at + 1 : at + 2]
    return (before.isdigit() and after.isdigit()) or line[at + 1 : at + 3] == "//"


def _label_start(line: str, begin: int, end: int, known: Known, common: Known) -> int | None:
    """Where the label begins that ends at a colon; None when that cannot be told, and the colon belongs to a value."""
    bullet = _BULLET.match(line, begin, end)
    breaks = [at.end() for at in _BREAK.finditer(line, begin, end) if at.end() < end]
    breaks += _sentence_ends(line, begin, end)
    sure = sorted({begin, bullet.end() if bullet else begin, *breaks})
    whole = next((start for start in sure if known(line[start:end])), None)
    if whole is not None and (begin == 0 or whole > begin):
        return whole
    if begin == 0:
        hard = [at.end() for at in _NEW_PAIR.finditer(line, begin, end) if at.end() < end]
        return hard[-1] if hard else begin
    return _start_after_value(line, begin, end, known, common)


def _sentence_ends(line: str, begin: int, end: int) -> list[int]:
    """Where a new sentence begins. A word cut short ends none: the customer's number is not "the cust. No."."""
    return [
        at.end()
        for at in _SENTENCE_END.finditer(line, begin, end)
        if len(line[begin : at.end()].split()) >= FEWEST_WORDS
        and at["last"].islower()
        and not _is_cut_short(at["last"])
    ]


def _is_cut_short(word: str) -> bool:
    words = itertools.chain(QUALIFIERS.split("|"), COMMON.split())
    return any(word != whole and whole.startswith(word) for whole in words)


def _start_after_value(line: str, begin: int, end: int, known: Known, common: Known) -> int | None:
    near = max(begin, end - MOST_LABEL)
    starts = [near + at.start() for at in _START.finditer(line[near:end])][-MOST_STARTS:]
    for is_label in (known, common):
        for start in starts:
            if is_label(line[start:end]) and not _is_mid_phrase(line, start):
                return _with_what_qualifies_it(line, begin, start)
    cuts = [at.end() for at in _NEW_SCRIPT.finditer(line, begin, end) if at.end() < end]
    return cuts[-1] if cuts else None


def _is_mid_phrase(line: str, start: int) -> bool:
    """A label in the middle of a line begins with a capital; a small word after a word goes on with what it began."""
    return line[start].islower() and _WORD_BEFORE.search(line, max(0, start - MOST_QUALIFIER), start) is not None


def _with_what_qualifies_it(line: str, begin: int, start: int) -> int:
    """The due date is not the date, so a label takes in the words before it that qualify labels."""
    while qualifier := _QUALIFIER.search(line, max(begin, start - MOST_QUALIFIER), start):
        start = qualifier.start()
    return start


def _values(rest: str) -> tuple[str, ...]:
    """What a value may be when something that nobody knows comes after it: all of it, then less of it."""
    narrow = _WIDE.split(rest.strip(), maxsplit=1)[0]
    colon = _COLON.search(narrow)
    short = narrow[: colon.start()].rpartition(" ")[0] if colon and not _inside(narrow, colon.start()) else ""
    return tuple(dict.fromkeys(filter(None, (narrow, short))))


def _by_gap(line: str, known: Known) -> Iterator[Pair]:
    cells = [cell for cell in _GAP.split(line.strip()) if cell.strip()][:MOST_PAIRS]
    for label, value, after in zip(cells, cells[1:], [*cells[2:], ""], strict=False):
        is_more_or_note = after or is_note(value)  # "VAT   19%   251.75", "VAT   (19%)"
        is_by_the_way = is_rate(value) and is_more_or_note and not names_a_unit(label)
        if known(label) and not known(value) and not is_by_the_way:
            yield Pair(label=label, values=(value,))


def _by_prefix(line: str, known: Known) -> Iterator[Pair]:
    text = line.strip()
    ends = [at.start() for at in _PREFIX_END.finditer(text[:MOST_LABEL])][:MOST_STARTS]
    for end in reversed(ends):
        value = text[end:].strip()
        if known(text[:end]) and not _COUNTED.fullmatch(value) and not is_note(value):
            yield Pair(label=text[:end], values=(value,), parted=False)
            return

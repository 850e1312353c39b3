"""Key-value pairs in one line.

"Invoice No.: 12   Date: 2026-01-05" has two pairs, and so has "发票号码：12开票日期：2026年1月5日". A label ends with a
colon, a wide gap or a row of dots. Without a separator the pair says so, and only values that cannot be prose are read
from it. Labels and values are slices of the original text, so that they can be found in the document.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.documents.extract.fields.label_keys import FORM_LABELS, HAN, MAX_LABEL, is_note, is_rate, names_a_unit

MAX_PAIRS = 50  # per line
MAX_STARTS = 40  # tried for a label in the middle of a line

_COLON = re.compile(r"[:：﹕]")
_GAP = re.compile(r"\s{3,}|\t+|(?:\s*[.．·…_]){4,}\s*|\s*…{1,}\s*|\s[=|]\s")
_WIDE = re.compile(r"\s{3,}|\t")
_START = re.compile(rf"(?<=[\s,，;；。|()（）*])(?=\S)|(?=[{HAN}])")
_BULLET = re.compile(r"\s*(?:[-*+•·▪◦]\s*|\d{1,3}[.)、]\s*)")
_BREAK = re.compile(r"\s{3,}|\t|[;；。|(（]\s*")  # labels do not span these, except a bracket
_SENTENCE_END = re.compile(r"(?P<last>[^\W\d_]{3,})[.!?]\s+(?=[^\W\d_a-z])")
MIN_SENTENCE_WORDS = 3  # "Tel." and "Our ref." are no sentences
_NEW_PAIR = re.compile(r"\s{3,}|\t|[;；|]\s*")
_WORD_BEFORE = re.compile(r"([^\W\d_]+)\s$")
_NEW_SCRIPT = re.compile(rf"(?<=[^\s{HAN}])(?=[{HAN}])|[\s;；|]{{2,}}|[;；|]\s*|\s+(?=[{HAN}])")
_PREFIX_END = re.compile(rf"(?<=\S)(?=\s)|(?<=[{HAN}])(?=[^\s{HAN}])")
_QUANTITY = re.compile(r"[\d.,]+\s*(?![A-Z]{3}$)[A-Za-z]{2,}\.?")  # more likely prose than a value

# Words before a label that make it another label. The Chinese word for company is missing, since it ends company names.
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
MAX_QUALIFIER = 30  # characters

LabelTest = Callable[[str], bool]


@dataclass(frozen=True, kw_only=True)
class KeyValuePair:
    """A label and its possible values, the likeliest first. `is_separated`: a separator is between label and value."""

    label: str
    values: tuple[str, ...]
    is_separated: bool = True


def key_value_pairs(
    line: str, is_known: LabelTest, ends_value: LabelTest, is_entire_label: LabelTest
) -> list[KeyValuePair]:
    """The pairs of a line. `is_known` accepts labels of the schema; a value also ends before an `ends_value` label. A
    line that is an entire label has no value: "VAT 19%", "Total EUR"."""
    found = list(_by_colon(line, is_known, ends_value))
    if found or is_entire_label(line):
        return found
    return list(_by_gap(line, is_known)) or list(_by_prefix(line, is_known))


def _by_colon(line: str, is_known: LabelTest, ends_value: LabelTest) -> Iterator[KeyValuePair]:
    colons = [at.start() for at in _COLON.finditer(line) if not _is_inside_value(line, at.start())][:MAX_PAIRS]
    starts = [
        _label_start(line, begin + 1, end, is_known, ends_value)
        for begin, end in zip([-1, *colons], colons, strict=False)
    ]
    kept = [(start, colon) for start, colon in zip(starts, colons, strict=True) if start is not None]
    ends = [start for start, _ in kept[1:]] + [len(line)]
    for (start, colon), end in zip(kept, ends, strict=False):
        yield KeyValuePair(label=line[start:colon], values=_value_readings(line[colon + 1 : end]))


def _is_inside_value(line: str, at: int) -> bool:
    """Whether a colon belongs to a time, a ratio or a URL, and does not end a label."""
    before, after = line[at - 1 : at], line[at + 1 : at + 2]
    return (before.isdigit() and after.isdigit()) or line[at + 1 : at + 3] == "//"


def _label_start(line: str, begin: int, end: int, is_known: LabelTest, ends_value: LabelTest) -> int | None:
    """The start of the label that ends at a colon; None when it is unclear, and the colon belongs to a value."""
    bullet = _BULLET.match(line, begin, end)
    breaks = [at.end() for at in _BREAK.finditer(line, begin, end) if at.end() < end]
    breaks += _sentence_ends(line, begin, end)
    certain_starts = sorted({begin, bullet.end() if bullet else begin, *breaks})
    known_start = next((start for start in certain_starts if is_known(line[start:end])), None)
    if known_start is not None and (begin == 0 or known_start > begin):
        return known_start
    if begin == 0:
        pair_starts = [at.end() for at in _NEW_PAIR.finditer(line, begin, end) if at.end() < end]
        return pair_starts[-1] if pair_starts else begin
    return _start_after_value(line, begin, end, is_known, ends_value)


def _sentence_ends(line: str, begin: int, end: int) -> list[int]:
    """The starts of new sentences. An abbreviation does not end a sentence: "the cust. No."."""
    return [
        at.end()
        for at in _SENTENCE_END.finditer(line, begin, end)
        if len(line[begin : at.end()].split()) >= MIN_SENTENCE_WORDS
        and at["last"].islower()
        and not _is_abbreviation(at["last"])
    ]


def _is_abbreviation(word: str) -> bool:
    words = itertools.chain(QUALIFIERS.split("|"), FORM_LABELS.split())
    return any(word != full and full.startswith(word) for full in words)


def _start_after_value(line: str, begin: int, end: int, is_known: LabelTest, ends_value: LabelTest) -> int | None:
    near = max(begin, end - MAX_LABEL)
    starts = [near + at.start() for at in _START.finditer(line[near:end])][-MAX_STARTS:]
    for is_label in (is_known, ends_value):
        for start in starts:
            if is_label(line[start:end]) and not _is_mid_phrase(line, start):
                return _extend_over_qualifiers(line, begin, start)
    cuts = [at.end() for at in _NEW_SCRIPT.finditer(line, begin, end) if at.end() < end]
    return cuts[-1] if cuts else None


def _is_mid_phrase(line: str, start: int) -> bool:
    """Whether a label would start inside a phrase: in the middle of a line, labels start with a capital letter."""
    return line[start].islower() and _WORD_BEFORE.search(line, max(0, start - MAX_QUALIFIER), start) is not None


def _extend_over_qualifiers(line: str, begin: int, start: int) -> int:
    """Move the start of a label before its qualifiers: the "due date" is not the "date"."""
    while qualifier := _QUALIFIER.search(line, max(begin, start - MAX_QUALIFIER), start):
        start = qualifier.start()
    return start


def _value_readings(rest: str) -> tuple[str, ...]:
    """The possible values of a text with an unknown rest: all of it, then less of it."""
    narrow = _WIDE.split(rest.strip(), maxsplit=1)[0]
    colon = _COLON.search(narrow)
    short = narrow[: colon.start()].rpartition(" ")[0] if colon and not _is_inside_value(narrow, colon.start()) else ""
    return tuple(dict.fromkeys(filter(None, (narrow, short))))


def _by_gap(line: str, is_known: LabelTest) -> Iterator[KeyValuePair]:
    cells = [cell for cell in _GAP.split(line.strip()) if cell.strip()][:MAX_PAIRS]
    for label, value, after in zip(cells, cells[1:], [*cells[2:], ""], strict=False):
        is_more_or_note = after or is_note(value)  # "VAT   19%   251.75", "VAT   (19%)"
        is_incidental_rate = is_rate(value) and is_more_or_note and not names_a_unit(label)
        if is_known(label) and not is_known(value) and not is_incidental_rate:
            yield KeyValuePair(label=label, values=(value,))


def _by_prefix(line: str, is_known: LabelTest) -> Iterator[KeyValuePair]:
    text = line.strip()
    ends = [at.start() for at in _PREFIX_END.finditer(text[:MAX_LABEL])][:MAX_STARTS]
    for end in reversed(ends):
        value = text[end:].strip()
        if is_known(text[:end]) and not _QUANTITY.fullmatch(value) and not is_note(value):
            yield KeyValuePair(label=text[:end], values=(value,), is_separated=False)
            return

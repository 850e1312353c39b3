"""Paragraphs become markdown: headings, lists, text.

Headings are lines that are larger than the text around them, or bold and on their own. A numbered line is an item of a
list when its neighbours count on, whatever its size: the numbers of lists are often larger than their text. Numbers of
pages are left out.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.documents.blocks import NOT_MEANT
from penstock.documents.layout.lines import Line, joined
from penstock.documents.layout.paragraphs import BULLETS, LABEL, LEADER, Paragraph

LARGER = 1.12  # than the text: the least size of a heading
MUCH_LARGER = 1.3  # it may end as a sentence does
TITLE = 1.6  # titles of any size are of one rank
BOLD = 1.0
MOST_HEADING, MOST_BOLD_HEADING = 200, 90  # letters
MOST_LINES = 3
LABELLED = re.compile(rf"{LABEL.pattern}\s*\S")
NO_HEADING = frozenset(".,;，。；、")  # at its end
MONTH = (
    r"(?:jan(?:uar[yi]?|vier)?|ene(?:ro)?|feb(?:ruary?|ruar|rero)?|février|mar(?:ch|s|zo)?|märz|a[pv]r(?:il)?|abr(?:il)?"
    r"|ma[iy]o?|june?|junio?|juin|july?|julio?|juillet|aug(?:ust)?|août|agosto|sep(?:t(?:ember|embre)?)?|septiembre"
    r"|o[ck]t(?:ober|obre|ubre)?|nov(?:ember|embre|iembre)?|de[cz](?:ember)?|décembre|dic(?:iembre)?)\b|[年月日]"
)
BARE_NUMBER = re.compile(rf"(\d{{1,2}})\s+(?=[^\W\d])(?!{MONTH})", re.IGNORECASE)
NEAREST = 30  # items among which the one before is looked for: there may be others inside it
ITEM = re.compile(r"\d{1,3}[.)]")  # what is an item in markdown, too
PAGE_NUMBER = re.compile(
    r"\W*(?:page|seite|p\.|第)?\s*\d{1,4}\s*页?(?:\s*(?:of|/|von|[,，]?\s*共)\s*\d{1,4}\s*页?)?\W*|[ivxlc]{1,6}",
    re.IGNORECASE,
)
LONGEST_PAGE_NUMBER = 30
MARGIN = 0.09  # of the page's height, above and below, where numbers of pages stand
EMPHASIS = re.compile(r"\*(?=\S)|(?<!\w)_(?=\S)")  # where it would begin

Found = Sequence[Paragraph | str]  # on a page; what is markdown already stands between paragraphs


@dataclass(kw_only=True, slots=True)
class Written:
    """A piece of a page's markdown."""

    text: str
    rank: float = 0.0  # of a heading: how much larger than the text it is
    list_of: str = ""  # of an item: the list it is in, by its marks


def without_page_numbers(found: Iterable[Paragraph | str], height: float) -> list[Paragraph | str]:
    """What stands on a page of this height but for its own number."""
    return [each for each in found if isinstance(each, str) or not _is_page_number(each, height)]


def markdown_of(written: Sequence[Written], levels: Mapping[float, int]) -> str:
    """A page. Items of one list stand close; all else is kept apart by an empty line."""
    pieces: list[str] = []
    before = ""
    for each in written:
        if pieces:
            pieces.append("\n" if before and before == each.list_of else "\n\n")
        pieces.append(f"{'#' * levels[each.rank]} {each.text}" if each.rank else each.text)
        before = each.list_of
    return "".join(pieces)


class Writing:
    """A page that is being written, whose text is of a usual size."""

    def __init__(self, usual: float) -> None:
        self._usual = usual
        self._lefts: list[float] = []  # of the list that is being written: of its outermost items first
        self._lowest = 0.0  # item of it
        self._list_of = ""

    def write(self, found: Found, bold: Mapping[int, int] | None = None) -> list[Written]:
        """The pieces of the page. `bold` says of paragraphs, by their places, up to which letter they are."""
        numbers, ends = _numbers(found), bold or {}
        written = [self._written(each, numbers.get(at), ends.get(at, 0)) for at, each in enumerate(found)]
        for at, each in enumerate(written):
            if 0 < each.rank < MUCH_LARGER and _is_labelled(found[at]) and _has_labels_beside(found, at):
                written[at] = Written(text=_guarded(each.text))
        return written

    def _written(self, each: Paragraph | str, number: int | None, bold: int) -> Written:
        if isinstance(each, str):
            self._lefts.clear()
            return Written(text=each)
        text, line = joined(each.lines), each.lines[0]
        if mark := self._mark(each, number):
            begin = len(each.mark) or len(str(number)) + 1
            return self._item(line, mark, _with_bold(text, begin, bold))
        self._lefts.clear()
        if number is None and (rank := self._rank(each, text, bold)):
            return Written(text=_plain(text), rank=rank)
        shown = _with_bold(text, len(each.mark), bold)
        if ITEM.match(each.mark):  # on its own it may still be one
            return self._item(line, f"{each.mark.rstrip()} ", shown)
        return Written(text=_guarded(each.mark + shown))

    def _mark(self, each: Paragraph, number: int | None) -> str:
        """In markdown, of what is an item for sure."""
        if each.mark and each.mark[0] in BULLETS:
            return "- "
        if number is not None and (ITEM.match(each.mark) or not each.mark):
            return f"{each.mark.rstrip() or f'{number}.'} "
        line = each.lines[0]
        is_inside = each.mark and self._lefts and line.left > self._lefts[0] + line.size / 2
        return f"- {each.mark.rstrip()} " if is_inside else ""

    def _item(self, line: Line, mark: str, text: str) -> Written:
        if line.bottom < self._lowest:  # in the next column
            self._lefts.clear()
        self._lowest = line.bottom
        while self._lefts and self._lefts[-1] > line.left + line.size / 2:
            self._lefts.pop()
        if not self._lefts or self._lefts[-1] < line.left - line.size / 2:
            self._lefts.append(line.left)
        depth = len(self._lefts) - 1
        if not depth:
            self._list_of = mark.strip()[-1]
        return Written(text=f"{'   ' * depth}{mark}{text}", list_of=self._list_of)

    def _rank(self, each: Paragraph, text: str, bold: int) -> float:
        """Of a heading; 0 for other paragraphs."""
        if len(text) > MOST_HEADING or len(each.lines) > MOST_LINES or not any(map(str.isalpha, text)):
            return 0
        ratio = each.lines[0].size / self._usual
        if LEADER.search(text):
            return 0
        if ratio >= LARGER:
            is_sentence = text[-1] in NO_HEADING and (ratio < MUCH_LARGER or len(each.lines) > 1)
            return 0 if is_sentence else min(round(ratio, 1), TITLE)
        is_bold_heading = bold >= len(text) <= MOST_BOLD_HEADING and text[-1] not in NO_HEADING
        return BOLD if is_bold_heading and not LABEL.match(text) else 0


def _is_labelled(each: Paragraph | str) -> bool:
    return not isinstance(each, str) and len(each.lines) == 1 and LABELLED.match(each.lines[0].text) is not None


def _has_labels_beside(found: Found, at: int) -> bool:
    """Whether a label with its value stands above or below: lines of them are no headings, whatever their size."""
    return any(map(_is_labelled, found[max(at - 1, 0) : at])) or any(map(_is_labelled, found[at + 1 : at + 2]))


def _is_page_number(each: Paragraph, height: float) -> bool:
    line = each.lines[0]
    if len(each.lines) > 1 or len(line.text) > LONGEST_PAGE_NUMBER:
        return False
    is_at_edge = line.bottom < MARGIN * height or line.top > (1 - MARGIN) * height
    return is_at_edge and PAGE_NUMBER.fullmatch(line.text) is not None


def _numbers(found: Found) -> dict[int, int]:
    """Of paragraphs that are counted, by their places: beside each stands the one before it or after it."""
    counted: dict[int, int] = {}
    run: list[tuple[int, int, Line]] = []
    for at, each in enumerate(found):
        number = None if isinstance(each, str) else _number(each)
        if isinstance(each, str) or (number is None and not each.mark):
            run = []
        elif number is not None:
            line = each.lines[0]
            for place, before, other in run[-NEAREST:]:
                if before == number - 1 and abs(other.left - line.left) < line.size == other.size:
                    counted[place], counted[at] = before, number
            run.append((at, number, line))
    return counted


def _number(each: Paragraph) -> int | None:
    if each.mark or not each.lines[0].text[0].isdecimal():
        return each.number
    bare = BARE_NUMBER.match(each.lines[0].text)
    return int(bare[1]) if bare else None


def _with_bold(text: str, begin: int, bold: int) -> str:
    """The text from its mark on, with what is bold at its beginning."""
    if bold <= begin:
        return _plain(text[begin:])
    lead = text[begin:bold].rstrip()
    return f"**{_plain(lead)}**{_plain(text[begin + len(lead) :])}"


def _plain(text: str) -> str:
    """The text with nothing in it that is taken for emphasis."""
    return EMPHASIS.sub(r"\\\g<0>", text) if "*" in text or "_" in text else text


def _guarded(text: str) -> str:
    """The text with nothing at its beginning that would make it something else."""
    return NOT_MEANT.sub(r"\1\\\2", text) if text[0] in "#|`~-=" else text

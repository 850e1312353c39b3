"""Writes paragraphs as markdown: headings, lists, text.

A heading is a line in a larger font, or a bold line on its own. A numbered line is a list item if a neighbour has the
next or the previous number, whatever its size: list numbers are often larger than their text. Page numbers are dropped.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.documents.blocks import BLOCK_SYNTAX
from penstock.documents.layout.lines import TextLine, join_lines
from penstock.documents.layout.paragraphs import BULLETS, LABEL, LEADER, Paragraph

LARGER = 1.12  # times the body size: smallest size of a heading
MUCH_LARGER = 1.3  # a heading of this size may end like a sentence
TITLE = 1.6  # larger headings have the same rank
BOLD = 1.0
MAX_HEADING, MAX_BOLD_HEADING = 200, 90  # characters
MAX_LINES = 3
LABELLED = re.compile(rf"{LABEL.pattern}\s*\S")
NO_HEADING = frozenset(".,;，。；、")  # a heading does not end with these
MONTH = (
    r"(?:jan(?:uar[yi]?|vier)?|ene(?:ro)?|feb(?:ruary?|ruar|rero)?|février|mar(?:ch|s|zo)?|märz|a[pv]r(?:il)?|abr(?:il)?"
    r"|ma[iy]o?|june?|junio?|juin|july?|julio?|juillet|aug(?:ust)?|août|agosto|sep(?:t(?:ember|embre)?)?|septiembre"
    r"|o[ck]t(?:ober|obre|ubre)?|nov(?:ember|embre|iembre)?|de[cz](?:ember)?|décembre|dic(?:iembre)?)\b|[年月日]"
)
BARE_NUMBER = re.compile(rf"(\d{{1,2}})\s+(?=[^\W\d])(?!{MONTH})", re.IGNORECASE)
NEAREST = 30  # preceding items searched for the previous number, since lists nest
ITEM = re.compile(r"\d{1,3}[.)]")  # also a list item in markdown
PAGE_NUMBER = re.compile(
    r"\W*(?:page|seite|p\.|第)?\s*\d{1,4}\s*页?(?:\s*(?:of|/|von|[,，]?\s*共)\s*\d{1,4}\s*页?)?\W*|[ivxlc]{1,6}",
    re.IGNORECASE,
)
LONGEST_PAGE_NUMBER = 30
MARGIN = 0.09  # share of the page height, at the top and at the bottom, where page numbers stand
EMPHASIS = re.compile(r"\*(?=\S)|(?<!\w)_(?=\S)")  # start of emphasis

PageContent = Sequence[Paragraph | str]  # paragraphs, and finished markdown between them


@dataclass(kw_only=True, slots=True)
class MarkdownPiece:
    """A piece of the markdown of a page."""

    text: str
    rank: float = 0.0  # of a heading: its size relative to the body text
    list_of: str = ""  # of a list item: the list it belongs to, by marker


def drop_page_numbers(content: Iterable[Paragraph | str], height: float) -> list[Paragraph | str]:
    """The content of a page without its page number."""
    return [paragraph for paragraph in content if isinstance(paragraph, str) or not _is_page_number(paragraph, height)]


def render_markdown(written: Sequence[MarkdownPiece], levels: Mapping[float, int]) -> str:
    """Join the pieces of a page. Items of one list are adjacent lines; other pieces are separated by an empty line."""
    pieces: list[str] = []
    before = ""
    for piece in written:
        if pieces:
            pieces.append("\n" if before and before == piece.list_of else "\n\n")
        pieces.append(f"{'#' * levels[piece.rank]} {piece.text}" if piece.rank else piece.text)
        before = piece.list_of
    return "".join(pieces)


class MarkdownWriter:
    """Writes one page, given the size of its body text."""

    def __init__(self, usual: float) -> None:
        self._usual = usual
        self._lefts: list[float] = []  # left edges of the open list, outermost level first
        self._lowest = 0.0  # bottom of the last list item
        self._list_of = ""

    def write(self, content: PageContent, bold: Mapping[int, int] | None = None) -> list[MarkdownPiece]:
        """The pieces of the page. `bold` maps the index of a paragraph to the number of its characters in bold."""
        numbers, ends = _numbers(content), bold or {}
        pieces = [self._piece(each, numbers.get(at), ends.get(at, 0)) for at, each in enumerate(content)]
        for at, piece in enumerate(pieces):
            if 0 < piece.rank < MUCH_LARGER and _is_labelled(content[at]) and _has_labels_beside(content, at):
                pieces[at] = MarkdownPiece(text=_escape_start(piece.text))
        return pieces

    def _piece(self, paragraph: Paragraph | str, number: int | None, bold: int) -> MarkdownPiece:
        if isinstance(paragraph, str):
            self._lefts.clear()
            return MarkdownPiece(text=paragraph)
        text, line = join_lines(paragraph.lines), paragraph.lines[0]
        if marker := self._list_marker(paragraph, number):
            begin = len(paragraph.marker) or len(str(number)) + 1
            return self._item(line, marker, _with_bold(text, begin, bold))
        self._lefts.clear()
        if number is None and (rank := self._rank(paragraph, text, bold)):
            return MarkdownPiece(text=_escape_emphasis(text), rank=rank)
        shown = _with_bold(text, len(paragraph.marker), bold)
        if ITEM.match(paragraph.marker):  # an item even without neighbours
            return self._item(line, f"{paragraph.marker.rstrip()} ", shown)
        return MarkdownPiece(text=_escape_start(paragraph.marker + shown))

    def _list_marker(self, paragraph: Paragraph, number: int | None) -> str:
        """The markdown marker of a certain list item, or empty."""
        if paragraph.marker and paragraph.marker[0] in BULLETS:
            return "- "
        if number is not None and (ITEM.match(paragraph.marker) or not paragraph.marker):
            return f"{paragraph.marker.rstrip() or f'{number}.'} "
        line = paragraph.lines[0]
        is_inside = paragraph.marker and self._lefts and line.left > self._lefts[0] + line.size / 2
        return f"- {paragraph.marker.rstrip()} " if is_inside else ""

    def _item(self, line: TextLine, marker: str, text: str) -> MarkdownPiece:
        if line.bottom < self._lowest:  # the next column starts
            self._lefts.clear()
        self._lowest = line.bottom
        while self._lefts and self._lefts[-1] > line.left + line.size / 2:
            self._lefts.pop()
        if not self._lefts or self._lefts[-1] < line.left - line.size / 2:
            self._lefts.append(line.left)
        depth = len(self._lefts) - 1
        if not depth:
            self._list_of = marker.strip()[-1]
        return MarkdownPiece(text=f"{'   ' * depth}{marker}{text}", list_of=self._list_of)

    def _rank(self, paragraph: Paragraph, text: str, bold: int) -> float:
        """The rank of a heading; 0 for other paragraphs."""
        if len(text) > MAX_HEADING or len(paragraph.lines) > MAX_LINES or not any(map(str.isalpha, text)):
            return 0
        ratio = paragraph.lines[0].size / self._usual
        if LEADER.search(text):
            return 0
        if ratio >= LARGER:
            is_sentence = text[-1] in NO_HEADING and (ratio < MUCH_LARGER or len(paragraph.lines) > 1)
            return 0 if is_sentence else min(round(ratio, 1), TITLE)
        is_bold_heading = bold >= len(text) <= MAX_BOLD_HEADING and text[-1] not in NO_HEADING
        return BOLD if is_bold_heading and not LABEL.match(text) else 0


def _is_labelled(paragraph: Paragraph | str) -> bool:
    return (
        not isinstance(paragraph, str)
        and len(paragraph.lines) == 1
        and LABELLED.match(paragraph.lines[0].text) is not None
    )


def _has_labels_beside(content: PageContent, at: int) -> bool:
    """Whether a neighbour is a label with its value. Such lines are not headings, whatever their size."""
    return any(map(_is_labelled, content[max(at - 1, 0) : at])) or any(map(_is_labelled, content[at + 1 : at + 2]))


def _is_page_number(paragraph: Paragraph, height: float) -> bool:
    line = paragraph.lines[0]
    if len(paragraph.lines) > 1 or len(line.text) > LONGEST_PAGE_NUMBER:
        return False
    is_at_edge = line.bottom < MARGIN * height or line.top > (1 - MARGIN) * height
    return is_at_edge and PAGE_NUMBER.fullmatch(line.text) is not None


def _numbers(content: PageContent) -> dict[int, int]:
    """The numbers of list items, by index of the paragraph: an item has a neighbour with an adjacent number."""
    numbers: dict[int, int] = {}
    run: list[tuple[int, int, TextLine]] = []
    for at, paragraph in enumerate(content):
        number = None if isinstance(paragraph, str) else _number(paragraph)
        if isinstance(paragraph, str) or (number is None and not paragraph.marker):
            run = []
        elif number is not None:
            line = paragraph.lines[0]
            for place, before, other in run[-NEAREST:]:
                if before == number - 1 and abs(other.left - line.left) < line.size == other.size:
                    numbers[place], numbers[at] = before, number
            run.append((at, number, line))
    return numbers


def _number(paragraph: Paragraph) -> int | None:
    if paragraph.marker or not paragraph.lines[0].text[0].isdecimal():
        return paragraph.number
    bare = BARE_NUMBER.match(paragraph.lines[0].text)
    return int(bare[1]) if bare else None


def _with_bold(text: str, begin: int, bold: int) -> str:
    """The text after its marker, with the bold part at its start marked as bold."""
    if bold <= begin:
        return _escape_emphasis(text[begin:])
    lead = text[begin:bold].rstrip()
    return f"**{_escape_emphasis(lead)}**{_escape_emphasis(text[begin + len(lead) :])}"


def _escape_emphasis(text: str) -> str:
    """Escape what markdown would read as emphasis."""
    return EMPHASIS.sub(r"\\\g<0>", text) if "*" in text or "_" in text else text


def _escape_start(text: str) -> str:
    """Escape what would turn the start of a paragraph into another block."""
    return BLOCK_SYNTAX.sub(r"\1\\\2", text) if text[0] in "#|`~-=" else text

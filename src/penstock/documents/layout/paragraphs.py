"""Groups lines into paragraphs.

A paragraph ends where the next line is further down than usual or has another size, where the next word would have fit
on the line, and where the next line is indented or starts with a list marker. Distances are multiples of the font size.
A sentence that continues in lower case is not split by how its lines end, unless they are short.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from penstock.documents.layout.lines import PageRegion, TextLine, is_cjk

LOOSE = 1.22  # times the usual line pitch: a larger one starts a paragraph
CLOSEST, FURTHEST = 0.9, 9.0  # limits of the line pitch
USUAL_PITCH = 1.35  # line pitch where the page does not show it
ENOUGH, WIDEST_PITCH = 3, 1.5  # with fewer lines, the pitch may be that between paragraphs, so it is capped
SAME_SIZE = 0.13  # tolerance for sizes in one paragraph: a line has the size of its first word
LARGER_NUMBER = 0.25  # tolerance for a list number that is larger than its text
INDENT = 0.8  # smallest indentation
HANGING = 4.0  # largest indentation of the lines of a list item after its marker
NEAR = 6.0  # tolerance for left edges in one column, since lists are indented
MANY_LINES, MIN_SHARE = 5, 0.7  # lines needed to find the right edge of a column, and their share of all lines
HALF = 0.5  # share of the column that a line fills if its sentence continues
MANY_PARTS = 500  # a page with more regions is a drawing without columns
SLACK = 1.5  # times the estimated width of the next word
END = frozenset(".:;!?。：；！？…")
SYMBOLS = "\uf0b7\uf0a7\uf0d8\uf076\uf06c\uf06e\uf075\uf09f\uf0e8"  # bullets of symbol fonts (private use area)
BULLETS = f"•·●○◦▪■□►‣∙–*-{SYMBOLS}"
MARKED = re.compile(
    rf"(?:[•·●○◦▪►‣∙{SYMBOLS}]\s*"
    r"|[■□–*-]\s+|[（(]?(\d{1,3})(?:[)）、]|\.(?!\d))\s*"
    r"|[(]?([a-z])[.)]\s+|[(]?[A-Z][)]\s+|[(]?[ivx]{1,4}[)]\s+|[（(]?[一二三四五六七八九十]{1,3}[)）、]\s*|[①-⑳]\s*)(?=\S)"
)
MARKS = frozenset(BULLETS + "(（0123456789一二三四五六七八九十①②③④⑤⑥⑦⑧⑨⑩")
LEADER = re.compile(r"\.{4}|\. \. \.|……")  # dots before a page number in a table of contents
LABEL = re.compile(r"[^\W\d_][^:：]{0,39}[:：]")  # at the start of a line: "Invoice No: 7", "发票号码：7"


@dataclass(kw_only=True, slots=True)
class Paragraph:
    """Lines of one paragraph. `marker` is the list marker with the space after it, or empty."""

    lines: list[TextLine]
    marker: str = ""
    number: int | None = None  # of the marker; for a letter, its position in the alphabet


def group_paragraphs(regions: Sequence[PageRegion]) -> Iterator[Paragraph | str]:
    """Yield the paragraphs of a page, and finished markdown between them."""
    pitches = _pitches(regions)
    current: Paragraph | None = None
    edge = 0.0
    for region in regions:
        if not region.lines:
            if current is not None:
                yield current
            current = None
            yield region.markdown
            continue
        edge_before, edge = edge, _edge(region, regions)
        for line in region.lines:
            if current is not None and not _starts_paragraph(line, current, edge_before, pitches):
                current.lines.append(line)
            else:
                if current is not None:
                    yield current
                current = _new_paragraph(line)
            edge_before = edge
    if current is not None:
        yield current


def list_marker(text: str) -> re.Match[str] | None:
    """The list marker at the start of a text."""
    return MARKED.match(text) if text[0] in MARKS or text[1:2] in {".", ")"} else None


def _new_paragraph(line: TextLine) -> Paragraph:
    marker = list_marker(line.text)
    if marker is None:
        return Paragraph(lines=[line])
    number = int(marker[1]) if marker[1] else ord(marker[2]) - ord("a") + 1 if marker[2] else None
    return Paragraph(lines=[line], marker=marker[0], number=number)


def _pitches(regions: Sequence[PageRegion]) -> dict[float, float]:
    """The usual line pitch for each font size. Often there are more paragraphs than continued lines, so the smallest
    of the frequent distances counts."""
    found: dict[float, list[float]] = {}
    for region in regions:
        for above, below in pairwise(region.lines):
            if above.size == below.size:
                found.setdefault(below.size, []).append(_pitch(above, below))
    return {size: _closest(pitches, size) for size, pitches in found.items()}


def _closest(pitches: Sequence[float], size: float) -> float:
    step = size / 10
    counts = Counter([round(pitch / step) for pitch in pitches if CLOSEST * size <= pitch <= FURTHEST * size])
    if not counts:
        return USUAL_PITCH * size
    least = max(counts.values()) / 3
    closest = step * min(pitch for pitch, count in counts.items() if count >= least)
    near = [pitch for pitch in pitches if closest - step <= pitch <= LOOSE * closest]
    return sum(near) / len(near) if len(pitches) >= ENOUGH else min(closest, WIDEST_PITCH * size)


def _pitch(above: TextLine, below: TextLine) -> float:
    """The distance between the middles of two lines: their top and bottom edges vary with the characters."""
    return (below.top + below.bottom - above.top - above.bottom) / 2


def _edge(region: PageRegion, regions: Sequence[PageRegion]) -> float:
    """The right edge of the column that a region stands in."""
    left, top, right, bottom = region.box
    if len(regions) > MANY_PARTS:
        return right
    if (shared := _shared_edge(region)) is not None:
        return shared
    near = NEAR * region.lines[0].size
    walls = [each.box[0] for each in regions if each.box[0] >= right and each.box[1] < bottom and each.box[3] > top]
    wall = min(walls) if walls else float("inf")
    return max(each.box[2] for each in regions if abs(each.box[0] - left) <= near and each.box[2] <= wall)


def _shared_edge(region: PageRegion) -> float | None:
    """The right edge of most lines, if only one line extends beyond it: that one was not wrapped."""
    lines, right = region.lines, region.box[2]
    if len(lines) < MANY_LINES or sum(right - line.right < line.size for line in lines) > 1:
        return None
    usual = sorted(line.right for line in lines)[len(lines) // 2]
    near = [line.right for line in lines if abs(line.right - usual) < line.size]
    return max(near) if len(near) > MIN_SHARE * len(lines) else None


def _starts_paragraph(line: TextLine, current: Paragraph, edge: float, pitches: Mapping[float, float]) -> bool:
    """Whether a line starts the next paragraph."""
    before = current.lines[-1]
    size = line.size
    if line.has_wide_gap or before.has_wide_gap or _ends_in_number_of_page(before.text):
        return True
    if size != before.size:
        size = max(size, before.size)
        if abs(line.size - before.size) > SAME_SIZE * size and not _is_text_of_item(line, current):
            return True
    is_long = before.right - before.left > HALF * (edge - before.left)
    goes_on = is_long and line.text[0].islower() and before.text[-1] not in END
    if line.bottom <= before.top or line.left >= before.right or line.right <= before.left:
        return not goes_on  # the line is in the next column
    if _pitch(before, line) > LOOSE * (pitches.get(size) or USUAL_PITCH * size):
        return True
    marker = list_marker(line.text)
    if marker is not None and (current.marker or before.text[-1] in END or marker[0][0] in BULLETS):
        return True
    return not goes_on and (
        _has_room(before, line, current, edge) or _is_indented(before, line, current) or _are_labelled(before, line)
    )


def _ends_in_number_of_page(text: str) -> bool:
    return text[-1].isdecimal() and LEADER.search(text) is not None


def _are_labelled(one: TextLine, other: TextLine) -> bool:
    """Lines that both start with a label do not form a paragraph."""
    return LABEL.match(one.text) is not None and LABEL.match(other.text) is not None


def _is_text_of_item(line: TextLine, current: Paragraph) -> bool:
    """A list number is often larger than its text, and a line takes the size of its first word."""
    first = current.lines[0]
    return (
        bool(current.marker) and len(current.lines) == 1 and line.size < first.size <= (1 + LARGER_NUMBER) * line.size
    )


def _has_room(before: TextLine, line: TextLine, current: Paragraph, edge: float) -> bool:
    """Whether the first word of a line would have fit at the end of the line before it."""
    is_centred = _are_centred(before, line)
    if edge - before.right < line.size and not is_centred:
        return False
    word = 2 if is_cjk(line.text[0]) else len(line.text.split(maxsplit=1)[0]) + 1
    needed = SLACK * word * (line.right - line.left) / len(line.text)
    if is_centred:
        widest = max(each.right - each.left for each in (*current.lines, line))
        return widest - (before.right - before.left) > needed
    return edge - before.right > needed


def _are_centred(one: TextLine, other: TextLine) -> bool:
    off = abs(one.left + one.right - other.left - other.right) / 2
    return off < INDENT * one.size / 2 and abs(one.left - other.left) > INDENT * one.size


def _is_indented(before: TextLine, line: TextLine, current: Paragraph) -> bool:
    """Whether a line is indented or outdented relative to the lines before it."""
    step = (line.left - before.left) / line.size
    if abs(step) < INDENT or _are_centred(before, line):
        return False
    if current.marker:
        return step > HANGING or line.left < current.lines[0].left - INDENT * line.size
    if step > 0:
        return before.text[-1] in END
    return len(current.lines) > 1 or step < -HANGING

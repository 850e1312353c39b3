"""Which lines are one paragraph.

A paragraph ends where the next line stands lower than usual or is of another size; where there was room for the next
word and it was not used; where the next line is indented, or begins with the mark of a list. Distances are in sizes of
the letters. A sentence that goes on in small letters is not cut by how its lines end, unless they are short.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from penstock.documents.layout.lines import Line, Part, is_chinese

LOOSE = 1.22  # times the usual distance of lines, for one that begins a paragraph
CLOSEST, FURTHEST = 0.9, 9.0  # lines of one text do not stand closer, nor further apart
USUAL_PITCH = 1.35  # from line to line, where a page does not tell
ENOUGH, WIDEST_PITCH = 3, 1.5  # lines that tell it; where there are fewer, it may be that between paragraphs
SAME_SIZE = 0.13  # what sizes in one paragraph may differ by: a line is as large as its first word
LARGER_NUMBER = 0.25  # what the number of an item may be larger by than its text
INDENT = 0.8  # the least one
HANGING = 4.0  # how far the lines of an item may stand right of its mark
NEAR = 6.0  # how far apart the left edges of one column may be: lists are indented
MANY_LINES, MOST_LINES = 5, 0.7  # lines that show together where a column ends, and their share of all
HALF = 0.5  # of its column that a line fills, at least, whose sentence goes on
MANY_PARTS = 500  # a page with more is a drawing, and has no columns
SLACK = 1.5  # times the room that the next word seems to need
END = frozenset(".:;!?。：；！？…")
SYMBOLS = "\uf0b7\uf0a7\uf0d8\uf076\uf06c\uf06e\uf075\uf09f\uf0e8"  # bullets of symbol fonts, which have no letters
BULLETS = f"•·●○◦▪■□►‣∙–*-{SYMBOLS}"
MARKED = re.compile(
    rf"(?:[•·●○◦▪►‣∙{SYMBOLS}]\s*"
    r"|[■□–*-]\s+|[（(]?(\d{1,3})(?:[)）、]|\.(?!\d))\s*"
    r"|[(]?([a-z])[.)]\s+|[(]?[A-Z][)]\s+|[(]?[ivx]{1,4}[)]\s+|[（(]?[一二三四五六七八九十]{1,3}[)）、]\s*|[①-⑳]\s*)(?=\S)"
)
MARKS = frozenset(BULLETS + "(（0123456789一二三四五六七八九十①②③④⑤⑥⑦⑧⑨⑩")
LEADER = re.compile(r"\.{4}|\. \. \.|……")  # to the number of a page, in a table of contents
LABEL = re.compile(r"[^\W\d_][^:：]{0,39}[:：]")  # at the beginning of a line: "Invoice No: 7", "发票号码：7"


@dataclass(kw_only=True, slots=True)
class Paragraph:
    """Lines that are one text. `mark` is that of an item of a list, with the space after it."""

    lines: list[Line]
    mark: str = ""
    number: int | None = None  # in the mark; of a letter, its place in the alphabet


def paragraphs_of(parts: Sequence[Part]) -> Iterator[Paragraph | str]:
    """The paragraphs of a page, and between them what is markdown already."""
    pitches = _pitches(parts)
    held: Paragraph | None = None
    edge = 0.0
    for part in parts:
        if not part.lines:
            if held is not None:
                yield held
            held = None
            yield part.markdown
            continue
        edge_before, edge = edge, _edge(part, parts)
        for line in part.lines:
            if held is not None and not _begins(line, held, edge_before, pitches):
                held.lines.append(line)
            else:
                if held is not None:
                    yield held
                held = _begun(line)
            edge_before = edge
    if held is not None:
        yield held


def mark_of(text: str) -> re.Match[str] | None:
    """The mark of an item that a text begins with."""
    return MARKED.match(text) if text[0] in MARKS or text[1:2] in {".", ")"} else None


def _begun(line: Line) -> Paragraph:
    mark = mark_of(line.text)
    if mark is None:
        return Paragraph(lines=[line])
    number = int(mark[1]) if mark[1] else ord(mark[2]) - ord("a") + 1 if mark[2] else None
    return Paragraph(lines=[line], mark=mark[0], number=number)


def _pitches(parts: Sequence[Part]) -> dict[float, float]:
    """How far below each other lines of each size are, where they are close. Often there are more paragraphs than
    lines that go on, so the closest of the usual distances counts."""
    found: dict[float, list[float]] = {}
    for part in parts:
        for above, below in pairwise(part.lines):
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


def _pitch(above: Line, below: Line) -> float:
    """From the middle of one line to that of the other: what is above and below it differs with its letters."""
    return (below.top + below.bottom - above.top - above.bottom) / 2


def _edge(part: Part, parts: Sequence[Part]) -> float:
    """Where the lines of a part's column end on the right."""
    left, top, right, bottom = part.box
    if len(parts) > MANY_PARTS:
        return right
    if (shared := _shared_edge(part)) is not None:
        return shared
    near = NEAR * part.lines[0].size
    walls = [each.box[0] for each in parts if each.box[0] >= right and each.box[1] < bottom and each.box[3] > top]
    wall = min(walls) if walls else float("inf")
    return max(each.box[2] for each in parts if abs(each.box[0] - left) <= near and each.box[2] <= wall)


def _shared_edge(part: Part) -> float | None:
    """Where most lines of a part end, when only one of them goes further: that one was not broken where it should."""
    lines, right = part.lines, part.box[2]
    if len(lines) < MANY_LINES or sum(right - line.right < line.size for line in lines) > 1:
        return None
    usual = sorted(line.right for line in lines)[len(lines) // 2]
    near = [line.right for line in lines if abs(line.right - usual) < line.size]
    return max(near) if len(near) > MOST_LINES * len(lines) else None


def _begins(line: Line, held: Paragraph, edge: float, pitches: Mapping[float, float]) -> bool:
    """Whether a line is the first of the next paragraph."""
    before = held.lines[-1]
    size = line.size
    if line.is_spread or before.is_spread or _ends_in_number_of_page(before.text):
        return True
    if size != before.size:
        size = max(size, before.size)
        if abs(line.size - before.size) > SAME_SIZE * size and not _is_text_of_item(line, held):
            return True
    is_long = before.right - before.left > HALF * (edge - before.left)
    goes_on = is_long and line.text[0].islower() and before.text[-1] not in END
    if line.bottom <= before.top or line.left >= before.right or line.right <= before.left:
        return not goes_on  # in the next column
    if _pitch(before, line) > LOOSE * (pitches.get(size) or USUAL_PITCH * size):
        return True
    mark = mark_of(line.text)
    if mark is not None and (held.mark or before.text[-1] in END or mark[0][0] in BULLETS):
        return True
    return not goes_on and (
        _has_room(before, line, held, edge) or _is_indented(before, line, held) or _are_labelled(before, line)
    )


def _ends_in_number_of_page(text: str) -> bool:
    return text[-1].isdecimal() and LEADER.search(text) is not None


def _are_labelled(one: Line, other: Line) -> bool:
    """Lines that each begin with a label are no paragraph."""
    return LABEL.match(one.text) is not None and LABEL.match(other.text) is not None


def _is_text_of_item(line: Line, held: Paragraph) -> bool:
    """Numbers of lists are often larger than the text after them, and a line is as large as its beginning."""
    first = held.lines[0]
    return bool(held.mark) and len(held.lines) == 1 and line.size < first.size <= (1 + LARGER_NUMBER) * line.size


def _has_room(before: Line, line: Line, held: Paragraph, edge: float) -> bool:
    """Whether the first word of a line could have stood at the end of the line before it."""
    is_centred = _are_centred(before, line)
    if edge - before.right < line.size and not is_centred:
        return False
    word = 2 if is_chinese(line.text[0]) else len(line.text.split(maxsplit=1)[0]) + 1
    needed = SLACK * word * (line.right - line.left) / len(line.text)
    if is_centred:
        widest = max(each.right - each.left for each in (*held.lines, line))
        return widest - (before.right - before.left) > needed
    return edge - before.right > needed


def _are_centred(one: Line, other: Line) -> bool:
    off = abs(one.left + one.right - other.left - other.right) / 2
    return off < INDENT * one.size / 2 and abs(one.left - other.left) > INDENT * one.size


def _is_indented(before: Line, line: Line, held: Paragraph) -> bool:
    """Whether a line stands further in or out than those before it."""
    step = (line.left - before.left) / line.size
    if abs(step) < INDENT or _are_centred(before, line):
        return False
    if held.mark:
        return step > HANGING or line.left < held.lines[0].left - INDENT * line.size
    if step > 0:
        return before.text[-1] in END
    return len(held.lines) > 1 or step < -HANGING

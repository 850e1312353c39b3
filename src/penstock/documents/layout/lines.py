"""Lines of text with boxes, from a text layer or from OCR, before they are grouped into paragraphs."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from penstock.documents.pages import Box

WORD_GAP = 0.15  # of the font size; runs closer than this are one word
WIDE_GAP = 2.0  # of the font size; the gap between a label and its value
CJK = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f]")  # Chinese characters and punctuation
HYPHENS = ("-", "\u2010", "\u00ad")

BoxedText = tuple[str, Box]


class TextLine(NamedTuple):
    """A line of text, or a run of one."""

    text: str
    left: float
    top: float
    right: float
    bottom: float
    size: float  # font size
    font: str = ""  # font of the first character, if known
    has_wide_gap: bool = False  # as between a label and its value

    @property
    def box(self) -> Box:
        return self.left, self.top, self.right, self.bottom


class TableCell(NamedTuple):
    """The content of one table cell."""

    text: str
    box: Box | None


@dataclass(kw_only=True, slots=True)
class PageRegion:
    """A region of a page: lines of one column, a table, or finished markdown."""

    box: Box
    runs: list[TextLine] = field(default_factory=list)
    lines: list[TextLine] = field(default_factory=list)  # the runs, merged where they stand side by side
    cells: Sequence[Sequence[TableCell]] = ()
    pieces: Sequence[BoxedText] = ()  # the runs of a table, if it has more runs than cells
    markdown: str = ""


def bounding_box(boxes: Sequence[Box]) -> Box:
    """The smallest box around all boxes."""
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def is_cjk(letter: str) -> bool:
    """Whether it is a Chinese character or punctuation mark, which takes no space beside it."""
    return CJK.match(letter) is not None


def without_spaces(text: str) -> str:
    """The text without white space, to compare texts that differ only in spacing."""
    return "".join(text.split())


def join_lines(lines: Sequence[TextLine]) -> str:
    """Join the lines of one paragraph."""
    whole = " ".join([line.text for line in lines])
    return whole if whole.isascii() and "- " not in whole else join_texts(line.text for line in lines)


def join_texts(texts: Iterable[str]) -> str:
    """Join texts that continue each other: hyphenated words are rejoined, and Chinese takes no space."""
    whole = ""
    for text in texts:
        if whole.endswith(HYPHENS) and whole[-2:-1].isalpha() and text[0].islower():
            whole = whole[:-1] + text
        elif not whole or (is_cjk(whole[-1]) and is_cjk(text[0])):
            whole += text
        else:
            whole += f" {text}"
    return whole


def merge_runs(runs: Iterable[TextLine]) -> Iterator[TextLine]:
    """Merge runs that stand side by side into lines. The runs come in reading order."""
    row: list[TextLine] = []
    for run in runs:
        if row and not (run.top + run.bottom <= 2 * row[-1].bottom and row[-1].left < run.left):
            yield _joined(row)
            row = []
        row.append(run)
    if row:
        yield _joined(row)


def _joined(row: Sequence[TextLine]) -> TextLine:
    """One line from runs side by side. Its size is that of the longest run."""
    if len(row) == 1:
        return row[0]
    first = row[1] if len(row[0].text) == 1 else row[0]  # a bullet has its own font, and any gap after it
    text, has_wide_gap = row[0].text, False
    for one, other in pairwise(row):
        gap = (other.left - one.right) / other.size
        text += (" " if gap > WORD_GAP else "") + other.text
        has_wide_gap = has_wide_gap or (gap > WIDE_GAP and first is not other)
    box, longest = bounding_box([run.box for run in row]), max(row, key=lambda run: len(run.text))
    return TextLine(text, *box, longest.size, first.font, has_wide_gap)

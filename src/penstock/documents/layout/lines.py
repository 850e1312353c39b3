"""Lines of a page in reading order, as they come from a text layer or from OCR, before they are put together."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from penstock.documents.pages import Box

WORD_GAP = 0.15  # of a line's size; runs closer than this are one word
SPREAD = 2.0  # the least space in a line that is spread, in sizes of its letters
NO_SPACE = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f]")  # Chinese and its marks
HYPHENS = ("-", "\u2010", "\u00ad")

Piece = tuple[str, Box]


class Line(NamedTuple):
    """A line of text, or a run of one."""

    text: str
    left: float
    top: float
    right: float
    bottom: float
    size: float  # of its letters
    font: str = ""  # that it begins with, where that is known
    is_spread: bool = False  # there is a wide space in it, as between a label and its value

    @property
    def box(self) -> Box:
        return self.left, self.top, self.right, self.bottom


class Cell(NamedTuple):
    """What stands in one place of a table."""

    text: str
    box: Box | None


@dataclass(kw_only=True, slots=True)
class Part:
    """A stretch of a page: lines of one column, or a table, or what is markdown already."""

    box: Box
    runs: list[Line] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)  # the runs, those beside each other in one
    cells: Sequence[Sequence[Cell]] = ()
    pieces: Sequence[Piece] = ()  # its runs, where there are more of them than cells
    markdown: str = ""


def around(boxes: Sequence[Box]) -> Box:
    """The box that holds all of these."""
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def is_chinese(letter: str) -> bool:
    """Whether it is a letter or a mark of Chinese, beside which there is no space."""
    return NO_SPACE.match(letter) is not None


def bare(text: str) -> str:
    """A text without its spaces, by which it is found again where others set them."""
    return "".join(text.split())


def joined(lines: Sequence[Line]) -> str:
    """Lines of one paragraph as one text."""
    whole = " ".join([line.text for line in lines])
    return whole if whole.isascii() and "- " not in whole else together(line.text for line in lines)


def together(texts: Iterable[str]) -> str:
    """Texts that go on in each other. Words that were cut are whole again, and Chinese has no space in it."""
    whole = ""
    for text in texts:
        if whole.endswith(HYPHENS) and whole[-2:-1].isalpha() and text[0].islower():
            whole = whole[:-1] + text
        elif not whole or (is_chinese(whole[-1]) and is_chinese(text[0])):
            whole += text
        else:
            whole += f" {text}"
    return whole


def lines_of(runs: Iterable[Line]) -> Iterator[Line]:
    """Runs in reading order as lines: those beside each other are one."""
    row: list[Line] = []
    for run in runs:
        if row and not (run.top + run.bottom <= 2 * row[-1].bottom and row[-1].left < run.left):
            yield _joined(row)
            row = []
        row.append(run)
    if row:
        yield _joined(row)


def _joined(row: Sequence[Line]) -> Line:
    """One line of the runs beside each other; it is as large as the longest of them."""
    if len(row) == 1:
        return row[0]
    first = row[1] if len(row[0].text) == 1 else row[0]  # a bullet has a font of its own, and any space after it
    text, is_spread = row[0].text, False
    for one, other in pairwise(row):
        gap = (other.left - one.right) / other.size
        text += (" " if gap > WORD_GAP else "") + other.text
        is_spread = is_spread or (gap > SPREAD and first is not other)
    box, longest = around([run.box for run in row]), max(row, key=lambda run: len(run.text))
    return Line(text, *box, longest.size, first.font, is_spread)

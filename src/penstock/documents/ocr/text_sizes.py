"""Estimates font sizes of recognized lines.

The heights of the engine's boxes vary by a third among lines of one size. Their widths match the text, so the font size
follows from the width of the characters, to about 5 %. Only lines that are clearly larger or smaller than usual get a
size of their own; all others get the usual one.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, repeat, starmap

from penstock.documents.layout.lines import BoxedText, is_cjk
from penstock.documents.pages import Box

NARROW, WIDE = frozenset("iIljtf.,:;'|!()[]-/ "), frozenset("mwMW%@")
NARROW_WIDTH, WIDE_WIDTH, CAPITAL_WIDTH, USUAL_WIDTH = 0.28, 0.85, 0.69, 0.54  # in font sizes; Chinese is 1
AIR = 0.12  # horizontal padding of a box, as a share of its height
LARGER = 1.17  # width ratio of larger text; bold text has up to 1.13
LARGER_BOTH = 1.15  # geometric mean of width and height ratio
FEW_LETTERS, CLEARLY_LARGER = 2.5, 1.3  # a short text must be clearly larger
SMALLER, SMALLER_HEIGHT = 0.85, 0.9
BOLDER = 1.1  # headings are mostly bold, and so wider than their size alone
MIN_LARGER = 1.13  # smallest ratio of larger text


@dataclass(frozen=True, kw_only=True)
class TextSizes:
    """The usual font size and box height of a page."""

    letters: float
    height: float

    @classmethod
    def of(cls, pieces: Sequence[BoxedText]) -> "TextSizes":
        """Measure the texts of a page. Long texts count more."""
        if not pieces:
            return cls(letters=1.0, height=1.0)
        counts = [1 + len(text) // 10 for text, _ in pieces]
        return cls(
            letters=_median(starmap(_size, pieces), counts) or 1.0,
            height=_median((box[3] - box[1] for _, box in pieces), counts) or 1.0,
        )

    def line_size(self, text: str, box: Box) -> float:
        """The font size of a line; most often the usual one."""
        wider, higher = _size(text, box) / self.letters, (box[3] - box[1]) / self.height
        if wider < SMALLER and higher < SMALLER_HEIGHT:
            return self.letters * round(wider, 1)
        least = CLEARLY_LARGER if width_of(text) < FEW_LETTERS else LARGER_BOTH
        if wider < LARGER or math.sqrt(wider * higher) < least:
            return self.letters
        return self.letters * max(round(wider / BOLDER, 1), MIN_LARGER)


def width_of(text: str) -> float:
    """The width of a text, in font sizes."""
    return sum(map(_width, text))


def _size(text: str, box: Box) -> float:
    left, top, right, bottom = box
    return max(right - left - AIR * (bottom - top), 0.0) / width_of(text)


def _median(values: Iterable[float], counts: Iterable[int]) -> float:
    """The median of values that each count several times."""
    return statistics.median(chain.from_iterable(map(repeat, values, counts)))


@lru_cache(maxsize=4096)
def _width(letter: str) -> float:
    if letter in NARROW:
        return NARROW_WIDTH
    if letter in WIDE:
        return WIDE_WIDTH
    if is_cjk(letter):
        return 1.0
    return CAPITAL_WIDTH if letter.isupper() else USUAL_WIDTH

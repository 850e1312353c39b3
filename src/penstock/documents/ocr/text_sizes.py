"""How large the letters of a line are that OCR has seen.

The boxes of the engine are as high as they happen to be: among lines of one size they differ by a third. They are as
wide as the text, though, and by how much room its letters take, a line is measured to a twentieth. Only letters that
are clearly larger or smaller than usual count as such; all others are of one size.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, repeat, starmap

from penstock.documents.layout.lines import Piece, is_chinese
from penstock.documents.pages import Box

NARROW, WIDE = frozenset("iIljtf.,:;'|!()[]-/ "), frozenset("mwMW%@")
NARROW_WIDTH, WIDE_WIDTH, CAPITAL_WIDTH, USUAL_WIDTH = 0.28, 0.85, 0.69, 0.54  # of a letter's size; Chinese ones have 1
AIR = 0.12  # of a box's height, by which it is wider than its text
LARGER = 1.17  # times the usual width, for letters that are larger; bold ones have up to 1.13
LARGER_BOTH = 1.15  # by width and height together
FEW_LETTERS, CLEARLY_LARGER = 2.5, 1.3  # of a text that is no wider than this many letters, more is wanted
SMALLER, SMALLER_HEIGHT = 0.85, 0.9
BOLDER = 1.1  # by how much headings are wider beside being larger: most are bold
LEAST = 1.13  # of what is larger


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Of a page: how large its letters and how high its boxes are, usually."""

    letters: float
    height: float

    @classmethod
    def of(cls, pieces: Sequence[Piece]) -> "Sizes":
        """What is usual on a page with these pieces of text: long ones count for more."""
        if not pieces:
            return cls(letters=1.0, height=1.0)
        counts = [1 + len(text) // 10 for text, _ in pieces]
        return cls(
            letters=_median(starmap(_size, pieces), counts) or 1.0,
            height=_median((box[3] - box[1] for _, box in pieces), counts) or 1.0,
        )

    def of_line(self, text: str, box: Box) -> float:
        """The size of a line's letters; most often the usual one."""
        wider, higher = _size(text, box) / self.letters, (box[3] - box[1]) / self.height
        if wider < SMALLER and higher < SMALLER_HEIGHT:
            return self.letters * round(wider, 1)
        least = CLEARLY_LARGER if width_of(text) < FEW_LETTERS else LARGER_BOTH
        if wider < LARGER or math.sqrt(wider * higher) < least:
            return self.letters
        return self.letters * max(round(wider / BOLDER, 1), LEAST)


def width_of(text: str) -> float:
    """How wide a text is, in sizes of its letters."""
    return sum(map(_width, text))


def _size(text: str, box: Box) -> float:
    left, top, right, bottom = box
    return max(right - left - AIR * (bottom - top), 0.0) / width_of(text)


def _median(values: Iterable[float], counts: Iterable[int]) -> float:
    """Of values that each count several times."""
    return statistics.median(chain.from_iterable(map(repeat, values, counts)))


@lru_cache(maxsize=4096)
def _width(letter: str) -> float:
    if letter in NARROW:
        return NARROW_WIDTH
    if letter in WIDE:
        return WIDE_WIDTH
    if is_chinese(letter):
        return 1.0
    return CAPITAL_WIDTH if letter.isupper() else USUAL_WIDTH

"""Which way up a scan lies. Pages go through scanners sideways, upside down, and a little askew.

What the engine sees tells it: lines that stand on end, letters that it cannot make sense of, lines that rise or fall. A
page is laid out as if it lay straight, and the boxes of its pieces are then put back to where they stand on the page as
it is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from penstock.documents.pages import Box, Page, Span, rounded

LEAST_LETTERS = 20  # fewer say nothing about the page: a stamp, a number in a margin
READABLE = 0.8  # the least mean score of a page that lies upright; of one that lies otherwise it is below 0.7
ON_END = 1.5  # how much higher than wide a line is which the engine turns by a quarter before it reads it
LONG = 4.0  # how much longer than high a line is by whose slope something can be told
LEAST_SLANT, MOST_SLANT = math.radians(0.3), math.radians(15)

Point = tuple[float, float]


class Sight(NamedTuple):
    """A line as the engine sees it. Its corners go with the clock from the top left one."""

    corners: Sequence[Point]
    text: str
    score: float

    @property
    def size(self) -> tuple[float, float]:
        """Its width and height, whatever its slope."""
        top_left, top_right, _, bottom_left = self.corners
        return math.dist(top_left, top_right), math.dist(top_left, bottom_left)


@dataclass(frozen=True, kw_only=True)
class Lie:
    """How a page of this size lies: by how many quarters it must be turned against the clock to be upright, and how
    much its lines fall then, in radians."""

    width: float
    height: float
    turns: int = 0
    slant: float = 0.0

    @property
    def upright_size(self) -> tuple[float, float]:
        """Width and height of the page once it is turned."""
        return (self.height, self.width) if self.turns % 2 else (self.width, self.height)

    def straight(self, corners: Sequence[Point]) -> Box:
        """The box of a line on the page as it should lie. The corners are those on the turned page."""
        return _around([_rotated(point, -self.slant) for point in corners])

    def back(self, page: Page) -> Page:
        """A page that was laid out straight, with its boxes where things stand on the page as it is."""
        if not self.turns and not self.slant:
            return page
        spans = tuple(Span(span.text, span.box and self._back(span.box), *_cell(span)) for span in page.spans)
        return replace(page, spans=spans, width=round(self.width, 2), height=round(self.height, 2))

    def _back(self, box: Box) -> Box:
        left, top, right, bottom = box
        corners = (left, top), (right, top), (right, bottom), (left, bottom)
        return _around([self._turned_back(_rotated(point, self.slant)) for point in corners])

    def _turned_back(self, point: Point) -> Point:
        (x, y), (width, height) = point, self.upright_size
        for _ in range(self.turns):
            x, y = height - y, x
            width, height = height, width
        return x, y


def turns_worth_trying(sights: Sequence[Sight]) -> int:
    """By how many quarters a page should be turned against the clock to see whether it can be read then."""
    letters = sum(len(sight.text) for sight in sights)
    if letters < LEAST_LETTERS:
        return 0
    on_end = sum(len(sight.text) for sight in sights if sight.size[1] >= ON_END * sight.size[0])
    if 2 * on_end > letters:
        return 1 if is_readable(sights) else 3
    return 0 if is_readable(sights) else 2


def is_readable(sights: Sequence[Sight]) -> bool:
    """Whether the engine makes sense of what it sees."""
    letters = sum(len(sight.text) for sight in sights)
    return sum(sight.score * len(sight.text) for sight in sights) >= READABLE * letters > 0


def slant_of(sights: Sequence[Sight]) -> float:
    """How much lines fall, in the middle of all long ones; 0 when that is too little to matter, or too odd."""
    slopes = sorted((_slope(sight), sight.size[0]) for sight in sights if sight.size[0] >= LONG * sight.size[1])
    half, passed = sum(length for _, length in slopes) / 2, 0.0
    for slope, length in slopes:
        passed += length
        if passed >= half:
            return slope if LEAST_SLANT <= abs(slope) <= MOST_SLANT else 0.0
    return 0.0


def _slope(sight: Sight) -> float:
    (left, top), (right, fallen), *_ = sight.corners
    return math.atan2(fallen - top, right - left)


def _rotated(point: Point, angle: float) -> Point:
    """With the clock, about the top left corner of the page."""
    (x, y), cos, sin = point, math.cos(angle), math.sin(angle)
    return x * cos - y * sin, x * sin + y * cos


def _around(points: Sequence[Point]) -> Box:
    across, down = zip(*points, strict=True)
    return rounded((min(across), min(down), max(across), max(down)))


def _cell(span: Span) -> tuple[int | None, int | None, int | None]:
    return span.table, span.row, span.column

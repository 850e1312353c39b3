"""Orientation and skew of scanned pages: rotated by quarter turns, or slightly skewed.

The recognized lines show both: vertical lines, low scores, lines that slope. The page is laid out as if it were upright
and deskewed, and the boxes of its spans are then mapped back to the original page.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from penstock.documents.pages import Box, Page, Span, rounded

MIN_LETTERS = 20  # with fewer, the orientation is unknown: a stamp, a page number
READABLE = 0.8  # smallest mean score of an upright page; other orientations score below 0.7
ON_END = 1.5  # height to width ratio above which the engine rotates a line before recognition
LONG = 4.0  # width to height ratio of a line that is long enough to measure its slope
MIN_SKEW, MAX_SKEW = math.radians(0.3), math.radians(15)

Point = tuple[float, float]


class RecognizedLine(NamedTuple):
    """A line as the engine returns it. Corners are clockwise from the top left."""

    corners: Sequence[Point]
    text: str
    score: float

    @property
    def size(self) -> tuple[float, float]:
        """Width and height along the slope of the line."""
        top_left, top_right, _, bottom_left = self.corners
        return math.dist(top_left, top_right), math.dist(top_left, bottom_left)


@dataclass(frozen=True, kw_only=True)
class PageOrientation:
    """The orientation of a page: the counterclockwise quarter turns that make it upright, and the skew angle in radians
    after that (positive if lines fall to the right)."""

    width: float
    height: float
    quarter_turns: int = 0
    skew: float = 0.0

    @property
    def rotated_size(self) -> tuple[float, float]:
        """Width and height of the page after rotation."""
        return (self.height, self.width) if self.quarter_turns % 2 else (self.width, self.height)

    def deskew(self, corners: Sequence[Point]) -> Box:
        """The bounding box of a line on the deskewed page, from its corners on the rotated page."""
        return _bounding_box([_rotated(point, -self.skew) for point in corners])

    def to_original(self, page: Page) -> Page:
        """Map the boxes of a page that was laid out upright and deskewed back to the original page."""
        if not self.quarter_turns and not self.skew:
            return page
        spans = tuple(
            Span(span.text, span.box and self._box_to_original(span.box), *_cell(span)) for span in page.spans
        )
        return replace(page, spans=spans, width=round(self.width, 2), height=round(self.height, 2))

    def _box_to_original(self, box: Box) -> Box:
        left, top, right, bottom = box
        corners = (left, top), (right, top), (right, bottom), (left, bottom)
        return _bounding_box([self._point_to_original(_rotated(point, self.skew)) for point in corners])

    def _point_to_original(self, point: Point) -> Point:
        (x, y), (width, height) = point, self.rotated_size
        for _ in range(self.quarter_turns):
            x, y = height - y, x
            width, height = height, width
        return x, y


def quarter_turns_to_try(lines: Sequence[RecognizedLine]) -> int:
    """How many counterclockwise quarter turns might make the page readable; 0 if it already is."""
    letters = sum(len(line.text) for line in lines)
    if letters < MIN_LETTERS:
        return 0
    on_end = sum(len(line.text) for line in lines if line.size[1] >= ON_END * line.size[0])
    if 2 * on_end > letters:
        return 1 if is_readable(lines) else 3
    return 0 if is_readable(lines) else 2


def is_readable(lines: Sequence[RecognizedLine]) -> bool:
    """Whether the mean score is that of an upright page."""
    letters = sum(len(line.text) for line in lines)
    return sum(line.score * len(line.text) for line in lines) >= READABLE * letters > 0


def skew_angle(lines: Sequence[RecognizedLine]) -> float:
    """The median slope of long lines, weighted by length; 0 if it is negligible or implausible."""
    slopes = sorted((_slope(line), line.size[0]) for line in lines if line.size[0] >= LONG * line.size[1])
    half, passed = sum(length for _, length in slopes) / 2, 0.0
    for slope, length in slopes:
        passed += length
        if passed >= half:
            return slope if MIN_SKEW <= abs(slope) <= MAX_SKEW else 0.0
    return 0.0


def _slope(line: RecognizedLine) -> float:
    (left, top), (right, top_right_y), *_ = line.corners
    return math.atan2(top_right_y - top, right - left)


def _rotated(point: Point, angle: float) -> Point:
    """Rotate a point clockwise about the top left corner of the page."""
    (x, y), cos, sin = point, math.cos(angle), math.sin(angle)
    return x * cos - y * sin, x * sin + y * cos


def _bounding_box(points: Sequence[Point]) -> Box:
    across, down = zip(*points, strict=True)
    return rounded((min(across), min(down), max(across), max(down)))


def _cell(span: Span) -> tuple[int | None, int | None, int | None]:
    return span.table, span.row, span.column

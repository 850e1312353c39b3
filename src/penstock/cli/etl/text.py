"""Results as text for a terminal: values on one line, each with its place on the page."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.cli.text import shorten
from penstock.documents.pages import Box, Citation
from penstock.kernel.json_schema.pointers import escape_token

ROWS = ("top", "middle", "bottom")
COLUMNS = ("left", "centre", "right")

PageSizes = Mapping[int, tuple[float, float]]


def describe_place(place: Citation, sizes: PageSizes) -> str:
    """Where a value stands: `page 1, top left (12 % across, 18 % down)`."""
    if not place.grounded or place.page is None:
        return "not found in the document"
    width, height = sizes.get(place.page, (0, 0))
    if place.box is None or not width or not height:
        return f"page {place.page}"
    across, down = _centre(place.box, width, height)
    corner = f"{ROWS[_third(down)]} {COLUMNS[_third(across)]}"
    return f"page {place.page}, {corner} ({across:.0%} across, {down:.0%} down)"


def describe_fields(value: Any, places: Iterable[Citation], sizes: PageSizes) -> Iterator[tuple[str, str, str]]:
    """Each leaf of a result: its path, its value, and its place on the page."""
    known = {place.pointer: place for place in places}
    for pointer, leaf in _leaves(value, ""):
        place = known.get(pointer)
        where = describe_place(place, sizes) if place is not None else ""
        yield pointer.lstrip("/").replace("/", "."), "-" if leaf is None else shorten(leaf), where


def _leaves(value: Any, pointer: str) -> Iterator[tuple[str, Any]]:
    parts: Iterable[tuple[Any, Any]]
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    else:
        yield pointer, value
        return
    for name, inner in parts:
        yield from _leaves(inner, f"{pointer}/{escape_token(str(name))}")


def _centre(box: Box, width: float, height: float) -> tuple[float, float]:
    """The centre of a bounding box as shares of the page."""
    left, top, right, bottom = box
    return (left + right) / 2 / width, (top + bottom) / 2 / height


def _third(share: float) -> int:
    return min(2, max(0, int(share * 3)))

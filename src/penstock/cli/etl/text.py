"""Results as text for a terminal: values on one line, each with its place on the page."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size

from penstock.documents.extract.fields.schema import escape_pointer
from penstock.documents.pages import Box, Citation

ROWS = ("top", "middle", "bottom")
COLUMNS = ("left", "centre", "right")
MAX_CHARACTERS = 60

PageSizes = Mapping[int, tuple[float, float]]


def printable(text: object) -> str:
    """Untrusted text with control characters replaced, so that it cannot move the cursor or change colours."""
    return "".join(sign if sign.isprintable() else " " for sign in str(text))


def shorten(text: object, most: int = MAX_CHARACTERS) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(printable(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


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


def align(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows as lines with aligned columns. Chinese characters are two cells wide."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(set_cell_size(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()


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
        yield from _leaves(inner, f"{pointer}/{escape_pointer(str(name))}")


def _centre(box: Box, width: float, height: float) -> tuple[float, float]:
    """The centre of a bounding box as shares of the page."""
    left, top, right, bottom = box
    return (left + right) / 2 / width, (top + bottom) / 2 / height


def _third(share: float) -> int:
    return min(2, max(0, int(share * 3)))

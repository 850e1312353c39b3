"""How results are told to a person: values on one line, and where on the page each of them stands."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size

from penstock.documents.extract.fields.schema import escaped
from penstock.documents.ground import Box, Place

DOWN = ("top", "middle", "bottom")
ACROSS = ("left", "centre", "right")
MOST_CHARACTERS = 60


def plain(text: object) -> str:
    """Foreign text as a terminal may show it: nothing in it can move the cursor or change colours."""
    return "".join(sign if sign.isprintable() else " " for sign in str(text))


def shortened(text: object, most: int = MOST_CHARACTERS) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(plain(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def whereabouts(place: Place, sizes: Mapping[int, tuple[float, float]]) -> str:
    """Where a value stands, in words: `page 1, top left (12 % across, 18 % down)`. `sizes` are those of the pages."""
    if not place.grounded or place.page is None:
        return "not found in the document"
    width, height = sizes.get(place.page, (0, 0))
    if place.box is None or not width or not height:
        return f"page {place.page}"
    across, down = _share(place.box, width, height)
    corner = f"{DOWN[_third(down)]} {ACROSS[_third(across)]}"
    return f"page {place.page}, {corner} ({across:.0%} across, {down:.0%} down)"


def told_fields(
    value: Any, places: Iterable[Place], sizes: Mapping[int, tuple[float, float]]
) -> Iterator[tuple[str, str, str]]:
    """Each leaf of a result: its path, its value, and where it stands."""
    known = {place.pointer: place for place in places}
    for pointer, leaf in _leaves(value, ""):
        place = known.get(pointer)
        where = whereabouts(place, sizes) if place is not None else ""
        yield pointer.lstrip("/").replace("/", "."), "-" if leaf is None else shortened(leaf), where


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows as lines whose columns stand below each other; Chinese signs are two cells wide."""
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
        yield from _leaves(inner, f"{pointer}/{escaped(str(name))}")


def _share(box: Box, width: float, height: float) -> tuple[float, float]:
    left, top, right, bottom = box
    return (left + right) / 2 / width, (top + bottom) / 2 / height


def _third(share: float) -> int:
    return min(2, max(0, int(share * 3)))

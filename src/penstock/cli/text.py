"""Text for a terminal: untrusted text on one line, aligned columns, times."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import typer
from rich.cells import cell_len, set_cell_size

from penstock.kernel.clock import iso_millis

MAX_CHARACTERS = 60
AGE = re.compile(r"([0-9]{1,6})([smhd])", re.ASCII)
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def printable(text: object) -> str:
    """Untrusted text with control characters replaced, so that it cannot move the cursor or change colours."""
    return "".join(sign if sign.isprintable() else " " for sign in str(text))


def shorten(text: object, most: int = MAX_CHARACTERS) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(printable(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def align(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows as lines with aligned columns. Chinese characters are two cells wide."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(set_cell_size(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()


def show_time(moment: datetime | None) -> str:
    """A time in the format of the API and the log, or a dash."""
    return "-" if moment is None else iso_millis(moment)


def parse_moment(text: str, *, now: datetime) -> datetime:
    """A time with a zone, or an age before now such as 90s, 30m, 2h or 3d."""
    if age := AGE.fullmatch(text.strip()):
        return now - timedelta(**{UNITS[age[2]]: int(age[1])})
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise typer.BadParameter(
        f"invalid time {text!r}: expected an age such as 30m, 2h or 3d, or a time with a zone such as "
        "2026-01-01T08:00:00Z"
    )

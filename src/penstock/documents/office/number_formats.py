"""Formats the numbers of spreadsheet cells: dates, times, percentages and plain numbers.

A spreadsheet stores a date as a count of days, and only the cell format says that it is a date. Dates are written in
ISO 8601; other numbers with the 15 significant digits that spreadsheets have.
"""

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.documents.office.xml_names import child, children, number, value

BUILT_IN_DATES = frozenset({14, 15, 16, 17, 22, *range(27, 32), 36, *range(50, 59)})
BUILT_IN_TIMES = frozenset({18, 19, 20, 21, 32, 33, 34, 35, 45, 46, 47})
BUILT_IN_PERCENTAGES = frozenset({9, 10})
LITERALS = re.compile(r'"[^"]*"|\\.|_.|\*.|\[(?![hms]+\])[^\]]*\]', re.IGNORECASE)  # literals, colours, conditions
DAYS, CLOCK = re.compile(r"[yd]|m(?!\s*[:s])(?<!:m)", re.IGNORECASE), re.compile(r"[hs]", re.IGNORECASE)
FIRST_DAY = datetime(1899, 12, 30)  # noqa: DTZ001  (cells have no time zone); spreadsheets count a 29 February 1900
FIRST_DAY_1904 = datetime(1904, 1, 1)  # noqa: DTZ001  (as above)
MAX_DAYS = 2_958_465  # 9999-12-31


@dataclass(frozen=True, kw_only=True)
class CellFormats:
    """The meaning of each cell format of a workbook, by index."""

    meanings: tuple[str, ...]  # "date", "time", "percent" or ""
    first_day: datetime

    def formatted(self, text: str, style: int | None) -> str:
        """The number as text; anything that is not a number is returned unchanged."""
        meaning = self.meanings[style] if style is not None and 0 <= style < len(self.meanings) else ""
        if not meaning and text.isdecimal():
            return text  # an integer of any length
        try:
            count = float(text)
        except ValueError:
            return text
        if meaning == "percent":
            return f"{_format_number(count * 100)}%"
        if meaning and 0 <= count <= MAX_DAYS:
            return self._format_date(count, meaning)
        return _format_number(count)

    def _format_date(self, count: float, meaning: str) -> str:
        date = self.first_day + timedelta(seconds=round(count * 86400))
        if meaning == "time" and count < 1:
            return date.strftime("%H:%M:%S")
        if date.time() == self.first_day.time():
            return date.strftime("%Y-%m-%d")
        return date.strftime("%Y-%m-%d %H:%M:%S")


def formats_of(styles: ET.Element | None, *, from_1904: bool) -> CellFormats:
    """Read the cell formats from the styles of a workbook."""
    codes = {
        number(each, "numFmtId"): value(each, "formatCode") or ""
        for each in children(child(styles, "numFmts"), "numFmt")
    }
    meanings = tuple(
        _meaning(number(each, "numFmtId") or 0, codes) for each in children(child(styles, "cellXfs"), "xf")
    )
    return CellFormats(meanings=meanings, first_day=FIRST_DAY_1904 if from_1904 else FIRST_DAY)


def _meaning(format_id: int, codes: dict[int | None, str]) -> str:
    if format_id not in codes:
        known = ((BUILT_IN_DATES, "date"), (BUILT_IN_TIMES, "time"), (BUILT_IN_PERCENTAGES, "percent"))
        return next((meaning for forms, meaning in known if format_id in forms), "")
    code = LITERALS.sub("", codes[format_id].partition(";")[0])
    if code.strip().lower() == "general":
        return ""
    if DAYS.search(code):
        return "date"
    if CLOCK.search(code):
        return "time"
    return "percent" if "%" in code else ""


def _format_number(count: float) -> str:
    return f"{count:.15g}" if abs(count) < 1e15 or count % 1 else f"{count:.0f}"

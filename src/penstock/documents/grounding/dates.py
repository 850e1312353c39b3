"""Dates on a page in all common notations.

An ambiguous date counts as all its readings: grounding only confirms a date of the result, so nothing is guessed.
"""

import re
from collections.abc import Iterator
from datetime import date
from typing import NamedTuple, TypeAlias

DateParts: TypeAlias = tuple[int, int, int]  # year, month, day; the day is 0 where only the month is given

_NAMES = """
    january jan januar jän jänner janvier janv enero ene gennaio gen januari
    february feb februar février févr fév febrero febbraio febr februari
    march mar märz mär mrz mars marzo maart
    april apr avril avr abril abr aprile
    may mai mayo maggio mag mei
    june jun juni juin junio giugno giu
    july jul juli juillet juil julio luglio lug
    august aug août aout agosto ago augustus
    september sep sept septembre septiembre settembre set
    october oct oktober okt octobre octubre ottobre ott
    november nov novembre noviembre
    december dec dezember dez décembre déc diciembre dic dicembre
"""
MONTHS = {name: at for at, line in enumerate(_NAMES.strip().splitlines(), 1) for name in line.split()}

_NAME = r"([^\W\d_]{3,10})"
_ORDINAL = r"(?:st|nd|rd|th|er|º|\.)?"
_YEAR = r"(\d{4}|\d{2})(?!\d)"
_YEAR_FIRST = re.compile(r"(?<!\d)(\d{4})\s?([-/.年－／．])\s?(\d{1,2})\s?[-/.月－／．]\s?(\d{1,2})(?!\d)\s?[日号]?")
_COMPACT = re.compile(r"(?<!\d)((?:19|20)\d\d)(\d\d)(\d\d)(?!\d)")
_YEAR_LAST = re.compile(rf"(?<!\d)(\d{{1,2}})\s?([-/.－／．])\s?(\d{{1,2}})\s?\2\s?{_YEAR}")
_DAY_NAME = re.compile(
    rf"(?<!\d)(?:(\d{{1,2}}){_ORDINAL}\s?[-–]\s?)?(\d{{1,2}}){_ORDINAL}[\s\-./]{{0,2}}(?:(?:day )?of |de )?{_NAME}\.?"
    rf"[\s\-.,/'’]{{0,3}}(?:of |de )?{_YEAR}"
)
_NAME_DAY = re.compile(rf"(?<![^\W\d_]){_NAME}\.?\s{{0,2}}(\d{{1,2}}){_ORDINAL}[\s,.\-]{{1,3}}{_YEAR}")
_NAME_YEAR = re.compile(rf"(?<![^\W\d_]){_NAME}\.?[\s,\-./'’]{{0,2}}(?:of |de )?(\d{{4}})(?!\d)")
_MONTH_YEAR = re.compile(r"(?<![\d/.\-])(\d{1,2})\s?[/.\-]\s?(\d{4})(?![\d/.\-]\d|\d)")
_YEAR_MONTH = re.compile(r"(?<!\d)(\d{4})(?:\s?年\s?(\d{1,2})\s?月(?!\s?\d)|[-/.](\d{1,2})(?![-/.]?\d))")
_ISO = re.compile(r"(\d{4})-(\d{2})(?:-(\d{2}))?")


class DateSpan(NamedTuple):
    """A date in a text: its offsets and its possible readings."""

    start: int
    end: int
    dates: tuple[DateParts, ...]


def parse_iso_date(text: str) -> DateParts | None:
    """Parse an ISO 8601 date or month; a time after it is ignored."""
    match = _ISO.match(text)
    if match is None or text[match.end() : match.end() + 1] not in ("", "T", " "):
        return None
    year, month, day = (int(part or 0) for part in match.groups())
    return (year, month, day) if _is_date(year, month, day or 1) else None


def find_dates(text: str) -> Iterator[DateSpan]:
    """All dates of a text, in all notations."""
    for pattern, read in _NOTATIONS:
        for match in pattern.finditer(text):
            found = tuple(dict.fromkeys(day for day in read(match) if _is_date(day[0], day[1], day[2] or 1)))
            if found:
                yield DateSpan(match.start(), match.end(), found)


def non_overlapping_dates(text: str) -> list[DateSpan]:
    """The dates of a text in order; of overlapping ones, the first and longest."""
    kept: list[DateSpan] = []
    for each in sorted(find_dates(text), key=lambda each: (each.start, -each.end)):
        if not kept or each.start >= kept[-1].end:
            kept.append(each)
    return kept


def _year_first(match: re.Match[str]) -> Iterator[DateParts]:
    yield int(match[1]), int(match[3]), int(match[4])


def _compact(match: re.Match[str]) -> Iterator[DateParts]:
    yield int(match[1]), int(match[2]), int(match[3])


def _year_last(match: re.Match[str]) -> Iterator[DateParts]:
    first, second, last = int(match[1]), int(match[3]), match[4]
    for year in _years(last):
        yield year, second, first
        if match[2] not in ".．":  # with points, the day always comes first
            yield year, first, second
    if len(last) == 2:
        yield from ((year, second, int(last)) for year in _years(match[1]))


def _day_name(match: re.Match[str]) -> Iterator[DateParts]:
    month = MONTHS.get(match[3].casefold())
    if month is not None:
        for year in _years(match[4]):
            yield from ((year, month, int(day)) for day in (match[1], match[2]) if day)


def _name_day(match: re.Match[str]) -> Iterator[DateParts]:
    month = MONTHS.get(match[1].casefold())
    if month is not None:
        yield from ((year, month, int(match[2])) for year in _years(match[3]))


def _name_year(match: re.Match[str]) -> Iterator[DateParts]:
    month = MONTHS.get(match[1].casefold())
    if month is not None:
        yield int(match[2]), month, 0


def _month_year(match: re.Match[str]) -> Iterator[DateParts]:
    yield int(match[2]), int(match[1]), 0


def _year_month(match: re.Match[str]) -> Iterator[DateParts]:
    yield int(match[1]), int(match[2] or match[3]), 0


_NOTATIONS = (
    (_YEAR_FIRST, _year_first),
    (_COMPACT, _compact),
    (_YEAR_LAST, _year_last),
    (_DAY_NAME, _day_name),
    (_NAME_DAY, _name_day),
    (_NAME_YEAR, _name_year),
    (_MONTH_YEAR, _month_year),
    (_YEAR_MONTH, _year_month),
)


def _years(text: str) -> tuple[int, ...]:
    """A two-digit year may be of this century or of the last."""
    if len(text) == 4:
        return (int(text),)
    return (2000 + int(text), 1900 + int(text)) if len(text) == 2 else ()


def _is_date(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True

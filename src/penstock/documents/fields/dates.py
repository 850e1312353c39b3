"""Dates and times as people print them, written as RFC 3339 has them.

A date whose day and month cannot be told apart ("03/04/2026") is not read, nor is a year of two digits, nor a time of
day without its zone where the format asks for one: all of these would be guesses.
"""

import re
import unicodedata
from collections.abc import Iterator
from datetime import date, time

MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_NAMES = "|".join(f"{month[:3]}(?:{month[3:]})?" for month in MONTHS).replace("sep(?:", "sept?(?:")
_YEAR_FIRST = re.compile(r"(\d{4})\s*[-/.年]\s*(\d{1,2})\s*[-/.月]\s*(\d{1,2})\s*[日号]?")
_COMPACT = re.compile(r"((?:19|20)\d{2})(\d{2})(\d{2})")
_YEAR_LAST = re.compile(r"(\d{1,2})\s*([-/.])\s*(\d{1,2})\s*\2\s*(\d{4})")
_DAY_NAME = re.compile(rf"(\d{{1,2}})(?:st|nd|rd|th)?[\s\-.]*(?:of\s+)?({_NAMES})\.?[\s\-.,]*(\d{{4}})")
_NAME_DAY = re.compile(rf"({_NAMES})\.?[\s\-]*(\d{{1,2}})(?:st|nd|rd|th)?[\s,\-]*(\d{{4}})")
_WEEKDAY = re.compile(
    r"^(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?[,.]?\s+|\s*(?:星期|周)[一二三四五六日天]$"
)
_TIME = re.compile(
    r"(\d{1,2})[:时](\d{2})(?:[:分](\d{2})(\.\d{1,6})?)?[分秒]?\s*([ap]\.?m\.?)?\s*(z|utc|gmt|[+-]\d{2}:?\d{2})?"
)
_WHEN = re.compile(r"(?P<day>.*?[\d日号])(?:t|\s+|,\s*)(?P<time>\d{1,2}[:时]\d{2}.*)")


def dates(text: str) -> Iterator[str]:
    """The date that a text is, if it is one."""
    plain = _WEEKDAY.sub("", _plain(text)).strip()
    found = _year_first(plain) or _year_last(plain) or _with_name(plain)
    if found is not None:
        yield found


def times(text: str) -> Iterator[str]:
    """The time of day that a text is, with its zone where it has one."""
    match = _TIME.fullmatch(_plain(text))
    if match is None:
        return
    hour, minute, second, part, half, zone = match.groups()
    hours = _hours(int(hour), half)
    if hours is None or int(minute) > 59 or int(second or 0) > 59:
        return
    yield f"{time(hours, int(minute), int(second or 0)).isoformat()}{part or ''}{_zone(zone)}"


def moments(text: str) -> Iterator[str]:
    """The date with a time that a text is."""
    match = _WHEN.fullmatch(_plain(text))
    if match is None:
        return
    for day in dates(match["day"]):
        for moment in times(match["time"]):
            yield f"{day}T{moment}"


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()) if len(text) <= 60 else ""


def _year_first(text: str) -> str | None:
    match = _YEAR_FIRST.fullmatch(text) or _COMPACT.fullmatch(text)
    return _iso(*map(int, match.groups())) if match else None


def _year_last(text: str) -> str | None:
    match = _YEAR_LAST.fullmatch(text)
    if match is None:
        return None
    first, mark, second, year = match.groups()
    if mark == ".":  # only those who put the day first write points
        return _iso(int(year), int(second), int(first))
    ways = {_iso(int(year), int(first), int(second)), _iso(int(year), int(second), int(first))} - {None}
    return ways.pop() if len(ways) == 1 else None


def _with_name(text: str) -> str | None:
    if match := _DAY_NAME.fullmatch(text):
        day, name, year = match.groups()
    elif match := _NAME_DAY.fullmatch(text):
        name, day, year = match.groups()
    else:
        return None
    return _iso(int(year), 1 + next(at for at, month in enumerate(MONTHS) if month[:3] == name[:3]), int(day))


def _iso(year: int, month: int, day: int) -> str | None:
    try:
        return date(year, month, day).isoformat()
    except ValueError:
        return None


def _hours(hour: int, half: str | None) -> int | None:
    if half is None:
        return hour if hour <= 23 else None
    return hour % 12 + (12 if half.startswith("p") else 0) if 1 <= hour <= 12 else None


def _zone(zone: str | None) -> str:
    if zone is None:
        return ""
    if zone in ("z", "utc", "gmt"):
        return "Z"
    return zone if ":" in zone else f"{zone[:3]}:{zone[3:]}"

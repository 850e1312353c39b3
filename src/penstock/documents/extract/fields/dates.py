"""Parse dates and times in common notations into RFC 3339.

An ambiguous date ("03/04/2026"), a two-digit year, and a time without a zone where the format requires one are not
parsed: they would be guesses.
"""

import re
import unicodedata
from collections.abc import Iterator
from datetime import date, time

MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
# Also accepted: the first three letters, German and French names. None of these is another month in another language.
_MONTHS_DE_FR = (
    *("januar jänner janvier janv", "februar février fevrier févr fevr", "märz maerz mär mrz mars", "avril avr"),
    *("mai", "juni juin", "juli juillet juil", "août aout", "sept septembre", "oktober okt octobre"),
    *("novembre", "dezember dez décembre decembre déc"),
)
_MONTH_BY_NAME = {
    name: at
    for at, (month, others) in enumerate(zip(MONTHS, _MONTHS_DE_FR, strict=True), 1)
    for name in (month, month[:3], *others.split())
}
_NAMES = "|".join(sorted(_MONTH_BY_NAME, key=len, reverse=True))
_HAN_DIGITS = {sign: at for at, signs in enumerate(("〇零○", *"一二三四五六七八九")) for sign in signs}
_HAN_DAY = re.compile(
    r"([〇零○一二三四五六七八九]{4})年([一二三四五六七八九十]{1,2})月([一二三四五六七八九十]{1,3})[日号]"
)
_HAN_TENS = re.compile(r"([二三]?)十([一二三四五六七八九]?)|([一二三四五六七八九])")
_YEAR_FIRST = re.compile(r"(\d{4})\s*[-/.年]\s*(\d{1,2})\s*[-/.月]\s*(\d{1,2})\s*[日号]?")
_COMPACT = re.compile(r"((?:19|20)\d{2})(\d{2})(\d{2})")
_YEAR_LAST = re.compile(r"(\d{1,2})\s*([-/.])\s*(\d{1,2})\s*\2\s*(\d{4})")
_DAY_NAME = re.compile(rf"(\d{{1,2}})(?:st|nd|rd|th|er)?[\s\-.]*(?:of\s+)?({_NAMES})\.?[\s\-.,]*(\d{{4}})")
_NAME_DAY = re.compile(rf"({_NAMES})\.?[\s\-]*(\d{{1,2}})(?:st|nd|rd|th)?[\s,\-]*(\d{{4}})")
_WEEKDAY = re.compile(
    r"^(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?[,.]?\s+|\s*(?:星期|周)[一二三四五六日天]$"
)
_TIME = re.compile(
    r"(\d{1,2})[:时](\d{2})(?:[:分](\d{2})(\.\d{1,6})?)?[分秒]?\s*([ap]\.?m\.?)?\s*(z|utc|gmt|[+-]\d{2}:?\d{2})?"
)
_DATE_TIME = re.compile(r"(?P<day>.*?[\d日号])(?:t|\s+|,\s*)(?P<time>\d{1,2}[:时]\d{2}.*)")


def dates(text: str) -> Iterator[str]:
    """The date of a text, if the whole text is one."""
    plain = _WEEKDAY.sub("", _plain(text)).strip()
    found = _year_first(plain) or _year_last(plain) or _with_name(plain) or _in_han(plain)
    if found is not None:
        yield found


def dates_ignoring_time(text: str) -> Iterator[str]:
    """The date of a text, with or without a time after it."""
    when = _DATE_TIME.fullmatch(_plain(text))
    is_timed = when is not None and next(times(when["time"]), None) is not None
    return dates(when["day"] if when is not None and is_timed else text)


def times(text: str) -> Iterator[str]:
    """The time of a text, with its zone if it has one."""
    match = _TIME.fullmatch(_plain(text))
    if match is None:
        return
    hour, minute, second, part, meridiem, zone = match.groups()
    hours = _hours(int(hour), meridiem)
    if hours is None or int(minute) > 59 or int(second or 0) > 59:
        return
    yield f"{time(hours, int(minute), int(second or 0)).isoformat()}{part or ''}{_zone(zone)}"


def date_times(text: str) -> Iterator[str]:
    """The date and time of a text."""
    match = _DATE_TIME.fullmatch(_plain(text))
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
    if mark == ".":  # with points, the day always comes first
        return _iso(int(year), int(second), int(first))
    readings = {_iso(int(year), int(first), int(second)), _iso(int(year), int(second), int(first))} - {None}
    return readings.pop() if len(readings) == 1 else None


def _with_name(text: str) -> str | None:
    if match := _DAY_NAME.fullmatch(text):
        day, name, year = match.groups()
    elif match := _NAME_DAY.fullmatch(text):
        name, day, year = match.groups()
    else:
        return None
    return _iso(int(year), _MONTH_BY_NAME[name], int(day))


def _in_han(text: str) -> str | None:
    match = _HAN_DAY.fullmatch(text)
    if match is None:
        return None
    year, month, day = match[1], _below_hundred(match[2]), _below_hundred(match[3])
    return _iso(int("".join(str(_HAN_DIGITS[sign]) for sign in year)), month, day)


def _below_hundred(text: str) -> int:
    """The value of a numeral such as 二十三; 0 for anything else."""
    match = _HAN_TENS.fullmatch(text)
    if match is None:
        return 0
    if match[3]:
        return _HAN_DIGITS[match[3]]
    return 10 * _HAN_DIGITS.get(match[1], 1) + _HAN_DIGITS.get(match[2], 0)


def _iso(year: int, month: int, day: int) -> str | None:
    try:
        return date(year, month, day).isoformat()
    except ValueError:
        return None


def _hours(hour: int, meridiem: str | None) -> int | None:
    if meridiem is None:
        return hour if hour <= 23 else None
    return hour % 12 + (12 if meridiem.startswith("p") else 0) if 1 <= hour <= 12 else None


def _zone(zone: str | None) -> str:
    if zone is None:
        return ""
    if zone in ("z", "utc", "gmt"):
        return "Z"
    return zone if ":" in zone else f"{zone[:3]}:{zone[3:]}"

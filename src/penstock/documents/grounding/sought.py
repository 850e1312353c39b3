"""What is looked for: each value in all the ways in which a document may have it.

Values that are the same are looked for once. Text goes by its key, numbers by their digits, days by their day; all
three are dictionaries, so a page is read once, whatever the number of values.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from penstock.documents.extract.fields.dates import dates, times
from penstock.documents.extract.fields.numbers import readings
from penstock.documents.grounding.days import Day, day_of
from penstock.documents.grounding.leaves import Claim, Scalar
from penstock.documents.grounding.spelled import CURRENCIES, NO, SAME_WORDS, YES, day_words, number_words
from penstock.documents.grounding.tokens import key_of, tokens

MOST_KEY = 400  # letters of a text that is looked for in one piece
MOST_TEXT = 20_000  # letters of a text that is looked at; what comes after is not what decides
MOST_PARTS = 20
FEWEST_DIGITS = 5  # of a number that may be an identifier, written in groups
MOST_SIZE = 40  # digits

_NUMBER = re.compile(r"[-+−]?[\d.,' ]*\d%?")
_PARTS = re.compile(r"[,;，；、\n\r\t|]+|\s[-–—/]\s")
_WEB = re.compile(r"(?:https?://)?(?:www\.)?", re.IGNORECASE)
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ](\d{2}):(\d{2})")


@dataclass(kw_only=True, eq=False)
class Sought:
    """A value to look for, and the claims that state it."""

    value: Scalar
    keys: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()  # keys that together make up the text
    words: tuple[str, ...] = ()
    number: Decimal | None = None
    days: tuple[Day, ...] = ()
    hour: str = ""  # the time of day that must stand on the page of the day
    signs: tuple[str, ...] = ()  # what has no letters, such as €
    claims: list[Claim] = field(default_factory=list)
    is_found: bool = False


def sought_for(claims: list[Claim]) -> list[Sought]:
    """What the claims come to, the same value once."""
    found: dict[tuple[type, Scalar, bool], Sought] = {}
    for claim in claims:
        name = (type(claim.value), claim.value, claim.is_choice)
        if name not in found:
            found[name] = _sought(claim)
        found[name].claims.append(claim)
    return list(found.values())


def _sought(claim: Claim) -> Sought:
    value = claim.value
    if isinstance(value, bool):
        return Sought(value=value, keys=YES if value else NO)
    if isinstance(value, int | float):
        return _number(value)
    if day := day_of(value):
        return _day(value, day)
    return _text(value[:MOST_TEXT], is_choice=claim.is_choice)


def _number(value: int | float) -> Sought:
    number = Decimal(repr(value))
    if not number.is_finite() or abs(number.adjusted()) > MOST_SIZE:
        return Sought(value=value)
    keys = [*number_words(number)]
    if isinstance(value, int) and abs(value) >= 10 ** (FEWEST_DIGITS - 1):
        keys.append(str(abs(value)))
    return Sought(value=value, number=number, keys=tuple(map(key_of, keys)))


def _day(value: str, day: Day) -> Sought:
    year, month, number = day
    wanted = [day, (year, month, 0)] if number == 1 else [day]  # a month is often written as its first day
    hour = _TIME.match(value)
    keys = [*day_words(year, month, number)] + ([value] if not number else [])
    is_timed = hour is not None and hour[0][-5:] != "00:00"
    return Sought(
        value=value,
        days=tuple(wanted),
        keys=tuple(map(key_of, keys)),
        hour=f"{hour[1]}:{hour[2]}" if hour and is_timed else "",
    )


def _text(value: str, *, is_choice: bool) -> Sought:
    words = tuple(token.key for token in tokens(value))
    keys = list(dict.fromkeys(key_of(way) for way in _ways(value, is_choice=is_choice)))
    parts = [key for part in _PARTS.split(value)[: MOST_PARTS + 1] if (key := key_of(part))]
    number = next(readings(value), None) if _NUMBER.fullmatch(value) else None
    return Sought(
        value=value,
        keys=tuple(key for key in keys if 0 < len(key) <= MOST_KEY),
        parts=tuple(parts) if 1 < len(parts) <= MOST_PARTS else (),
        words=words,
        number=None if number is None else Decimal(repr(number)),
        days=tuple(_days(value)),
        signs=tuple(_signs(value)),
    )


def _ways(value: str, *, is_choice: bool) -> Iterator[str]:
    """The text itself, and other words for it."""
    yield value
    web = _WEB.match(value)
    if web and web[0]:
        yield value[web.end() :]
    yield from filter(str.isalnum, CURRENCIES.get(value.upper(), ()))
    yield from (f"{int(time[:2])}{time[3:5]}" for time in times(value) if time.startswith("0"))
    if is_choice:
        key = key_of(value)
        yield from (word for words in SAME_WORDS if key in words for word in words)


def _days(value: str) -> Iterator[Day]:
    for found in dates(value):
        if day := day_of(found):
            yield day


def _signs(value: str) -> Iterator[str]:
    """What of a value has no letters: money's signs, and a text that is nothing but marks."""
    if not key_of(value):
        yield value.strip()
    yield from (sign for sign in CURRENCIES.get(value.upper(), ()) if not sign.isalnum())

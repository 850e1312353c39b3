"""Search terms: each value in all forms in which a document may contain it.

Equal values share one term. Text is looked up by key, numbers by digits, dates by date; all are dictionary lookups, so
each page is read once, however many values there are.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from penstock.documents.extract.fields.dates import dates, times
from penstock.documents.extract.fields.numbers import readings
from penstock.documents.grounding.dates import DateParts, parse_iso_date
from penstock.documents.grounding.result_leaves import ResultLeaf, Scalar
from penstock.documents.grounding.spellings import CURRENCIES, NO, SYNONYMS, YES, date_words, number_words
from penstock.documents.grounding.tokens import text_key, tokens

MAX_KEY = 400  # letters of a text that is searched as a whole
MAX_TEXT = 20_000  # characters of a text that are searched; the rest does not decide
MAX_PARTS = 20
MIN_DIGITS = 5  # of a number that may be an identifier written in groups
MAX_SIZE = 40  # digits

_NUMBER = re.compile(r"[-+−]?[\d.,' ]*\d%?")
_PARTS = re.compile(r"[,;，；、\n\r\t|]+|\s[-–—/]\s")
_WEB = re.compile(r"(?:https?://)?(?:www\.)?", re.IGNORECASE)
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ](\d{2}):(\d{2})")


@dataclass(kw_only=True, eq=False)
class SearchTerm:
    """A value to search, and the leaves that have it."""

    value: Scalar
    keys: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()  # keys that make up the text
    words: tuple[str, ...] = ()
    number: Decimal | None = None
    dates: tuple[DateParts, ...] = ()
    time_of_day: str = ""  # must occur on the page of the date
    symbols: tuple[str, ...] = ()  # text without letters, such as €
    leaves: list[ResultLeaf] = field(default_factory=list)
    is_found: bool = False


def search_terms(leaves: list[ResultLeaf]) -> list[SearchTerm]:
    """The terms of these leaves, one per distinct value."""
    found: dict[tuple[type, Scalar, bool], SearchTerm] = {}
    for leaf in leaves:
        identity = (type(leaf.value), leaf.value, leaf.is_choice)
        if identity not in found:
            found[identity] = _term(leaf)
        found[identity].leaves.append(leaf)
    return list(found.values())


def _term(leaf: ResultLeaf) -> SearchTerm:
    value = leaf.value
    if isinstance(value, bool):
        return SearchTerm(value=value, keys=YES if value else NO)
    if isinstance(value, int | float):
        return _number_term(value)
    if date := parse_iso_date(value):
        return _date_term(value, date)
    return _text_term(value[:MAX_TEXT], is_choice=leaf.is_choice)


def _number_term(value: int | float) -> SearchTerm:
    number = Decimal(repr(value))
    if not number.is_finite() or abs(number.adjusted()) > MAX_SIZE:
        return SearchTerm(value=value)
    keys = [*number_words(number)]
    if isinstance(value, int) and abs(value) >= 10 ** (MIN_DIGITS - 1):
        keys.append(str(abs(value)))
    return SearchTerm(value=value, number=number, keys=tuple(map(text_key, keys)))


def _date_term(value: str, date: DateParts) -> SearchTerm:
    year, month, number = date
    days = [date, (year, month, 0)] if number == 1 else [date]  # a month is often written as its first day
    time = _TIME.match(value)
    keys = [*date_words(year, month, number)] + ([value] if not number else [])
    is_timed = time is not None and time[0][-5:] != "00:00"
    return SearchTerm(
        value=value,
        dates=tuple(days),
        keys=tuple(map(text_key, keys)),
        time_of_day=f"{time[1]}:{time[2]}" if time and is_timed else "",
    )


def _text_term(value: str, *, is_choice: bool) -> SearchTerm:
    words = tuple(token.key for token in tokens(value))
    keys = list(dict.fromkeys(text_key(spelling) for spelling in _spellings(value, is_choice=is_choice)))
    parts = [key for part in _PARTS.split(value)[: MAX_PARTS + 1] if (key := text_key(part))]
    number = next(readings(value), None) if _NUMBER.fullmatch(value) else None
    return SearchTerm(
        value=value,
        keys=tuple(key for key in keys if 0 < len(key) <= MAX_KEY),
        parts=tuple(parts) if 1 < len(parts) <= MAX_PARTS else (),
        words=words,
        number=None if number is None else Decimal(repr(number)),
        dates=tuple(_dates(value)),
        symbols=tuple(_symbols(value)),
    )


def _spellings(value: str, *, is_choice: bool) -> Iterator[str]:
    """The text itself, and other spellings of it."""
    yield value
    web = _WEB.match(value)
    if web and web[0]:
        yield value[web.end() :]
    yield from filter(str.isalnum, CURRENCIES.get(value.upper(), ()))
    yield from (f"{int(time[:2])}{time[3:5]}" for time in times(value) if time.startswith("0"))
    if is_choice:
        key = text_key(value)
        yield from (word for words in SYNONYMS if key in words for word in words)


def _dates(value: str) -> Iterator[DateParts]:
    for found in dates(value):
        if date := parse_iso_date(found):
            yield date


def _symbols(value: str) -> Iterator[str]:
    """Forms without letters: currency symbols, and a text of punctuation only."""
    if not text_key(value):
        yield value.strip()
    yield from (symbol for symbol in CURRENCIES.get(value.upper(), ()) if not symbol.isalnum())

"""Parse numbers in common notations: "1,234.50", "1.234,50", "¥ 1,200", "(12.00)", "13%", "1.2万", "5 million".

A single separator is read as in English: a comma before three digits groups, a point is decimal. An ambiguous text has
several readings, the likeliest first, and the schema decides: an integer cannot be 1.234. An unambiguous magnitude
multiplies; an ambiguous one makes the text unreadable.
"""

import itertools
import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal

from penstock.documents.extract.fields.magnitudes import (
    DECIMAL_COMMA_WORDS,
    END,
    HAN,
    WORD,
    is_ambiguous_unit,
    multiplier,
)

MAX_DIGITS = 18  # more do not fit 64 bits, and are an identifier
EXACT_DIGITS = 15  # of a float
MAX_TEXT = 60  # characters

CODES = "USD|EUR|GBP|CNY|RMB|JPY|HKD|TWD|NTD|KRW|SGD|AUD|CAD|CHF|INR|SEK|NOK|DKK|PLN|CZK|BRL|MXN|ZAR|THB|VND|MYR|IDR"
_MONEY = rf"(?:[A-Z]{{0,3}}[$€£¥₩₹]|(?:{CODES})\b|人民币)"
_YUAN = "(?:元整?|圆整?)"
_AFTER = rf"(?:{_MONEY}|{_YUAN}|[^\W\d_]{{1,10}}\.?|°\s?[CFK]?|%|‰)"
_END = rf"(?:{END}|(?=(?:{CODES})\b))"  # "MioEUR"
_LETTER = rf"(?:(?i:mm|[kmb]|tn){_END}\.?|T(?=€|(?:EUR|CHF)\b))"  # T€ and TEUR are thousands
_PLAIN_SIGNS = str.maketrans({"−": "-", "–": "-", "٪": "%", "’": "'", "\u00a0": " ", "\u202f": " ", "\u2009": " "})
_NUMBER = re.compile(
    rf"(?P<open>\()?\s*(?P<sign>[+-])?\s*(?P<money>{_MONEY})?\s*(?P<sign2>[+-])?\s*"
    rf"(?P<digits>\d[\d.,' ]*|[.,]\d+)\s*(?:(?P<size>{WORD}{_END}\.?|{HAN})|(?P<letter>{_LETTER}))?"
    rf"\s*(?P<unit>{_AFTER})?\s*(?P<sign3>-)?\s*(?P<close>\))?"
)
_IS_MONEY = re.compile(rf"{_MONEY}|{_YUAN}")
_SCALED_CURRENCY = re.compile(rf"(?:[TKB]|MM?)[$€£¥₩₹]|(?:{CODES})(?i:k|mm?|mn|bn?|t)")  # "K€ 5", "5 USDm"
_GROUPED = re.compile(r"[1-9]\d{0,2}(?:(?P<by>[,.' ])\d{3})(?:(?P=by)\d{3})*")
_INDIAN = re.compile(r"\d{1,2}(?:,\d{2})+,\d{3}")
_THREE_PLACES = re.compile(r"\d{1,3}[.,]\d{3}")
# Suffixes that do not change an amount: with or without tax, per period, the amount in words. None of them may change
# its value or its sign.
_TAXES = r"vat|gst|tax(?:es)?|mwst|ust|tva|ht|ttc"
_NOTE = (
    rf"(?:(?:excl|incl|inkl|exkl|zzgl|excluding|including|before|after|net|gross|netto|brutto|ex|inc|of|{_TAXES})\.?\s*)+"
    r"|(?:不含税|未含税|含税|价税合计|税前|税后|净重|毛重)|大写\s*:?\s*[^\d()负亏]*"
)
_SPAN = r"year|annum|quarter|month|week|day|hour|night|person|unit|piece|item|user|seat"
_SUFFIX = re.compile(rf"(?i:(?<=\S)\s*(?:\((?:{_NOTE})\)|\bper\s+(?:{_SPAN})|\bp\.\s?a\.)?[。;]?$)")
_PER = {"%": 100, "‰": 1000}


def readings(text: str) -> Iterator[int | float]:
    """The possible numbers of a text, the likeliest first; nothing when it is not exactly one number. A percentage is
    both the printed number and the fraction."""
    for number, per in _read(text):
        yield from _json_numbers(number)
        if per > 1:
            yield from _json_numbers(number / per)


def as_printed(text: str) -> Iterator[int | float]:
    """The possible numbers of a text, with a percentage as printed: 13% is 13."""
    return itertools.chain.from_iterable(_json_numbers(number) for number, _ in _read(text))


def as_fractions(text: str) -> Iterator[int | float]:
    """The possible numbers of a text, with a percentage as a fraction: 13% is 0.13."""
    return itertools.chain.from_iterable(_json_numbers(number / per) for number, per in _read(text))


def _read(text: str) -> Iterator[tuple[Decimal, int]]:
    """The possible numbers of a text as printed, each with its divisor: 1, 100 or 1000."""
    plain = unicodedata.normalize("NFKC", text).translate(_PLAIN_SIGNS).strip()
    match = _NUMBER.fullmatch(_SUFFIX.sub("", plain)) if len(plain) <= MAX_TEXT else None
    if match is None or bool(match["open"]) != bool(match["close"]):
        return
    signs = [sign for sign in (match["sign"], match["sign2"], match["sign3"], match["open"]) if sign]
    factor = _multiplier(match)
    per = _PER.get(match["unit"] or "", 1)
    if len(signs) > 1 or factor is None or (per > 1 and match["open"]):
        return  # a percentage in brackets may be a remark
    # Normalized to a power of ten, it adds no zeros to the digits, which are counted below.
    signed = Decimal(factor).normalize() * (-1 if signs and signs[0] in "-(" else 1)
    for number in _digit_readings(match["digits"].strip()):
        yield number * signed, per


def _multiplier(match: re.Match[str]) -> int | None:
    """The factor of the words after a number; None when it is ambiguous."""
    size, letter, money, unit = match["size"], match["letter"], match["money"] or "", match["unit"] or ""
    if letter and _is_magnitude_letter(match):
        size = letter
    elif letter and unit:
        return None  # "5 m people"
    elif letter:
        unit = letter
    is_money = _IS_MONEY.fullmatch(money) is not None or _IS_MONEY.fullmatch(unit) is not None
    if is_ambiguous_unit(unit, is_money=is_money) or any(map(_SCALED_CURRENCY.fullmatch, (money, unit))):
        return None
    if not size:
        return 1
    # "1,234 Mio." is 1.234 million in German and 1234 million in English.
    is_mixed = size.rstrip(".").casefold() in DECIMAL_COMMA_WORDS and _THREE_PLACES.fullmatch(match["digits"].strip())
    return None if is_mixed else multiplier(size)


def _is_magnitude_letter(match: re.Match[str]) -> bool:
    """Whether a letter is a magnitude: between a number and its currency, or directly after an amount of money. After a
    space it may be the tax code of a receipt: "€ 1.29 B"."""
    if _IS_MONEY.fullmatch(match["unit"] or ""):
        return True
    is_attached = match.string[match.start("letter") - 1].isdigit()
    is_known = match["money"] is not None
    return (is_attached or is_known) if match["letter"] in ("k", "K") else (is_attached and is_known)


def _digit_readings(digits: str) -> Iterator[Decimal]:
    if sum(map(str.isdigit, digits)) > MAX_DIGITS:
        return
    whole, point, rest = _split_at_last_mark(digits)
    if not point:
        yield from _whole_numbers(digits)
        return
    if (
        rest.isdigit()
        and (english := _ungrouped(whole, but=point)) is not None
        and not (point == "," and len(rest) == 3 and whole != "0")
    ):
        yield Decimal(f"{english or 0}.{rest}")
    yield from _whole_numbers(digits)


def _split_at_last_mark(digits: str) -> tuple[str, str, str]:
    cut = max(digits.rfind("."), digits.rfind(","))
    return (digits[:cut], digits[cut], digits[cut + 1 :]) if cut >= 0 else (digits, "", "")


def _whole_numbers(digits: str) -> Iterator[Decimal]:
    ungrouped = _ungrouped(digits, but="")
    if ungrouped:
        yield Decimal(ungrouped)


def _ungrouped(digits: str, *, but: str) -> str | None:
    """The digits without group separators; None when they are not grouped like a number."""
    if not digits or digits.isdigit():
        return digits
    grouped = _GROUPED.fullmatch(digits)
    if grouped is not None and grouped["by"] != but:
        return re.sub(r"\D", "", digits)
    return digits.replace(",", "") if but != "," and _INDIAN.fullmatch(digits) else None


def _json_numbers(number: Decimal) -> Iterator[int | float]:
    if number == number.to_integral_value() and abs(number) < 10**MAX_DIGITS:
        yield int(number)
    elif len(number.as_tuple().digits) <= EXACT_DIGITS:
        yield float(number)

"""Numbers as people print them: "1,234.50", "1.234,50", "¥ 1,200", "(12.00)", "13%", "1.2万".

One separator alone is read as English has it: a comma before three digits groups, a point is decimal. A text with two
readings gives both, the likelier first, and the schema decides: an integer cannot be 1.234.
"""

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal

MOST_DIGITS = 18  # more fits no 64-bit number, and is an identifier rather than a number
EXACT_DIGITS = 15  # of a float

CODES = "USD|EUR|GBP|CNY|RMB|JPY|HKD|TWD|NTD|KRW|SGD|AUD|CAD|CHF|INR|SEK|NOK|DKK|PLN|CZK|BRL|MXN|ZAR|THB|VND|MYR|IDR"
_MONEY = rf"(?:[A-Z]{{0,3}}[$€£¥₩₹]|(?:{CODES})\b|人民币)"
_AFTER = rf"(?:{_MONEY}|元整?|圆整?|[^\W\d_]{{1,10}}\.?|%|‰)"
_SIGNS = str.maketrans({"−": "-", "–": "-", "٪": "%", "’": "'", "\u00a0": " ", "\u202f": " ", "\u2009": " "})
_SHAPE = re.compile(
    rf"(?P<open>\()?\s*(?P<sign>[+-])?\s*{_MONEY}?\s*(?P<sign2>[+-])?\s*"
    rf"(?P<digits>\d[\d.,' ]*|[.,]\d+)(?P<times>[万亿])?\s*(?P<unit>{_AFTER})?\s*(?P<sign3>-)?\s*(?P<close>\))?"
)
_GROUPED = re.compile(r"\d{1,3}(?:(?P<by>[,.' ])\d{3})(?:(?P=by)\d{3})*")
_INDIAN = re.compile(r"\d{1,2}(?:,\d{2})+,\d{3}")
_TIMES = {"万": 10_000, "亿": 100_000_000, None: 1}
_PARTS = {"%": 100, "‰": 1000}


def readings(text: str) -> Iterator[int | float]:
    """What number a text may be, the likeliest first. Nothing when it is not just one number."""
    plain = unicodedata.normalize("NFKC", text).translate(_SIGNS).strip()
    shape = _SHAPE.fullmatch(plain) if len(plain) <= 60 else None
    if shape is None or bool(shape["open"]) != bool(shape["close"]):
        return
    signs = [sign for sign in (shape["sign"], shape["sign2"], shape["sign3"], shape["open"]) if sign]
    if len(signs) > 1:
        return
    factor = Decimal(_TIMES[shape["times"]]) * (-1 if signs and signs[0] in "-(" else 1)
    for number in _plain_readings(shape["digits"].strip()):
        yield from _as_json(number * factor)
        if shape["unit"] in _PARTS:
            yield from _as_json(number * factor / _PARTS[shape["unit"]])


def _plain_readings(digits: str) -> Iterator[Decimal]:
    if sum(map(str.isdigit, digits)) > MOST_DIGITS:
        return
    whole, point, rest = _at_last_mark(digits)
    if not point:
        yield from _whole(digits)
        return
    if (
        rest.isdigit()
        and (english := _ungrouped(whole, but=point)) is not None
        and not (point == "," and len(rest) == 3)
    ):
        yield Decimal(f"{english or 0}.{rest}")
    yield from _whole(digits)


def _at_last_mark(digits: str) -> tuple[str, str, str]:
    cut = max(digits.rfind("."), digits.rfind(","))
    return (digits[:cut], digits[cut], digits[cut + 1 :]) if cut >= 0 else (digits, "", "")


def _whole(digits: str) -> Iterator[Decimal]:
    ungrouped = _ungrouped(digits, but="")
    if ungrouped:
        yield Decimal(ungrouped)


def _ungrouped(digits: str, *, but: str) -> str | None:
    """The digits without what groups them, None when they are not grouped as numbers are."""
    if not digits or digits.isdigit():
        return digits
    grouped = _GROUPED.fullmatch(digits)
    if grouped is not None and grouped["by"] != but:
        return re.sub(r"\D", "", digits)
    return digits.replace(",", "") if but != "," and _INDIAN.fullmatch(digits) else None


def _as_json(number: Decimal) -> Iterator[int | float]:
    if number == number.to_integral_value() and abs(number) < 10**MOST_DIGITS:
        yield int(number)
    elif len(number.as_tuple().digits) <= EXACT_DIGITS:
        yield float(number)

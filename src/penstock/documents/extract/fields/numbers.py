"""Numbers as people print them: "1,234.50", "1.234,50", "¥ 1,200", "(12.00)", "13%", "1.2万", "5 million".

One separator alone is read as English has it: a comma before three digits groups, a point is decimal. A text with two
readings gives both, the likelier first, and the schema decides: an integer cannot be 1.234. A magnitude multiplies
where it is certain; where it is not, there is no reading.
"""

import itertools
import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal

from penstock.documents.extract.fields.magnitudes import END, HAN, OF_DECIMAL_COMMA, WORD, is_in_doubt, times_of

MOST_DIGITS = 18  # more fits no 64-bit number, and is an identifier rather than a number
EXACT_DIGITS = 15  # of a float
MOST_TEXT = 60  # characters

CODES = "USD|EUR|GBP|CNY|RMB|JPY|HKD|TWD|NTD|KRW|SGD|AUD|CAD|CHF|INR|SEK|NOK|DKK|PLN|CZK|BRL|MXN|ZAR|THB|VND|MYR|IDR"
_MONEY = rf"(?:[A-Z]{{0,3}}[$€£¥₩₹]|(?:{CODES})\b|人民币)"
_YUAN = "(?:元整?|圆整?)"
_AFTER = rf"(?:{_MONEY}|{_YUAN}|[^\W\d_]{{1,10}}\.?|°\s?[CFK]?|%|‰)"
_END = rf"(?:{END}|(?=(?:{CODES})\b))"  # "MioEUR"
_LETTER = rf"(?:(?i:mm|[kmb]|tn){_END}\.?|T(?=€|(?:EUR|CHF)\b))"  # T€ and TEUR are thousands
_SIGNS = str.maketrans({"−": "-", "–": "-", "٪": "%", "’": "'", "\u00a0": " ", "\u202f": " ", "\u2009": " "})
_SHAPE = re.compile(
    rf"(?P<open>\()?\s*(?P<sign>[+-])?\s*(?P<money>{_MONEY})?\s*(?P<sign2>[+-])?\s*"
    rf"(?P<digits>\d[\d.,' ]*|[.,]\d+)\s*(?:(?P<size>{WORD}{_END}\.?|{HAN})|(?P<letter>{_LETTER}))?"
    rf"\s*(?P<unit>{_AFTER})?\s*(?P<sign3>-)?\s*(?P<close>\))?"
)
_IS_MONEY = re.compile(rf"{_MONEY}|{_YUAN}")
_SIZED_MONEY = re.compile(rf"(?:[TKB]|MM?)[$€£¥₩₹]|(?:{CODES})(?i:k|mm?|mn|bn?|t)")  # "K€ 5", "5 USDm"
_GROUPED = re.compile(r"[1-9]\d{0,2}(?:(?P<by>[,.' ])\d{3})(?:(?P=by)\d{3})*")
_INDIAN = re.compile(r"\d{1,2}(?:,\d{2})+,\d{3}")
_ONE_OF_THREE = re.compile(r"\d{1,3}[.,]\d{3}")
# What may stand after an amount without changing it: with or without tax, for how long, and once more in words. A word
# that may change its size or its sign is not among these.
_TAXES = r"vat|gst|tax(?:es)?|mwst|ust|tva|ht|ttc"
_NOTE = (
    rf"(?:(?:excl|incl|inkl|exkl|zzgl|excluding|including|before|after|net|gross|netto|brutto|ex|inc|of|{_TAXES})\.?\s*)+"
    r"|(?:不含税|未含税|含税|价税合计|税前|税后|净重|毛重)|大写\s*:?\s*[^\d()负亏]*"
)
_SPAN = r"year|annum|quarter|month|week|day|hour|night|person|unit|piece|item|user|seat"
_AFTERTHOUGHT = re.compile(rf"(?i:(?<=\S)\s*(?:\((?:{_NOTE})\)|\bper\s+(?:{_SPAN})|\bp\.\s?a\.)?[。;]?$)")
_PARTS = {"%": 100, "‰": 1000}


def readings(text: str) -> Iterator[int | float]:
    """What number a text may be, the likeliest first. Nothing when it is not just one number. A percentage is both
    what is printed and the part of one."""
    for number, per in _read(text):
        yield from _as_json(number)
        if per > 1:
            yield from _as_json(number / per)


def printed(text: str) -> Iterator[int | float]:
    """What number a text may be, a percentage as what is printed: 13% is 13."""
    return itertools.chain.from_iterable(_as_json(number) for number, _ in _read(text))


def shares(text: str) -> Iterator[int | float]:
    """What number a text may be, a percentage as the part of one: 13% is 0.13."""
    return itertools.chain.from_iterable(_as_json(number / per) for number, per in _read(text))


def _read(text: str) -> Iterator[tuple[Decimal, int]]:
    """The numbers that are printed, and the whole that each is a part of: 1, 100 or 1000."""
    plain = unicodedata.normalize("NFKC", text).translate(_SIGNS).strip()
    shape = _SHAPE.fullmatch(_AFTERTHOUGHT.sub("", plain)) if len(plain) <= MOST_TEXT else None
    if shape is None or bool(shape["open"]) != bool(shape["close"]):
        return
    signs = [sign for sign in (shape["sign"], shape["sign2"], shape["sign3"], shape["open"]) if sign]
    times = _times(shape)
    per = _PARTS.get(shape["unit"] or "", 1)
    if len(signs) > 1 or times is None or (per > 1 and shape["open"]):
        return  # a percentage in brackets is a remark as often as it is below zero
    # As a power of ten it adds no zeros to the digits, which are counted below.
    factor = Decimal(times).normalize() * (-1 if signs and signs[0] in "-(" else 1)
    for number in _plain_readings(shape["digits"].strip()):
        yield number * factor, per


def _times(shape: re.Match[str]) -> int | None:
    """What the words after a number multiply it by, None when that cannot be told."""
    size, letter, money, unit = shape["size"], shape["letter"], shape["money"] or "", shape["unit"] or ""
    if letter and _is_magnitude(shape):
        size = letter
    elif letter and unit:
        return None  # "5 m people"
    elif letter:
        unit = letter
    is_money = _IS_MONEY.fullmatch(money) is not None or _IS_MONEY.fullmatch(unit) is not None
    if is_in_doubt(unit, is_money=is_money) or any(map(_SIZED_MONEY.fullmatch, (money, unit))):
        return None
    if not size:
        return 1
    # "1,234 Mio." is a little over one, read as German has it, and over a thousand as English has it.
    is_mixed = size.rstrip(".").casefold() in OF_DECIMAL_COMMA and _ONE_OF_THREE.fullmatch(shape["digits"].strip())
    return None if is_mixed else times_of(size)


def _is_magnitude(shape: re.Match[str]) -> bool:
    """Whether a letter is one: between a number and its currency, or right behind an amount of money. Behind a space
    it may be the tax code of a receipt: "€ 1.29 B"."""
    if _IS_MONEY.fullmatch(shape["unit"] or ""):
        return True
    is_attached = shape.string[shape.start("letter") - 1].isdigit()
    is_known = shape["money"] is not None
    return (is_attached or is_known) if shape["letter"] in ("k", "K") else (is_attached and is_known)


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
        and not (point == "," and len(rest) == 3 and whole != "0")
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

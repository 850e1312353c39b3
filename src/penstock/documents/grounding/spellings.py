"""Other spellings of a value: numbers and dates in words, currency symbols, yes and no, common synonyms.

They are derived from the value, a handful each, and searched like any text, so documents are not parsed for numerals.
"""

from collections.abc import Iterator
from decimal import Decimal

MAX_SPELLED = 10**12

_ENGLISH = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen
"""
_ENGLISH_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_GERMAN = """
    null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn
    achtzehn neunzehn
"""
_GERMAN_TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig"
_PLAIN_HAN = "零一二三四五六七八九", ("", "十", "百", "千"), ("", "万", "亿")
_FORMAL_HAN = "零壹贰叁肆伍陆柒捌玖", ("", "拾", "佰", "仟"), ("", "万", "亿")
HAN_NUMERALS = frozenset("〇零一二三四五六七八九十百千万亿两壹贰叁肆伍陆柒捌玖拾佰仟")

CURRENCIES = {
    "EUR": ("€", "euro", "euros", "欧元"),
    "USD": ("$", "US$", "dollar", "dollars", "美元"),
    "GBP": ("£", "pound", "pounds", "sterling", "英镑"),
    "CNY": ("¥", "￥", "rmb", "元", "圆", "人民币"),
    "RMB": ("¥", "￥", "cny", "元", "圆", "人民币"),
    "JPY": ("¥", "￥", "yen", "円", "日元"),
    "CHF": ("Fr.", "sfr", "franken", "francs"),
    "INR": ("₹", "rs", "rupees"),
    "KRW": ("₩", "won"),
    "HKD": ("HK$", "$", "港元", "港币"),
    "CAD": ("C$", "CA$", "$"),
    "AUD": ("A$", "AU$", "$"),
    "SGD": ("S$", "$"),
    "TWD": ("NT$", "元", "圆"),
}
YES = ("yes", "true", "ja", "oui", "sí", "y", "checked", "是", "有", "对")
NO = ("no", "false", "nein", "non", "n", "unchecked", "否", "无", "不是")
SYNONYMS = (
    ("male", "m", "man", "männlich", "mann", "男", "男性"),
    ("female", "f", "w", "woman", "weiblich", "frau", "女", "女性"),
    YES,
    NO,
)


def number_words(number: Decimal) -> Iterator[str]:
    """A number in words: below 100 in English and German; in Chinese below 10^12, and amounts of money."""
    if not 0 <= number < MAX_SPELLED:
        return
    if number != number.to_integral_value():
        yield from _hundredths(number)
        return
    whole = int(number)
    if whole == 2:
        yield "两"
    if whole < 100:
        yield from (word for word in (_english(whole), _german(whole)) if word)
    if whole >= 2:
        spelled = _han(whole, *_PLAIN_HAN)
        yield from (spelled, _han(whole, *_FORMAL_HAN))
        if spelled.startswith("一十"):
            yield spelled.removeprefix("一")
        if spelled.startswith(("二百", "二千", "二万")):
            yield spelled.replace("二", "两", 1)


def _hundredths(number: Decimal) -> Iterator[str]:
    """Two decimal places in Chinese: as money (壹佰元伍角贰分), or below one as a percentage (百分之十三)."""
    cents = int(number * 100)
    if cents != number * 100:
        return
    whole, (tenth, hundredth) = cents // 100, divmod(cents % 100, 10)
    if not whole:
        share = _han(cents, *_PLAIN_HAN)
        yield f"百分之{share}"
        if share.startswith("一十"):
            yield f"百分之{share.removeprefix('一')}"
        return
    for digits, tens, groups in (_FORMAL_HAN, _PLAIN_HAN):
        rest = (digits[tenth] + "角" if tenth else digits[0]) + (digits[hundredth] + "分" if hundredth else "")
        yield from (f"{_han(whole, digits, tens, groups)}{yuan}{rest}" for yuan in "元圆")


def date_words(year: int, month: int, day: int) -> Iterator[str]:
    """A date in Chinese words."""
    spelled = "".join(_PLAIN_HAN[0][int(digit)] for digit in str(year))
    parts = [_han(part, *_PLAIN_HAN).removeprefix("一") if part >= 10 else _PLAIN_HAN[0][part] for part in (month, day)]
    for zero in "〇零":
        for end in "日号" if day else ("",):
            yield f"{spelled.replace('零', zero)}年{parts[0]}月" + (f"{parts[1]}{end}" if day else "")


def _english(number: int) -> str:
    ones = _ENGLISH.split()
    if number < len(ones):
        return ones[number]
    tens, rest = divmod(number, 10)
    return _ENGLISH_TENS.split()[tens - 2] + (ones[rest] if rest else "")


def _german(number: int) -> str:
    ones = _GERMAN.split()
    if number < len(ones):
        return ones[number]
    tens, rest = divmod(number, 10)
    before = ("ein" if rest == 1 else ones[rest]) + "und" if rest else ""
    return before + _GERMAN_TENS.split()[tens - 2]


def _han(number: int, digits: str, tens: tuple[str, ...], groups: tuple[str, ...]) -> str:
    if number == 0:
        return digits[0]
    text, skipped = "", False
    for place in reversed(range(len(str(number)))):
        digit = number // 10**place % 10
        if digit:
            text += (digits[0] if skipped and text else "") + digits[digit] + tens[place % 4]
        skipped = not digit
        if place % 4 == 0 and number // 10**place % 10_000:
            text, skipped = text + groups[place // 4], False
    return text

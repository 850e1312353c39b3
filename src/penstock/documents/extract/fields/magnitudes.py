"""Magnitudes after a number: "million", "Mrd.", "k", "千万".

Only an unambiguous word multiplies. A word that may or may not be a magnitude or a sign makes the number unreadable:
"m" is metres or millions, "Cr" a crore or a credit. All other words are units.
"""

import math
import re

WORDS = {
    **dict.fromkeys(("hundred", "hundreds", "hundert"), 10**2),
    **dict.fromkeys(("thousand", "thousands", "tausend", "tsd"), 10**3),
    **dict.fromkeys(("lakh", "lakhs", "lac", "lacs"), 10**5),
    **dict.fromkeys(("million", "millions", "millionen", "mio", "mn", "mln"), 10**6),
    **dict.fromkeys(("crore", "crores"), 10**7),
    **dict.fromkeys(("billion", "billions", "bn", "bln", "milliard", "milliards"), 10**9),
    **dict.fromkeys(("milliarde", "milliarden", "mrd"), 10**9),
    **dict.fromkeys(("trillion", "trillions", "billionen"), 10**12),
}
LETTERS = {"k": 10**3, "t": 10**3, "m": 10**6, "mm": 10**6, "b": 10**9, "tn": 10**12}

# Magnitudes of languages with a decimal comma.
_DECIMAL_COMMA_WORDS = """
    t tsd hundert tausend mio mln millionen mrd milliard milliards milliarde milliarden billionen
"""
DECIMAL_COMMA_WORDS = frozenset(_DECIMAL_COMMA_WORDS.split())

# Patterns. No letter of the same script may follow a word: "5 millionaires" are no millions.
WORD = rf"(?i:{'|'.join(sorted(WORDS, key=len, reverse=True))})"
END = r"(?![A-Za-z\u00c0-\u024f])"
_UNITS = r"(?!字节|斤顶|[克米瓦卡帕伏赫焦牛安升分兆])"  # 千克 is a kilogram, 千斤顶 a jack
HAN = (
    rf"(?:[十拾百佰千仟]?[万萬]?[亿億]|[十拾百佰千仟]?[万萬](?![能用向])"
    rf"|[十拾](?!字)|[百佰](?![货叶合分帕])|[千仟]{_UNITS})"
)
_HAN_MULTIPLIERS = {
    **dict.fromkeys("十拾", 10),
    **dict.fromkeys("百佰", 10**2),
    **dict.fromkeys("千仟", 10**3),
    **dict.fromkeys("万萬", 10**4),
    **dict.fromkeys("亿億", 10**8),
}

_AMBIGUOUS_LETTERS = frozenset({*"kKmMbBTSHD", "MM"})  # S and H are Soll and Haben, D is a debit
_AMBIGUOUS_MONEY_LETTERS = frozenset("tlLgG")  # litres and grams elsewhere; of money lakhs and grands
_AMBIGUOUS = """
    tn trn bio mia mil mille mila mld miljoen miljard millones milioni miliardi milhões tys тыс млн млрд ths thou grand
    trillionen quadrillion dozen dozens doz dz dutzend kpc kpcs
    cr dr od credit debit overdrawn overdraft negative minus below less loss deficit soll haben verlust
"""
_AMBIGUOUS_WORDS = frozenset(_AMBIGUOUS.split())
_AMBIGUOUS_HAN = re.compile(
    r"[万萬亿億]|分之|[多余餘几幾][十百千]|^[十百千]$"  # the rest of a magnitude, or an approximate one: 10多万
    r"|^兆(?![瓦赫帕欧焦字])|^[십백천만억조]|^打"  # 10^6 or 10^12; Korean; dozens
    r"|^[借贷貸欠亏虧]|^透支"
)


def multiplier(magnitude: str) -> int:
    """The factor of a magnitude that `WORD`, `HAN` or a letter matched."""
    plain = magnitude.rstrip(".").casefold()
    return WORDS.get(plain) or LETTERS.get(plain) or math.prod(_HAN_MULTIPLIERS[sign] for sign in plain)


def is_ambiguous_unit(unit: str, *, is_money: bool) -> bool:
    """Whether a word after a number may change its value or its sign."""
    plain = unit.rstrip(".")
    if plain in _AMBIGUOUS_LETTERS or (is_money and plain in _AMBIGUOUS_MONEY_LETTERS):
        return True
    word = plain.casefold()
    is_derived = any(word.startswith(known) for known in WORDS if len(known) > 3)  # "thousandths"
    return is_derived or word in WORDS or word in _AMBIGUOUS_WORDS or _AMBIGUOUS_HAN.search(word) is not None

"""Tokens of a text, normalized for case, width and punctuation.

A key is all tokens of a text, concatenated. So a hyphenated word, an IBAN in groups of four and a name over two lines
have the same key as their plain form. Similar-looking letters stay different: an OCR error never matches. The "(0)" of
a telephone number is not a token, as it is not dialled together with the country code.
"""

import re
import unicodedata
from typing import NamedTuple

from penstock.documents.extract.fields.label_keys import HAN

_KANA = r"\u3005-\u3007\u3040-\u30ff"
_TOKEN = re.compile(rf"[{HAN}{_KANA}]|[^\W_{HAN}{_KANA}]+")
_SCRIPT = re.compile(rf"[{HAN}{_KANA}]")
_MARKS = re.compile(r"[\W_]+")


class Token(NamedTuple):
    """A word, or one character of a script without spaces, with its offsets in the text."""

    key: str
    start: int
    end: int


def tokens(text: str) -> list[Token]:
    """The tokens of a text."""
    if text.isascii():
        found = [Token(word[0], *word.span()) for word in _TOKEN.finditer(text.lower())]
        return (
            found if "(0)" not in text else [token for token in found if text[token.start - 1 : token.end + 1] != "(0)"]
        )
    keys = ((word[0], *word.span()) for word in _TOKEN.finditer(text))
    folded = (Token(key.lower() if key.isascii() else _fold(key), start, end) for key, start, end in keys)
    return [token for token in folded if token.key]


def text_key(text: str) -> str:
    """All tokens of a text, concatenated."""
    plain = text.replace("(0)", "")
    return _MARKS.sub("", plain).lower() if plain.isascii() else _MARKS.sub("", _normalize(plain))


def is_unspaced_script(letter: str) -> bool:
    """Whether a character belongs to a script without spaces between words."""
    return _SCRIPT.match(letter) is not None


def _fold(word: str) -> str:
    plain = _normalize(word)
    return plain if plain.isalnum() else _MARKS.sub("", plain)


def _normalize(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())

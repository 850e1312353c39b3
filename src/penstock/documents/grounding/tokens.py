"""Text as the words it is made of, whatever their case, width and punctuation.

A key is all words of a text joined without anything between them. So a word that was cut at the end of a line, an IBAN
in groups of four and a name over two lines have the keys of what they are. Letters are never taken for others: what OCR
mixes up stays wrong. The (0) of a telephone number is not dialled together with the country's number, and is no word.
"""

import re
import unicodedata
from typing import NamedTuple

from penstock.documents.extract.fields.words import HAN

_KANA = r"\u3005-\u3007\u3040-\u30ff"
_TOKEN = re.compile(rf"[{HAN}{_KANA}]|[^\W_{HAN}{_KANA}]+")
_SCRIPT = re.compile(rf"[{HAN}{_KANA}]")
_MARKS = re.compile(r"[\W_]+")


class Token(NamedTuple):
    """A word, or one letter of a script that has no spaces, and where it stands in its text."""

    key: str
    start: int
    end: int


def tokens(text: str) -> list[Token]:
    """The words of a text."""
    if text.isascii():
        found = [Token(word[0], *word.span()) for word in _TOKEN.finditer(text.lower())]
        return (
            found if "(0)" not in text else [token for token in found if text[token.start - 1 : token.end + 1] != "(0)"]
        )
    keys = ((word[0], *word.span()) for word in _TOKEN.finditer(text))
    folded = (Token(key.lower() if key.isascii() else _folded(key), start, end) for key, start, end in keys)
    return [token for token in folded if token.key]


def key_of(text: str) -> str:
    """All words of a text in one."""
    plain = text.replace("(0)", "")
    return _MARKS.sub("", plain).lower() if plain.isascii() else _MARKS.sub("", _plain(plain))


def has_no_spaces(letter: str) -> bool:
    """Whether a letter is of a script that puts no spaces between words."""
    return _SCRIPT.match(letter) is not None


def _folded(word: str) -> str:
    plain = _plain(word)
    return plain if plain.isalnum() else _MARKS.sub("", plain)


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())

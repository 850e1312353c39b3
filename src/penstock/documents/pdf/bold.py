"""Finds how many characters at the start of a line are bold.

The parser returns a line as one run with the font of its first character. If that font is bold, pdfium is asked how far
it extends: a line that is bold as a whole may be a heading, one that only starts in bold is not. pdfium is used for
nothing else here, since opening a page takes half as long as parsing it.
"""

import re
from collections.abc import Iterator, Sequence
from ctypes import create_string_buffer
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.documents.layout.lines import TextLine

if TYPE_CHECKING:
    import pypdfium2

BOLD = re.compile(r"bold|black|heavy|demi|\bCMBX|\bCMB\d|\bSFBX|-Medi(?:Ital)?$|SimHei|Heiti|黑体", re.IGNORECASE)
NAME_BYTES = 100
NEAR = 0.6  # tolerance for the position of the first character, in font sizes
BACK = 3  # characters before the one found at that position that may be the first


@cache
def is_bold(font: str) -> bool:
    """Whether a font with this name is bold."""
    return BOLD.search(font) is not None


class BoldDetector:
    """A PDF document in pdfium, opened on first use."""

    def __init__(self, source: Path | bytes) -> None:
        self._source = source
        self._document: pypdfium2.PdfDocument | None = None

    def __enter__(self) -> "BoldDetector":
        return self

    def __exit__(self, *_: object) -> None:
        if self._document is not None:
            self._document.close()

    def bold_ends(self, number: int, candidates: Sequence[tuple[TextLine, int]]) -> list[int]:
        """For each line and start index: the end of its bold characters, or the start index if none is bold.

        A page that pdfium cannot open is still readable: it has no bold text then."""
        import pypdfium2

        try:
            if self._document is None:
                self._document = pypdfium2.PdfDocument(self._source)
            letters = _PageCharacters(self._document[number - 1])
        except pypdfium2.PdfiumError:
            return [begin for _, begin in candidates]
        return [_bold_end(line, begin, letters) for line, begin in candidates]


class _PageCharacters:
    """The characters of a page, in drawing order."""

    def __init__(self, page: "pypdfium2.PdfPage") -> None:
        self._left, _, _, self._top = page.get_bbox()
        self._text = page.get_textpage()
        self._name = create_string_buffer(NAME_BYTES)

    def at(self, line: TextLine) -> int:
        """The index of the first character of a line, or of one shortly after it; -1 if there is none."""
        import pypdfium2.raw as pdfium

        near = NEAR * line.size
        x, y = self._left + line.left + near / 2, self._top - (line.top + line.bottom) / 2
        found: int = pdfium.FPDFText_GetCharIndexAtPos(self._text, x, y, near, near)
        return found

    def letter(self, at: int) -> str:
        """The character at an index."""
        import pypdfium2.raw as pdfium

        return chr(pdfium.FPDFText_GetUnicode(self._text, at))

    def is_bold(self, at: int) -> bool:
        """Whether the character at an index is in a bold font."""
        import pypdfium2.raw as pdfium

        pdfium.FPDFText_GetFontInfo(self._text, at, self._name, NAME_BYTES, None)
        return is_bold(self._name.value.decode(errors="replace"))


def _bold_end(line: TextLine, begin: int, letters: _PageCharacters) -> int:
    found = letters.at(line)
    for first in range(found, max(found - BACK, -1), -1):
        if letters.letter(first) == line.text[0]:
            return _end_of_bold(line.text, begin, first, letters)
    return begin


def _end_of_bold(text: str, begin: int, first: int, letters: _PageCharacters) -> int:
    """The end of the bold characters, as long as the page has the same characters as the text."""
    end = begin
    for place, at in _matching_characters(text, first, letters):
        if place >= begin:
            if not letters.is_bold(at):
                break
            end = place + 1
    return end


def _matching_characters(text: str, first: int, letters: _PageCharacters) -> Iterator[tuple[int, int]]:
    """The characters of a text without spaces, each with its index on the page, until the two differ."""
    at = first
    for place, letter in enumerate(text):
        if letter.isspace():
            continue
        while (there := letters.letter(at)).isspace():
            at += 1
        if there != letter:
            return
        yield place, at
        at += 1

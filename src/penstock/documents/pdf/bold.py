"""Which words at the beginning of a line are bold.

The parser makes one run of a line and tells the font that it begins with. Where that font is bold, a second library is
asked how far it goes, since a line that is bold as a whole may be a heading and one that only begins so is none. It is
asked about nothing else: to open a page costs half of what the parser takes for it.
"""

import re
from collections.abc import Iterator, Sequence
from ctypes import create_string_buffer
from functools import cache
from typing import TYPE_CHECKING

from penstock.documents.layout.lines import Line

if TYPE_CHECKING:
    import pypdfium2

BOLD = re.compile(r"bold|black|heavy|demi|\bCMBX|\bCMB\d|\bSFBX|-Medi(?:Ital)?$|SimHei|Heiti|黑体", re.IGNORECASE)
NAME_BYTES = 100
NEAR = 0.6  # of a letter's size, around the place where the first is looked for
BACK = 3  # letters that may stand before the one that is found there


@cache
def is_bold(font: str) -> bool:
    """Whether a font of this name is bold."""
    return BOLD.search(font) is not None


class SecondLook:
    """The second library, with a document that is opened when somebody asks."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._document: pypdfium2.PdfDocument | None = None

    def __enter__(self) -> "SecondLook":
        return self

    def __exit__(self, *_: object) -> None:
        if self._document is not None:
            self._document.close()

    def bold_ends(self, number: int, asked: Sequence[tuple[Line, int]]) -> list[int]:
        """Up to which letter these lines of a page are bold, each from one of its letters on; that one when not.

        A page that this library cannot open is readable all the same: then nothing of it is bold."""
        import pypdfium2

        try:
            if self._document is None:
                self._document = pypdfium2.PdfDocument(self._content)
            letters = _Letters(self._document[number - 1])
        except pypdfium2.PdfiumError:
            return [begin for _, begin in asked]
        return [_bold_end(line, begin, letters) for line, begin in asked]


class _Letters:
    """The letters of a page, in the order in which they are drawn."""

    def __init__(self, page: "pypdfium2.PdfPage") -> None:
        self._left, _, _, self._top = page.get_bbox()
        self._text = page.get_textpage()
        self._name = create_string_buffer(NAME_BYTES)

    def at(self, line: Line) -> int:
        """Where the letters of a line begin, or a little later; -1 when there are none."""
        import pypdfium2.raw as pdfium

        near = NEAR * line.size
        x, y = self._left + line.left + near / 2, self._top - (line.top + line.bottom) / 2
        found: int = pdfium.FPDFText_GetCharIndexAtPos(self._text, x, y, near, near)
        return found

    def letter(self, at: int) -> str:
        """The one in this place."""
        import pypdfium2.raw as pdfium

        return chr(pdfium.FPDFText_GetUnicode(self._text, at))

    def is_bold(self, at: int) -> bool:
        """Whether it is in a bold font."""
        import pypdfium2.raw as pdfium

        pdfium.FPDFText_GetFontInfo(self._text, at, self._name, NAME_BYTES, None)
        return is_bold(self._name.value.decode(errors="replace"))


def _bold_end(line: Line, begin: int, letters: _Letters) -> int:
    found = letters.at(line)
    for first in range(found, max(found - BACK, -1), -1):
        if letters.letter(first) == line.text[0]:
            return _last_bold(line.text, begin, first, letters)
    return begin


def _last_bold(text: str, begin: int, first: int, letters: _Letters) -> int:
    """The end of the bold letters among those that say what the text does."""
    end = begin
    for place, at in _side_by_side(text, first, letters):
        if place >= begin:
            if not letters.is_bold(at):
                break
            end = place + 1
    return end


def _side_by_side(text: str, first: int, letters: _Letters) -> Iterator[tuple[int, int]]:
    """The letters of a text, spaces aside, each with its place on the page, for as long as they are the same there."""
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

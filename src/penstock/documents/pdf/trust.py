"""Whether the text layer of a page can be trusted.

A layer may lie in four ways: there is none to speak of under a picture of a page; it is invisible, put there by
someone's OCR, or a line of it is, put there by someone for us; its characters are no characters; or they are, but the
wrong ones, since the font keeps the right ones to itself. A wrong "no" costs a few seconds of OCR, a wrong "yes" costs
the text, so doubt counts as no.
"""

import re
from string import ascii_letters
from typing import TYPE_CHECKING

import msgspec

from penstock.documents.pdf.hidden_text import count_hidden, painted_on

if TYPE_CHECKING:
    import pypdfium2

FEW_LETTERS = 200  # on a full-page picture: a stamp, a header, a page number
FEW_BESIDE_PICTURE = 50  # beside a picture of half a page
WHOLE_PAGE, HALF_A_PAGE = 0.85, 0.5
MANY_SHAPES = 200  # letters that are drawn as shapes
MOST_HIDDEN = 0.5
FEW_HIDDEN = 20  # letters; marks for a signature have fewer, a planted line has more
MOST_BROKEN = 0.05  # of all characters; symbol fonts have a few in good pages
MOST_MOJIBAKE = 0.35  # of all characters; even Vietnamese has fewer of this range
ENOUGH_TO_COUNT = 150  # letters, before their frequencies say anything
LEAST_VOWELS = 0.2  # of Latin letters; the languages written in them have from 35 to 48 %
VOWELS = b"aeiouyAEIOUY"
NO_LETTERS = bytes(set(range(128)) - set(ascii_letters.encode()))
# Controls, private ones, and those that stand for what is none.
NO_CHARACTERS = re.compile(r"[\x00-\x1f\x7f\ue000-\uf8ff\ufff0-\uffff\U000f0000-\U0010ffff]")
MOJIBAKE = re.compile(r"[\x80-\xff]")


class Looks(msgspec.Struct, frozen=True, kw_only=True):
    """What there is on a page beside letters."""

    picture_share: float = 0.0  # of the page, by its largest picture
    hidden_letters: int = 0  # those that nobody can see
    shapes: int = 0


def why_not_real(text: str, looks: Looks) -> str:
    """The reason to distrust a text layer, in one word; empty when there is none."""
    letters = "".join(text.split())
    if not letters:
        return "none"
    if looks.picture_share >= WHOLE_PAGE and len(letters) < FEW_LETTERS:
        return "sparse"
    is_covered = looks.picture_share >= HALF_A_PAGE or looks.shapes >= MANY_SHAPES
    if is_covered and len(letters) < FEW_BESIDE_PICTURE:
        return "sparse"
    if looks.hidden_letters > min(FEW_HIDDEN, MOST_HIDDEN * len(letters)):
        return "invisible"
    return "garbled" if is_garbled(letters) else ""


def is_garbled(letters: str) -> bool:
    """Whether these cannot be the characters that the page shows."""
    if len(NO_CHARACTERS.findall(letters)) > MOST_BROKEN * len(letters):
        return True
    if not letters.isascii() and len(MOJIBAKE.findall(letters)) > MOST_MOJIBAKE * len(letters):
        return True
    latin = letters.encode("ascii", "ignore").translate(None, NO_LETTERS)
    vowels = len(latin) - len(latin.translate(None, VOWELS))
    return len(latin) > max(ENOUGH_TO_COUNT, len(letters) // 2) and vowels < LEAST_VOWELS * len(latin)


def look_at(document: "pypdfium2.PdfDocument", number: int) -> Looks:
    """What a page is made of."""
    import pypdfium2.raw as pdfium

    page = document[number - 1]
    area = max(page.get_width() * page.get_height(), 1.0)
    painted = list(painted_on(page))
    picture, shapes = 0.0, 0
    for one in painted:
        if one.thing.type == pdfium.FPDF_PAGEOBJ_IMAGE:
            left, bottom, right, top = one.bounds
            picture = max(picture, (right - left) * (top - bottom) / area)
        elif one.thing.type == pdfium.FPDF_PAGEOBJ_PATH:
            shapes += 1
    return Looks(picture_share=min(picture, 1.0), hidden_letters=count_hidden(page, painted), shapes=shapes)

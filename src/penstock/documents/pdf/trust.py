"""Decides whether the text layer of a page can be trusted.

A text layer can be wrong in four ways: it is nearly empty below a scanned image; it is invisible, added by OCR software
as a whole, or a single line was planted for us; its characters are not characters; or they are the wrong ones because
the font has its own encoding. A false rejection costs a few seconds of OCR, a false acceptance costs the text, so doubt
means rejection.
"""

import re
from string import ascii_letters
from typing import TYPE_CHECKING

import msgspec

from penstock.documents.pdf.hidden_text import count_hidden_characters, page_objects

if TYPE_CHECKING:
    import pypdfium2

FEW_LETTERS = 200  # on a full-page image: a stamp, a header, a page number
FEW_BESIDE_PICTURE = 50  # beside an image of half a page
WHOLE_PAGE, HALF_A_PAGE = 0.85, 0.5
MANY_SHAPES = 200  # text drawn as paths
MAX_HIDDEN = 0.5
FEW_HIDDEN = 20  # characters; signature anchors have fewer, a planted line has more
MAX_BROKEN = 0.05  # of all characters; symbol fonts cause a few on good pages
MAX_MOJIBAKE = 0.35  # of all characters; even Vietnamese has fewer in this range
ENOUGH_TO_COUNT = 150  # characters, before frequencies are meaningful
MIN_VOWELS = 0.2  # of Latin letters; languages in Latin script have 35 to 48 %
VOWELS = b"aeiouyAEIOUY"
NO_LETTERS = bytes(set(range(128)) - set(ascii_letters.encode()))
# Control characters, private use areas, and noncharacters.
NO_CHARACTERS = re.compile(r"[\x00-\x1f\x7f\ue000-\uf8ff\ufff0-\uffff\U000f0000-\U0010ffff]")
MOJIBAKE = re.compile(r"[\x80-\xff]")


class PageVisuals(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of a page besides visible text."""

    picture_share: float = 0.0  # of the page, by its largest image
    hidden_letters: int = 0  # characters that cannot be seen
    shapes: int = 0


def distrust_reason(text: str, visuals: PageVisuals) -> str:
    """Why a text layer is not trusted, in one word; empty if it is."""
    letters = "".join(text.split())
    if not letters:
        return "none"
    if visuals.picture_share >= WHOLE_PAGE and len(letters) < FEW_LETTERS:
        return "sparse"
    is_covered = visuals.picture_share >= HALF_A_PAGE or visuals.shapes >= MANY_SHAPES
    if is_covered and len(letters) < FEW_BESIDE_PICTURE:
        return "sparse"
    if visuals.hidden_letters > min(FEW_HIDDEN, MAX_HIDDEN * len(letters)):
        return "invisible"
    return "garbled" if is_garbled(letters) else ""


def is_garbled(letters: str) -> bool:
    """Whether the characters cannot be those that the page shows."""
    if len(NO_CHARACTERS.findall(letters)) > MAX_BROKEN * len(letters):
        return True
    if not letters.isascii() and len(MOJIBAKE.findall(letters)) > MAX_MOJIBAKE * len(letters):
        return True
    latin = letters.encode("ascii", "ignore").translate(None, NO_LETTERS)
    vowels = len(latin) - len(latin.translate(None, VOWELS))
    return len(latin) > max(ENOUGH_TO_COUNT, len(letters) // 2) and vowels < MIN_VOWELS * len(latin)


def inspect_page(document: "pypdfium2.PdfDocument", number: int) -> PageVisuals:
    """Inspect the objects of a page."""
    import pypdfium2.raw as pdfium

    page = document[number - 1]
    area = max(page.get_width() * page.get_height(), 1.0)
    objects = list(page_objects(page))
    picture, shapes = 0.0, 0
    for item in objects:
        if item.raw.type == pdfium.FPDF_PAGEOBJ_IMAGE:
            left, bottom, right, top = item.bounds
            picture = max(picture, (right - left) * (top - bottom) / area)
        elif item.raw.type == pdfium.FPDF_PAGEOBJ_PATH:
            shapes += 1
    return PageVisuals(
        picture_share=min(picture, 1.0), hidden_letters=count_hidden_characters(page, objects), shapes=shapes
    )

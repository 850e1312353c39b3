"""Pages as pictures: drawn from a PDF by pdfium, or decoded from an image file by pillow.

Sizes are looked at before anything is drawn or decoded, since that is where bombs go off. All of it runs in the
sandbox; the libraries are imported there and nowhere else.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from penstock.documents.errors import DocumentEmpty
from penstock.documents.rejections import Refusal, TurnedAway, too_large, unreadable

if TYPE_CHECKING:
    import numpy
    from PIL import Image

DPI = 200  # more costs time and wins nothing on print of 7 pt and larger; 150 loses Chinese strokes
POINTS = 72  # per inch
DRAWN_PIXELS = 25_000_000  # A2 at 200 dpi; a larger sheet is drawn more coarsely, for its letters are large too
FORMATS = ("PNG", "JPEG", "TIFF", "WEBP")
MANY_PAGES = frozenset({"TIFF"})  # frames of the others are moments of a film


class Frames(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """How many pages an image file has."""

    pages: int


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A page to be looked at. Its pixels are rows of blue, green, red."""

    pixels: "numpy.ndarray[Any, Any]"
    width: float  # in the page's own units
    height: float
    units_per_pixel: float

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to see: one colour, give or take the grain of paper."""
        return bool(int(self.pixels.max()) - int(self.pixels.min()) < 16)


def draw_page(file: BinaryIO, number: int, most_pixels: int) -> Picture:
    """A page of a PDF as it looks, notes and filled forms included."""
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(file)
        if document.get_formtype():
            document.init_forms()
        page = document[number - 1]
    except (pypdfium2.PdfiumError, IndexError) as error:
        raise unreadable(f"page {number} cannot be drawn ({error})") from error
    width, height = page.get_size()
    if not (width >= 1 and height >= 1):
        raise unreadable(f"page {number} has no size")
    scale = _scale(width, height, min(most_pixels, DRAWN_PIXELS))
    pixels = page.render(scale=scale).to_numpy()
    return Picture(pixels=pixels[:, :, :3], width=width, height=height, units_per_pixel=1 / scale)


def _scale(width: float, height: float, most_pixels: int) -> float:
    """Pixels per point."""
    usual = DPI / POINTS
    return float(min(usual, (most_pixels / (width * height)) ** 0.5))


def count_frames(file: BinaryIO, most_pixels: int, most_pages: int) -> Frames | Refusal:
    """The pages of an image file, none of them decoded; refused when one is too large."""
    try:
        image = _opened(file)
        count = image.n_frames if image.format in MANY_PAGES and hasattr(image, "n_frames") else 1
        if count > most_pages:
            raise too_large(f"it has {count} pages, and {most_pages} may be read (ETL_MAX_PAGES)")
        for at in range(count):
            _turn_to(image, at)
            _check_size(image, most_pixels)
    except TurnedAway as no:
        return no.refusal
    return Frames(pages=count)


def open_frame(file: BinaryIO, number: int, most_pixels: int) -> Picture:
    """A page of an image file, turned the way the camera was held."""
    from PIL import ImageOps

    image = _opened(file)
    _turn_to(image, number - 1)
    _check_size(image, most_pixels)
    try:
        upright = ImageOps.exif_transpose(image)
        pixels = _blue_green_red(upright)
    except (OSError, SyntaxError, ValueError) as error:
        raise unreadable(f"page {number} cannot be decoded ({_plain(error)})") from error
    height, width = pixels.shape[:2]
    return Picture(pixels=pixels, width=width, height=height, units_per_pixel=1)


def _opened(file: BinaryIO) -> "Image.Image":
    from PIL import Image, UnidentifiedImageError

    Image.MAX_IMAGE_PIXELS = None  # our own bound is stricter, and an error instead of a warning
    try:
        return Image.open(file, formats=FORMATS)
    except UnidentifiedImageError as error:
        raise unreadable("its header is broken") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise unreadable(_plain(error)) from error


def _turn_to(image: "Image.Image", at: int) -> None:
    try:
        image.seek(at)
    except EOFError as error:
        raise unreadable(f"page {at + 1} is missing") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise unreadable(f"page {at + 1} is broken ({_plain(error)})") from error


def _check_size(image: "Image.Image", most_pixels: int) -> None:
    width, height = image.size
    if not width or not height:
        raise TurnedAway(DocumentEmpty)
    if width * height > most_pixels:
        raise too_large(f"a picture of {width} x {height} pixels; {most_pixels} may be read (ETL_MAX_PAGE_PIXELS)")


def _blue_green_red(image: "Image.Image") -> "numpy.ndarray[Any, Any]":
    import numpy
    from PIL import Image

    if image.mode[0] in "IF":  # 16 bits and more per pixel: brought down to eight, not cut off
        values = numpy.asarray(image, dtype=numpy.float32)
        spread = max(float(numpy.ptp(values)), 1.0)
        image = Image.fromarray(((values - values.min()) * (255 / spread)).astype(numpy.uint8))
    if image.has_transparency_data:
        paper = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(paper, image.convert("RGBA"))
    return numpy.ascontiguousarray(numpy.asarray(image.convert("RGB"))[:, :, ::-1])


def _plain(error: Exception) -> str:
    return str(error).partition("\n")[0][:200] or type(error).__name__

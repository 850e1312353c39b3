"""Page images: rendered from a PDF by pdfium, or decoded from an image file by pillow.

Sizes are checked before rendering and decoding, against decompression bombs: an image of 100 megapixels is refused
without decoding. Everything runs in the sandbox; the libraries are imported only there.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from penstock.documents.errors import DocumentEmpty
from penstock.documents.rejections import DocumentRejected, Rejection, too_large, unreadable

if TYPE_CHECKING:
    import numpy
    from PIL import Image

DPI = 200  # a higher resolution is slower and gains nothing for print of 7 pt and larger; 150 loses Chinese strokes
POINTS = 72  # per inch
MAX_RENDERED_PIXELS = 25_000_000  # A2 at 200 dpi; a larger page gets a lower resolution, since its print is larger
FORMATS = ("PNG", "JPEG", "TIFF", "WEBP")
MANY_PAGES = frozenset({"TIFF"})  # frames of the other formats are an animation


class ImagePages(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The number of pages of an image file."""

    pages: int


@dataclass(frozen=True, kw_only=True)
class PageImage:
    """The image of a page. Pixels are in BGR order."""

    pixels: "numpy.ndarray[Any, Any]"
    width: float  # in units of the page
    height: float
    units_per_pixel: float

    @property
    def is_blank(self) -> bool:
        """Whether it has a single colour, apart from paper grain."""
        return bool(int(self.pixels.max()) - int(self.pixels.min()) < 16)


def render_pdf_page(file: BinaryIO, number: int, max_pixels: int) -> PageImage:
    """Render a page of a PDF, including annotations and form fields."""
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(file)
        if document.get_formtype():
            document.init_forms()
        page = document[number - 1]
    except (pypdfium2.PdfiumError, IndexError) as error:
        raise unreadable(f"page {number} cannot be rendered ({error})") from error
    width, height = page.get_size()
    if not (width >= 1 and height >= 1):
        raise unreadable(f"page {number} has no size")
    scale = _scale(width, height, min(max_pixels, MAX_RENDERED_PIXELS))
    pixels = page.render(scale=scale).to_numpy()
    return PageImage(pixels=pixels[:, :, :3], width=width, height=height, units_per_pixel=1 / scale)


def _scale(width: float, height: float, max_pixels: int) -> float:
    """Pixels per point."""
    usual = DPI / POINTS
    return float(min(usual, (max_pixels / (width * height)) ** 0.5))


def count_image_pages(file: BinaryIO, max_pixels: int, max_pages: int) -> ImagePages | Rejection:
    """Count the pages of an image file without decoding them. Rejects the file if a page is too large."""
    try:
        image = _open_image(file)
        count = image.n_frames if image.format in MANY_PAGES and hasattr(image, "n_frames") else 1
        if count > max_pages:
            raise too_large(f"it has {count} pages; the limit is {max_pages} (ETL_MAX_PAGES)")
        for at in range(count):
            _seek(image, at)
            _check_size(image, max_pixels)
    except DocumentRejected as rejected:
        return rejected.rejection
    return ImagePages(pages=count)


def decode_image_page(file: BinaryIO, number: int, max_pixels: int) -> PageImage:
    """Decode a page of an image file and apply its EXIF orientation."""
    from PIL import ImageOps

    image = _open_image(file)
    _seek(image, number - 1)
    _check_size(image, max_pixels)
    try:
        upright = ImageOps.exif_transpose(image)
        pixels = _bgr_pixels(upright)
    except (OSError, SyntaxError, ValueError) as error:
        raise unreadable(f"page {number} cannot be decoded ({_error_text(error)})") from error
    height, width = pixels.shape[:2]
    return PageImage(pixels=pixels, width=width, height=height, units_per_pixel=1)


def _open_image(file: BinaryIO) -> "Image.Image":
    from PIL import Image, UnidentifiedImageError

    Image.MAX_IMAGE_PIXELS = None  # our own limit is stricter, and an error instead of a warning
    try:
        return Image.open(file, formats=FORMATS)
    except UnidentifiedImageError as error:
        raise unreadable("its header is broken") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise unreadable(_error_text(error)) from error


def _seek(image: "Image.Image", at: int) -> None:
    try:
        image.seek(at)
    except EOFError as error:
        raise unreadable(f"page {at + 1} is missing") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise unreadable(f"page {at + 1} is broken ({_error_text(error)})") from error


def _check_size(image: "Image.Image", max_pixels: int) -> None:
    width, height = image.size
    if not width or not height:
        raise DocumentRejected(DocumentEmpty)
    if width * height > max_pixels:
        raise too_large(f"an image has {width} x {height} pixels; the limit is {max_pixels} (ETL_MAX_PAGE_PIXELS)")


def _bgr_pixels(image: "Image.Image") -> "numpy.ndarray[Any, Any]":
    import numpy
    from PIL import Image

    if image.mode[0] in "IF":  # 16 or more bits per pixel: scaled to eight, not truncated
        values = numpy.asarray(image, dtype=numpy.float32)
        spread = max(float(numpy.ptp(values)), 1.0)
        image = Image.fromarray(((values - values.min()) * (255 / spread)).astype(numpy.uint8))
    if image.has_transparency_data:
        background = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(background, image.convert("RGBA"))
    return numpy.ascontiguousarray(numpy.asarray(image.convert("RGB"))[:, :, ::-1])


def _error_text(error: Exception) -> str:
    return str(error).partition("\n")[0][:200] or type(error).__name__

"""Counts characters on a page that a reader cannot see.

Some text is drawn in an invisible render mode. Other text has the colour of the paper, is transparent, or lies under an
image; but white text can stand on a dark bar, and an image can be transparent. So doubtful text is tested: the page is
rendered with and without it, and text that makes no difference is hidden.
"""

import ctypes
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import pypdfium2
    from PIL import Image

DEEPEST = 5  # of nested forms
INVISIBLE_MODES = frozenset({3, 7})  # text render modes: neither filled nor stroked
OUTLINE_MODES = frozenset({1, 5})  # only stroked
PALE = 229  # of 255, for the darkest channel; darker text is visible on white paper
FAINT = 64  # of 255; more opaque text is visible
MUCH_COVERED = 0.5  # of the page; a scan can have wide margins
MIN_CONTRAST = 16  # of 255; paper grain has as much
MAX_PIXELS = 4_000_000  # of the test image; only posters have more at one pixel per point
AROUND = 2.0  # points; glyphs can extend beyond their bounds

Bounds = tuple[float, float, float, float]  # left, bottom, right, top, in units of the page


class PageObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object on a page: text, image, path."""

    raw: Any  # the object of pypdfium2
    to_page: Any  # the matrix from object to page coordinates
    in_faint_form: bool = False

    @property
    def bounds(self) -> Bounds:
        """The bounds on the page."""
        left, bottom, right, top = self.to_page.on_rect(*self.raw.get_bounds())
        return left, bottom, right, top


def page_objects(page: "pypdfium2.PdfPage") -> Iterator[PageObject]:
    """The objects of a page in painting order; of a form, its parts."""
    import pypdfium2
    import pypdfium2.raw as pdfium

    frames = {0: (pypdfium2.PdfMatrix(), False)}
    for raw in page.get_objects(max_depth=DEEPEST):
        to_page, is_faint = frames[raw.level]
        if raw.type != pdfium.FPDF_PAGEOBJ_FORM:
            yield PageObject(raw=raw, to_page=to_page, in_faint_form=is_faint)
            continue
        opacity = _colour(pdfium.FPDFPageObj_GetFillColor, raw)[3]
        frames[raw.level + 1] = raw.get_matrix().multiply(to_page), is_faint or opacity < FAINT


def count_hidden_characters(page: "pypdfium2.PdfPage", objects: Sequence[PageObject]) -> int:
    """The number of characters of a page that cannot be seen."""
    import pypdfium2.raw as pdfium

    texts = [item for item in objects if item.raw.type == pdfium.FPDF_PAGEOBJ_TEXT]
    invisible = [item for item in texts if _mode(item) in INVISIBLE_MODES]
    doubtful = list(_doubtful(page, objects))
    if not invisible and not doubtful:
        return 0
    text_page = page.get_textpage()  # before the test, which removes text from the page
    hidden = invisible + _invisible(page, [item for item in doubtful if _is_testable(item, text_page)])
    if not hidden:
        return 0
    hidden_ids = {id(item) for item in hidden}
    # A shadow or an outline repeats visible text, so it hides nothing.
    shown = {_text_of(item, text_page) for item in texts if id(item) not in hidden_ids}
    return sum(len(letters) for item in hidden if (letters := _text_of(item, text_page)) not in shown)


def _doubtful(page: "pypdfium2.PdfPage", objects: Sequence[PageObject]) -> Iterator[PageObject]:
    """Text objects that may be invisible. Iterates backwards, since later objects are painted on top."""
    import pypdfium2.raw as pdfium

    most = MUCH_COVERED * page.get_width() * page.get_height()
    covered, cover = 0.0, None
    for item in reversed(objects):
        if item.raw.type == pdfium.FPDF_PAGEOBJ_IMAGE:
            bounds = item.bounds
            covered += (bounds[2] - bounds[0]) * (bounds[3] - bounds[1])  # a scan can consist of strips
            cover = _around([bounds, cover] if cover else [bounds])
        elif item.raw.type != pdfium.FPDF_PAGEOBJ_TEXT or _mode(item) in INVISIBLE_MODES:
            continue
        elif _is_pale(item) or (cover and covered >= most and _overlap(item.bounds, cover)):
            yield item


def _is_pale(item: PageObject) -> bool:
    """Whether it would be invisible on white paper."""
    import pypdfium2.raw as pdfium

    is_outlined = _mode(item) in OUTLINE_MODES
    get_colour = pdfium.FPDFPageObj_GetStrokeColor if is_outlined else pdfium.FPDFPageObj_GetFillColor
    red, green, blue, opacity = _colour(get_colour, item.raw)
    return item.in_faint_form or opacity < FAINT or min(red, green, blue) >= PALE


def _is_testable(item: PageObject, text_page: "pypdfium2.PdfTextPage") -> bool:
    """Whether the test is meaningful: without an embedded font, there may be no glyphs to render here."""
    import pypdfium2.raw as pdfium

    letters = _text_of(item, text_page)
    is_own_font = pdfium.FPDFFont_GetIsEmbedded(pdfium.FPDFTextObj_GetFont(item.raw)) == 1
    return bool(letters) and (is_own_font or letters.isascii())


def _invisible(page: "pypdfium2.PdfPage", doubtful: Sequence[PageObject]) -> list[PageObject]:
    """The text objects that make no visible difference. Removes all of them from the page."""
    import pypdfium2.raw as pdfium
    from PIL import ImageChops

    whole = page.get_bbox()
    on_page = [item for item in doubtful if _overlap(item.bounds, whole)]
    if not on_page:
        return []
    page.set_rotation(0)  # so that page and image coordinates have the same orientation
    area = _within(_around([item.bounds for item in on_page]), whole)
    before, scale = _render(page, area)
    for item in on_page:
        pdfium.FPDFPageObj_SetIsActive(item.raw, False)
    difference = ImageChops.difference(before, _render(page, area)[0])
    return [
        item for item in on_page if _max_difference(difference, _within(item.bounds, area), area, scale) < MIN_CONTRAST
    ]


def _render(page: "pypdfium2.PdfPage", area: Bounds) -> "tuple[Image.Image, float]":
    """Render a part of a page; returns the image and the pixels per point."""
    left, bottom, right, top = page.get_bbox()
    scale = min(1.0, (MAX_PIXELS / max(page.get_width() * page.get_height(), 1.0)) ** 0.5)
    crop = (area[0] - left, area[1] - bottom, right - area[2], top - area[3])
    return page.render(scale=scale, crop=crop).to_pil().convert("RGB"), scale


def _max_difference(difference: "Image.Image", bounds: Bounds, area: Bounds, scale: float) -> int:
    """The largest difference within the bounds."""
    left, upper = int((bounds[0] - area[0]) * scale), int((area[3] - bounds[3]) * scale)
    right, lower = (bounds[2] - area[0]) * scale + 1, (area[3] - bounds[1]) * scale + 1
    box = (left, upper, min(int(right), difference.width), min(int(lower), difference.height))
    if box[0] >= box[2] or box[1] >= box[3]:
        return 0
    extrema: Any = difference.crop(box).getextrema()  # a pair for each channel
    return max(int(most) for _, most in extrema)


def _mode(item: PageObject) -> int:
    import pypdfium2.raw as pdfium

    return int(pdfium.FPDFTextObj_GetTextRenderMode(item.raw))


def _colour(get_colour: Any, raw: Any) -> tuple[int, int, int, int]:
    """Red, green, blue and opacity; opaque black if undefined."""
    red, green, blue, opacity = (ctypes.c_uint() for _ in range(4))
    if not get_colour(raw, red, green, blue, opacity):
        return 0, 0, 0, 255
    return red.value, green.value, blue.value, opacity.value


def _text_of(item: PageObject, text_page: "pypdfium2.PdfTextPage") -> str:
    """The text of an object without white space."""
    import pypdfium2.raw as pdfium

    size = pdfium.FPDFTextObj_GetText(item.raw, text_page, None, 0)
    buffer = ctypes.create_string_buffer(size)
    pdfium.FPDFTextObj_GetText(item.raw, text_page, ctypes.cast(buffer, ctypes.POINTER(pdfium.FPDF_WCHAR)), size)
    return "".join(buffer.raw[: max(size - 2, 0)].decode("utf-16-le", "ignore").split())


def _around(many: Sequence[Bounds]) -> Bounds:
    left, bottom, right, top = zip(*many, strict=True)
    return min(left), min(bottom), max(right), max(top)


def _within(bounds: Bounds, outer: Bounds) -> Bounds:
    """The bounds with a margin, clipped to the outer bounds."""
    left, bottom = max(bounds[0] - AROUND, outer[0]), max(bounds[1] - AROUND, outer[1])
    return left, bottom, min(bounds[2] + AROUND, outer[2]), min(bounds[3] + AROUND, outer[3])


def _overlap(one: Bounds, other: Bounds) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]

"""Letters on a page that nobody can see.

Some are drawn without ink. Others have the colour of the paper, or are as clear as glass, or lie under a picture; but
white letters may stand on a dark bar, and a picture may let through what is under it. So those in doubt are put to the
test: the page is drawn with them and without them, and where both look alike they are hidden.
"""

import ctypes
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import pypdfium2
    from PIL import Image

DEEPEST = 5  # of forms within forms
WITHOUT_INK = frozenset({3, 7})  # text render modes: neither filled nor stroked
OUTLINED = frozenset({1, 5})  # only stroked
PALE = 229  # of 255, for the darkest of the three colours; what is darker can be seen on white paper
FAINT = 64  # of 255; what is more opaque can be seen on any paper
MUCH_COVERED = 0.5  # of the page; a scan may have wide margins
LEAST_CONTRAST = 16  # of 255; the grain of paper has as much
MOST_PIXELS = 4_000_000  # of the test; only posters have more at a pixel per point
AROUND = 2.0  # points; a letter may reach over its bounds

Bounds = tuple[float, float, float, float]  # left, bottom, right, top, in the units of a page


class Painted(msgspec.Struct, frozen=True, kw_only=True):
    """Something on a page."""

    thing: Any  # of pypdfium2
    to_page: Any  # the matrix from its units to those of the page
    in_faint_form: bool = False

    @property
    def bounds(self) -> Bounds:
        """Where it is on the page."""
        left, bottom, right, top = self.to_page.on_rect(*self.thing.get_bounds())
        return left, bottom, right, top


def painted_on(page: "pypdfium2.PdfPage") -> Iterator[Painted]:
    """What a page is made of, in the order in which it is painted; of a form, its parts."""
    import pypdfium2
    import pypdfium2.raw as pdfium

    frames = {0: (pypdfium2.PdfMatrix(), False)}
    for thing in page.get_objects(max_depth=DEEPEST):
        to_page, is_faint = frames[thing.level]
        if thing.type != pdfium.FPDF_PAGEOBJ_FORM:
            yield Painted(thing=thing, to_page=to_page, in_faint_form=is_faint)
            continue
        opacity = _colour(pdfium.FPDFPageObj_GetFillColor, thing)[3]
        frames[thing.level + 1] = thing.get_matrix().multiply(to_page), is_faint or opacity < FAINT


def count_hidden(page: "pypdfium2.PdfPage", painted: Sequence[Painted]) -> int:
    """How many letters of a page nobody can see."""
    import pypdfium2.raw as pdfium

    texts = [one for one in painted if one.thing.type == pdfium.FPDF_PAGEOBJ_TEXT]
    without_ink = [one for one in texts if _mode(one) in WITHOUT_INK]
    doubtful = list(_doubtful(page, painted))
    if not without_ink and not doubtful:
        return 0
    words = page.get_textpage()  # before the test, which takes letters off the page
    hidden = without_ink + _without_trace(page, [one for one in doubtful if _can_be_drawn(one, words)])
    if not hidden:
        return 0
    unseen = {id(one) for one in hidden}
    # A shadow or a bright rim is the same words once more: it tells nothing that is not to be seen.
    shown = {_letters(one, words) for one in texts if id(one) not in unseen}
    return sum(len(letters) for one in hidden if (letters := _letters(one, words)) not in shown)


def _doubtful(page: "pypdfium2.PdfPage", painted: Sequence[Painted]) -> Iterator[Painted]:
    """Texts that can perhaps not be seen. From the last to the first: what comes later lies above."""
    import pypdfium2.raw as pdfium

    most = MUCH_COVERED * page.get_width() * page.get_height()
    covered, cover = 0.0, None
    for one in reversed(painted):
        if one.thing.type == pdfium.FPDF_PAGEOBJ_IMAGE:
            bounds = one.bounds
            covered += (bounds[2] - bounds[0]) * (bounds[3] - bounds[1])  # a scan may come in strips
            cover = _around([bounds, cover] if cover else [bounds])
        elif one.thing.type != pdfium.FPDF_PAGEOBJ_TEXT or _mode(one) in WITHOUT_INK:
            continue
        elif _is_pale(one) or (cover and covered >= most and _do_meet(one.bounds, cover)):
            yield one


def _is_pale(one: Painted) -> bool:
    """Whether it could not be seen on white paper."""
    import pypdfium2.raw as pdfium

    is_outlined = _mode(one) in OUTLINED
    look_up = pdfium.FPDFPageObj_GetStrokeColor if is_outlined else pdfium.FPDFPageObj_GetFillColor
    red, green, blue, opacity = _colour(look_up, one.thing)
    return one.in_faint_form or opacity < FAINT or min(red, green, blue) >= PALE


def _can_be_drawn(one: Painted, words: "pypdfium2.PdfTextPage") -> bool:
    """Whether the test can say anything of it: there may be no font here for letters that do not bring theirs."""
    import pypdfium2.raw as pdfium

    letters = _letters(one, words)
    is_own_font = pdfium.FPDFFont_GetIsEmbedded(pdfium.FPDFTextObj_GetFont(one.thing)) == 1
    return bool(letters) and (is_own_font or letters.isascii())


def _without_trace(page: "pypdfium2.PdfPage", doubtful: Sequence[Painted]) -> list[Painted]:
    """Those without which the page looks the same. They are taken off it."""
    import pypdfium2.raw as pdfium
    from PIL import ImageChops

    whole = page.get_bbox()
    on_page = [one for one in doubtful if _do_meet(one.bounds, whole)]
    if not on_page:
        return []
    page.set_rotation(0)  # so that up is up, here and in the drawing
    part = _within(_around([one.bounds for one in on_page]), whole)
    before, scale = _drawn(page, part)
    for one in on_page:
        pdfium.FPDFPageObj_SetIsActive(one.thing, False)
    traces = ImageChops.difference(before, _drawn(page, part)[0])
    return [one for one in on_page if _strongest(traces, _within(one.bounds, part), part, scale) < LEAST_CONTRAST]


def _drawn(page: "pypdfium2.PdfPage", part: Bounds) -> "tuple[Image.Image, float]":
    """A part of a page as it looks, and the pixels per point."""
    left, bottom, right, top = page.get_bbox()
    scale = min(1.0, (MOST_PIXELS / max(page.get_width() * page.get_height(), 1.0)) ** 0.5)
    crop = (part[0] - left, part[1] - bottom, right - part[2], top - part[3])
    return page.render(scale=scale, crop=crop).to_pil().convert("RGB"), scale


def _strongest(traces: "Image.Image", bounds: Bounds, part: Bounds, scale: float) -> int:
    """The largest difference within these bounds."""
    left, upper = int((bounds[0] - part[0]) * scale), int((part[3] - bounds[3]) * scale)
    right, lower = (bounds[2] - part[0]) * scale + 1, (part[3] - bounds[1]) * scale + 1
    box = (left, upper, min(int(right), traces.width), min(int(lower), traces.height))
    if box[0] >= box[2] or box[1] >= box[3]:
        return 0
    extrema: Any = traces.crop(box).getextrema()  # a pair for each of the three colours
    return max(int(most) for _, most in extrema)


def _mode(one: Painted) -> int:
    import pypdfium2.raw as pdfium

    return int(pdfium.FPDFTextObj_GetTextRenderMode(one.thing))


def _colour(look_up: Any, thing: Any) -> tuple[int, int, int, int]:
    """Red, green, blue and how opaque; black where there is none."""
    red, green, blue, opacity = (ctypes.c_uint() for _ in range(4))
    if not look_up(thing, red, green, blue, opacity):
        return 0, 0, 0, 255
    return red.value, green.value, blue.value, opacity.value


def _letters(one: Painted, words: "pypdfium2.PdfTextPage") -> str:
    """What a text says, without its spaces."""
    import pypdfium2.raw as pdfium

    size = pdfium.FPDFTextObj_GetText(one.thing, words, None, 0)
    buffer = ctypes.create_string_buffer(size)
    pdfium.FPDFTextObj_GetText(one.thing, words, ctypes.cast(buffer, ctypes.POINTER(pdfium.FPDF_WCHAR)), size)
    return "".join(buffer.raw[: max(size - 2, 0)].decode("utf-16-le", "ignore").split())


def _around(many: Sequence[Bounds]) -> Bounds:
    left, bottom, right, top = zip(*many, strict=True)
    return min(left), min(bottom), max(right), max(top)


def _within(bounds: Bounds, outer: Bounds) -> Bounds:
    """These bounds with a little around them, as far as that is inside of others."""
    left, bottom = max(bounds[0] - AROUND, outer[0]), max(bounds[1] - AROUND, outer[1])
    return left, bottom, min(bounds[2] + AROUND, outer[2]), min(bounds[3] + AROUND, outer[3])


def _do_meet(one: Bounds, other: Bounds) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]

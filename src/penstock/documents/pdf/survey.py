"""A first look at a PDF, before anything in it is read: can it be opened, how many pages, where may text be hidden.

qpdf does this (by pikepdf), because it is not fooled by a wrong page count and says no to bombs that make others abort.
All of it runs in the sandbox; the library is imported there and nowhere else.
"""

import io
import re
import zlib
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from penstock.documents.errors import DocumentEmpty, DocumentEncrypted
from penstock.documents.rejections import Refusal, TurnedAway, too_large, unreadable

if TYPE_CHECKING:
    import pikepdf

MOST_OBJECTS = 5_000_000  # a thousand rich pages have about 100,000
MOST_CONTENT_BYTES = 128 * 1024 * 1024  # of a page; large maps have a tenth of that
TAIL_BYTES = 2048  # the end of a PDF is marked at its end, give or take what a mail server has added
OUR_NAME = re.compile(r"stream <[^>]*>[:,]? ?")  # how qpdf calls a file that it was handed open
IN_MEMORY_BYTES = 64 * 1024 * 1024
MUCH_INK_BYTES = 64 * 1024  # a dense page of text has a third of that; letters drawn as shapes have more
# The operator for text without ink, or with an outline of any colour.
UNFILLED = re.compile(rb"(?<![\w.])[1357]\s+Tr\b")
# Operators that choose a colour, and how many numbers they take at most.
COLOURS = {b" g": 1, b" rg": 3, b" k": 4, b" sc": 4}
NUMBERS_BYTES = 48  # what four numbers take, and more than they need
MAY_END_NUMBER = frozenset(b"0123456789. ")
BRIGHT, LITTLE_INK = 0.9, 0.1  # of 1; what is darker can be seen on white paper
FAINT = 0.25  # of 1; what is more opaque can be seen on any paper
BLANKS = bytes.maketrans(b"\0\t\n\f\r", b"     ")


class PdfSurvey(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What is known of a PDF by looking through it."""

    pages: int
    suspects: tuple[int, ...] = ()  # pages that may look other than their text says: pictures, pale text, much ink


def survey_pdf(file: BinaryIO, most_pages: int) -> PdfSurvey | Refusal:
    """Count the pages, and refuse what cannot or should not be read."""
    import pikepdf

    try:
        with pikepdf.open(_quickly(file)) as pdf:
            return _look_through(pdf, file, most_pages)
    except pikepdf.PasswordError:
        return TurnedAway(DocumentEncrypted).refusal
    except pikepdf.PdfError as error:
        return unreadable(_plain(error)).refusal
    except TurnedAway as no:
        return no.refusal


def _quickly(file: BinaryIO) -> BinaryIO:
    """qpdf asks Python for every few bytes; a file that is not large is quicker in memory."""
    content = file.read(IN_MEMORY_BYTES + 1)
    file.seek(0)
    return file if len(content) > IN_MEMORY_BYTES else io.BytesIO(content)


def _look_through(pdf: "pikepdf.Pdf", file: BinaryIO, most_pages: int) -> PdfSurvey:
    if len(pdf.objects) > MOST_OBJECTS:
        raise too_large(f"it has more than {MOST_OBJECTS} objects")
    count = len(pdf.pages)
    if _is_cut_short(pdf, file):
        raise unreadable("its end is missing")
    if not count:
        raise TurnedAway(DocumentEmpty)
    if count > most_pages:
        raise too_large(f"it has {count} pages, and {most_pages} may be read (ETL_MAX_PAGES)")
    suspects = tuple(number for number, page in enumerate(pdf.pages, 1) if _is_suspect(page))
    return PdfSurvey(pages=count, suspects=suspects)


def _is_suspect(page: "pikepdf.Page") -> bool:
    contents = _contents(page)
    if len(contents) > MUCH_INK_BYTES or b"Do" in contents or b"BI" in contents:
        return True
    if b"Tr" in contents and UNFILLED.search(contents) is not None:
        return True
    return _has_pale_colour(contents) or (b"gs" in contents and _has_faint_state(page))


def _has_pale_colour(contents: bytes) -> bool:
    """Whether something is nearly white. Looks for operators and then back: one pattern for all takes far longer."""
    spaced = contents.translate(BLANKS)
    for operator, most in COLOURS.items():
        at = spaced.find(operator)
        while at >= 0:
            is_word = spaced[at - 1] not in MAY_END_NUMBER
            is_dark = most < 4 and spaced[at - 2 : at] == b" 0"  # which most are, so they are told first
            if not is_word and not is_dark and _is_pale(_numbers(spaced, at, most), operator):
                return True
            at = spaced.find(operator, at + 1)
    return False


def _numbers(spaced: bytes, end: int, most: int) -> list[float]:
    """Those before this place, the last one first."""
    numbers: list[float] = []
    for word in reversed(spaced[max(0, end - NUMBERS_BYTES) : end].rsplit(None, most)[-most:]):
        try:
            numbers.append(float(word))
        except ValueError:
            break
    return numbers


def _is_pale(numbers: list[float], operator: bytes) -> bool:
    """Whether a colour is nearly white: much light, or little ink of the one or the four that there are."""
    if not numbers:
        return False
    is_ink = operator in {b" k", b" sc"} and len(numbers) in {1, 4} and max(numbers) <= LITTLE_INK
    return is_ink or min(numbers) >= BRIGHT


def _has_faint_state(page: "pikepdf.Page") -> bool:
    """Whether something may be as clear as glass."""
    import pikepdf

    states = page.resources.get("/ExtGState")
    if not isinstance(states, pikepdf.Dictionary):
        return False
    return any(isinstance(state, pikepdf.Dictionary) and _opacity(state) < FAINT for state in states.values())


def _opacity(state: "pikepdf.Object") -> float:
    try:
        return min(float(state.get(key, 1)) for key in ("/ca", "/CA"))
    except (TypeError, ValueError):
        return 0.0  # a closer look will tell


def _is_cut_short(pdf: "pikepdf.Pdf", file: BinaryIO) -> bool:
    """qpdf mends what it can; but a file without its end has lost pages that nobody would miss."""
    file.seek(0, io.SEEK_END)
    file.seek(max(0, file.tell() - TAIL_BYTES))
    return b"%%EOF" not in file.read() and bool(pdf.get_warnings())


def _contents(page: "pikepdf.Page") -> bytes:
    """What draws the page. A broken stream is no reason to give up here: the page itself will tell."""
    import pikepdf

    contents = page.obj.get("/Contents")
    streams = contents if isinstance(contents, pikepdf.Array) else [contents]
    try:
        return b"\n".join(_unpacked(stream) for stream in streams if isinstance(stream, pikepdf.Stream))
    except pikepdf.PdfError:
        return b""


def _unpacked(stream: "pikepdf.Stream") -> bytes:
    """The bytes of a stream. Those that are packed in the usual way are unpacked here, where there is a bound to it."""
    import pikepdf

    packed = stream.get("/Filter")
    filters = list(packed) if isinstance(packed, pikepdf.Array) else [packed]
    if "/DecodeParms" in stream or any(each != pikepdf.Name.FlateDecode for each in filters):
        return stream.read_bytes()
    content = stream.read_raw_bytes()
    for _ in filters:
        content = _inflated(content)
    return content


def _inflated(content: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        unpacked = unpacker.decompress(content, MOST_CONTENT_BYTES)
    except zlib.error:
        return b""
    if unpacker.unconsumed_tail:
        raise too_large(f"a page of it unpacks to more than {MOST_CONTENT_BYTES} bytes")
    return unpacked


def _plain(error: Exception) -> str:
    first = OUR_NAME.sub("", str(error).partition("\n")[0]).rstrip(". ")
    return first[:200] or "its structure is broken"

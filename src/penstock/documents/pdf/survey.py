"""Survey of a PDF before anything is read: whether it opens, how many pages it has, which may contain hidden text.

Uses qpdf (pikepdf), which ignores a wrong page count and rejects bombs that make other libraries abort. Everything runs
in the sandbox; the library is imported only there.
"""

import io
import re
import zlib
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from penstock.documents.errors import DocumentEmpty, DocumentEncrypted
from penstock.documents.rejections import DocumentRejected, Rejection, too_large, unreadable

if TYPE_CHECKING:
    import pikepdf

MAX_OBJECTS = 5_000_000  # a thousand complex pages have about 100,000
MAX_CONTENT_BYTES = 128 * 1024 * 1024  # of a page; large maps have a tenth of that
TAIL_BYTES = 2048  # the end marker is at the end of the file, before anything a mail server appended
QPDF_FILE_NAME = re.compile(r"stream <[^>]*>[:,]? ?")  # qpdf's name for an open file
IN_MEMORY_BYTES = 64 * 1024 * 1024
LARGE_CONTENT_BYTES = 64 * 1024  # three times a dense page of text; text drawn as paths has more
# The operator for invisible text, or for outlined text of any colour.
UNFILLED = re.compile(rb"(?<![\w.])[1357]\s+Tr\b")
SHOWN_TEXT = re.compile(rb"T[jJ]|['\"]")  # the operators that show text; other hits are no harm
# Operators that set a colour, and their largest number of operands.
COLOURS = {b" g": 1, b" rg": 3, b" k": 4, b" sc": 4}
NUMBERS_BYTES = 48  # enough for four operands
MAY_END_NUMBER = frozenset(b"0123456789. ")
BRIGHT, LITTLE_INK = 0.9, 0.1  # of 1; anything darker is visible on white paper
FAINT = 0.25  # of 1; anything more opaque is visible
BLANKS = bytes.maketrans(b"\0\t\n\f\r", b"     ")


class PdfSurvey(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The number of pages, and the pages to inspect further."""

    pages: int
    suspects: tuple[int, ...] = ()  # pages that may look different from their text: images, pale text, large content
    scanned: tuple[int, ...] = ()  # pages that draw images only, so they have no text layer


def survey_pdf(file: BinaryIO, max_pages: int) -> PdfSurvey | Rejection:
    """Count the pages, and reject a file that cannot or must not be read."""
    import pikepdf

    try:
        with pikepdf.open(_in_memory(file)) as pdf:
            return _inspect(pdf, file, max_pages)
    except pikepdf.PasswordError:
        return DocumentRejected(DocumentEncrypted).rejection
    except pikepdf.PdfError as error:
        return unreadable(_error_text(error)).rejection
    except DocumentRejected as rejected:
        return rejected.rejection


def _in_memory(file: BinaryIO) -> BinaryIO:
    """qpdf reads a few bytes at a time through Python, so a small file is faster in memory."""
    content = file.read(IN_MEMORY_BYTES + 1)
    file.seek(0)
    return file if len(content) > IN_MEMORY_BYTES else io.BytesIO(content)


def _inspect(pdf: "pikepdf.Pdf", file: BinaryIO, max_pages: int) -> PdfSurvey:
    if len(pdf.objects) > MAX_OBJECTS:
        raise too_large(f"it has more than {MAX_OBJECTS} objects")
    count = len(pdf.pages)
    if _is_truncated(pdf, file):
        raise unreadable("it is truncated")
    if not count:
        raise DocumentRejected(DocumentEmpty)
    if count > max_pages:
        raise too_large(f"it has {count} pages; the limit is {max_pages} (ETL_MAX_PAGES)")
    suspects: list[int] = []
    scanned: list[int] = []
    for number, page in enumerate(pdf.pages, 1):
        contents = _contents(page)
        if _is_suspect(page, contents):
            suspects.append(number)
            if _is_scanned(page, contents):
                scanned.append(number)
    return PdfSurvey(pages=count, suspects=tuple(suspects), scanned=tuple(scanned))


def _is_scanned(page: "pikepdf.Page", contents: bytes) -> bool:
    """Whether a page draws images and no text. A form or an annotation may contain text, so neither may be there."""
    import pikepdf

    if b"Do" not in contents or SHOWN_TEXT.search(contents) is not None or "/Annots" in page:
        return False
    drawn = page.resources.get("/XObject")
    return isinstance(drawn, pikepdf.Dictionary) and all(
        isinstance(each, pikepdf.Stream) and each.get("/Subtype") == pikepdf.Name.Image for each in drawn.values()
    )


def _is_suspect(page: "pikepdf.Page", contents: bytes) -> bool:
    if len(contents) > LARGE_CONTENT_BYTES or b"Do" in contents or b"BI" in contents:
        return True
    if b"Tr" in contents and UNFILLED.search(contents) is not None:
        return True
    return _has_pale_colour(contents) or (b"gs" in contents and _has_faint_state(page))


def _has_pale_colour(contents: bytes) -> bool:
    """Whether some colour is nearly white. Finds operators first, then their operands: faster than one pattern."""
    stream = contents.translate(BLANKS)
    for operator, operand_count in COLOURS.items():
        at = stream.find(operator)
        while at >= 0:
            is_word = stream[at - 1] not in MAY_END_NUMBER
            is_dark = operand_count < 4 and stream[at - 2 : at] == b" 0"  # the common case, decided without parsing
            if not is_word and not is_dark and _is_pale(_numbers(stream, at, operand_count), operator):
                return True
            at = stream.find(operator, at + 1)
    return False


def _numbers(stream: bytes, end: int, operand_count: int) -> list[float]:
    """The operands before this position, the last one first."""
    numbers: list[float] = []
    for word in reversed(stream[max(0, end - NUMBERS_BYTES) : end].rsplit(None, operand_count)[-operand_count:]):
        try:
            numbers.append(float(word))
        except ValueError:
            break
    return numbers


def _is_pale(numbers: list[float], operator: bytes) -> bool:
    """Whether a colour is nearly white: bright in RGB or grey, or little ink in CMYK or one channel."""
    if not numbers:
        return False
    is_ink = operator in {b" k", b" sc"} and len(numbers) in {1, 4} and max(numbers) <= LITTLE_INK
    return is_ink or min(numbers) >= BRIGHT


def _has_faint_state(page: "pikepdf.Page") -> bool:
    """Whether a graphics state is nearly transparent."""
    import pikepdf

    states = page.resources.get("/ExtGState")
    if not isinstance(states, pikepdf.Dictionary):
        return False
    return any(isinstance(state, pikepdf.Dictionary) and _opacity(state) < FAINT for state in states.values())


def _opacity(state: "pikepdf.Object") -> float:
    try:
        return min(float(state.get(key, 1)) for key in ("/ca", "/CA"))
    except (TypeError, ValueError):
        return 0.0  # inspected further


def _is_truncated(pdf: "pikepdf.Pdf", file: BinaryIO) -> bool:
    """qpdf repairs what it can, but a file without its end has lost pages without notice."""
    file.seek(0, io.SEEK_END)
    file.seek(max(0, file.tell() - TAIL_BYTES))
    return b"%%EOF" not in file.read() and bool(pdf.get_warnings())


def _contents(page: "pikepdf.Page") -> bytes:
    """The content stream of a page. A damaged stream is ignored here: reading the page reports it."""
    import pikepdf

    contents = page.obj.get("/Contents")
    streams = contents if isinstance(contents, pikepdf.Array) else [contents]
    try:
        return b"\n".join(_decoded_stream(stream) for stream in streams if isinstance(stream, pikepdf.Stream))
    except pikepdf.PdfError:
        return b""


def _decoded_stream(stream: "pikepdf.Stream") -> bytes:
    """The decoded bytes of a stream. Flate streams are decoded here, with a size limit."""
    import pikepdf

    packed = stream.get("/Filter")
    filters = list(packed) if isinstance(packed, pikepdf.Array) else [packed]
    if "/DecodeParms" in stream or any(each != pikepdf.Name.FlateDecode for each in filters):
        return stream.read_bytes()
    content = stream.read_raw_bytes()
    for _ in filters:
        content = _inflate(content)
    return content


def _inflate(content: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        unpacked = unpacker.decompress(content, MAX_CONTENT_BYTES)
    except zlib.error:
        return b""
    if unpacker.unconsumed_tail:
        raise too_large(f"a page unpacks to more than {MAX_CONTENT_BYTES} bytes")
    return unpacked


def _error_text(error: Exception) -> str:
    first = QPDF_FILE_NAME.sub("", str(error).partition("\n")[0]).rstrip(". ")
    return first[:200] or "its structure is broken"

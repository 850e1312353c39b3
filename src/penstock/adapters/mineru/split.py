"""Cut pages out of a PDF as a new PDF. Runs in the sandbox.

A sandboxed process cannot write files, so a part is returned in chunks. Each call builds the whole part again: the same
pages always produce the same bytes, which the hash in each chunk verifies.
"""

import hashlib
import io
from typing import BinaryIO

import msgspec

from penstock.documents.rejections import Rejection, unreadable

PIECE_BYTES = 16 * 1024 * 1024


class PartSize(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The size of a part."""

    size_bytes: int


class PartChunk(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Some bytes of a part, and size and hash of the whole."""

    content: bytes
    size_bytes: int
    sha256: str


def measure_part(file: BinaryIO, first: int, last: int) -> PartSize | Rejection:
    """The size of these pages as a PDF."""
    made = _part(file, first, last)
    return made if isinstance(made, Rejection) else PartSize(size_bytes=len(made))


def cut_part(file: BinaryIO, first: int, last: int, start: int) -> PartChunk | Rejection:
    """A chunk of these pages as a PDF."""
    made = _part(file, first, last)
    if isinstance(made, Rejection):
        return made
    content = bytes(made[start : start + PIECE_BYTES])
    return PartChunk(content=content, size_bytes=len(made), sha256=hashlib.sha256(made).hexdigest())


def _part(file: BinaryIO, first: int, last: int) -> memoryview | Rejection:
    import pikepdf

    made = io.BytesIO()
    try:
        with pikepdf.open(file, access_mode=pikepdf.AccessMode.mmap) as pdf, pikepdf.new() as part:
            part.pages.extend(pdf.pages[first - 1 : last])
            part.remove_unreferenced_resources()  # shared resource lists would bring every image along
            # Streams are copied as they are: recompressing takes a second per ten pages of images.
            as_they_are = pikepdf.StreamDecodeLevel.none
            part.save(made, deterministic_id=True, compress_streams=False, stream_decode_level=as_they_are)
    except pikepdf.PdfError:
        return unreadable(f"pages {first} to {last} cannot be cut out").rejection
    return made.getbuffer()

"""Pages of a PDF as a PDF of their own: what runs in the sandbox.

A child may write no file, so a part comes back in pieces. Each piece is cut out of the whole part, which is made anew:
the same pages always make the same bytes, and the hash that comes along proves it.
"""

import hashlib
import io
from typing import BinaryIO

import msgspec

from penstock.documents.rejections import Refusal, unreadable

PIECE_BYTES = 16 * 1024 * 1024


class Weight(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """How large a part is."""

    size_bytes: int


class Piece(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Some bytes of a part, and what the whole is like."""

    content: bytes
    size_bytes: int
    sha256: str


def weigh(file: BinaryIO, first: int, last: int) -> Weight | Refusal:
    """How large these pages are as a file."""
    made = _part(file, first, last)
    return made if isinstance(made, Refusal) else Weight(size_bytes=len(made))


def cut(file: BinaryIO, first: int, last: int, start: int) -> Piece | Refusal:
    """A piece of these pages as a file."""
    made = _part(file, first, last)
    if isinstance(made, Refusal):
        return made
    content = bytes(made[start : start + PIECE_BYTES])
    return Piece(content=content, size_bytes=len(made), sha256=hashlib.sha256(made).hexdigest())


def _part(file: BinaryIO, first: int, last: int) -> memoryview | Refusal:
    import pikepdf

    made = io.BytesIO()
    try:
        with pikepdf.open(file, access_mode=pikepdf.AccessMode.mmap) as pdf, pikepdf.new() as part:
            part.pages.extend(pdf.pages[first - 1 : last])
            part.remove_unreferenced_resources()  # a list that all pages share would bring every picture along
            # As they are: to unpack and pack streams anew takes a second for ten pages of pictures.
            as_they_are = pikepdf.StreamDecodeLevel.none
            part.save(made, deterministic_id=True, compress_streams=False, stream_decode_level=as_they_are)
    except pikepdf.PdfError:
        return unreadable(f"pages {first} to {last} cannot be cut out").refusal
    return made.getbuffer()

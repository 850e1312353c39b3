"""What runs in the sandbox to read a file that is text already: which kind it is, and its pages part by part.

An answer from the sandbox is bounded, so a file is read in parts. Each part ends with a bookmark from which the next
goes on; where a format cannot be entered in the middle, it is read again and the pages that were given already are left
out.
"""

import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO

import msgspec

from penstock.documents import kinds
from penstock.documents.blocks import PAGE_CHARACTERS, Block, to_pages
from penstock.documents.kinds import Kind, kind_of
from penstock.documents.office.docx import read_docx
from penstock.documents.office.package import names_inside
from penstock.documents.office.pptx import read_pptx
from penstock.documents.office.xlsx import read_xlsx
from penstock.documents.pages import Page
from penstock.documents.rejections import Refusal, TurnedAway
from penstock.documents.text.csv_tables import read_csv
from penstock.documents.text.html import read_html
from penstock.documents.text.mail import read_mail
from penstock.documents.text.plain import read_plain
from penstock.kernel.errors import PenstockError

PART_BYTES = 4 * 1024 * 1024  # after which a part ends; with its last page it stays well under what is asked for
DIRECTORY_BYTES = 4096

Reader = Callable[[BinaryIO, str], Iterator[Block]]
READERS: dict[Kind, Reader] = {
    Kind.DOCX: read_docx,
    Kind.PPTX: read_pptx,
    Kind.XLSX: read_xlsx,
    Kind.HTML: read_html,
    Kind.EML: read_mail,
    Kind.CSV: read_csv,
    Kind.TXT: read_plain,
    Kind.MD: read_plain,
}


class Bookmark(msgspec.Struct, frozen=True, kw_only=True):
    """Where a part begins: the number of its first page, and what its reader left for itself."""

    page: int = 1
    resume: str = ""


class Part(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Some pages, and where the next part begins; None after the last."""

    pages: tuple[Page, ...]
    following: Bookmark | None


class Named(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The kind of a file."""

    kind: Kind


def name_kind(file: BinaryIO, filename: str) -> Named | Refusal:
    """Which kind a file is, looking into archives where that is needed."""
    head = file.read(kinds.HEAD_BYTES)
    names = names_inside(file) if kinds.is_archive(head) else ()
    if kinds.is_old_office(head):
        head += _directory(file, head)
    try:
        return Named(kind=kind_of(head, filename, names))
    except PenstockError as error:
        return Refusal(code=error.code, reason=str(error.values.get("seen", "")))


def read_part(file: BinaryIO, kind: str, page: int, resume: str) -> Part | Refusal:
    """The pages from a bookmark on, as many as fit a part."""
    try:
        return _part(file, Kind(kind), Bookmark(page=page, resume=resume))
    except TurnedAway as refused:
        return refused.refusal


def _part(file: BinaryIO, kind: Kind, start: Bookmark) -> Part:
    pages: list[Page] = []
    size = 0
    blocks = READERS[kind](file, start.resume)
    longest = sys.maxsize if kind is Kind.PPTX else PAGE_CHARACTERS  # a slide is a page, however long
    for page, resume in to_pages(blocks, first=start.page if start.resume else 1, longest=longest):
        if page.number < start.page:
            continue
        if size >= PART_BYTES:
            return Part(pages=tuple(pages), following=Bookmark(page=page.number))
        pages.append(page)
        size += len(msgspec.msgpack.encode(page))
        if size >= PART_BYTES and resume:
            return Part(pages=tuple(pages), following=Bookmark(page=page.number + 1, resume=resume))
    return Part(pages=tuple(pages), following=None)


def _directory(file: BinaryIO, head: bytes) -> bytes:
    """Where the container of old office files lists its streams: their names tell a password."""
    sector_bytes = 1 << min(int.from_bytes(head[30:32], "little"), 16)
    file.seek((int.from_bytes(head[48:52], "little") + 1) * sector_bytes)
    return file.read(DIRECTORY_BYTES)

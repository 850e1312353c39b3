"""Sandboxed reading of formats that need no OCR: detects the kind, and reads pages in batches.

An answer of the sandbox has a size limit, so a file is read in batches. Each batch ends with a cursor for the next one.
A format that cannot be entered in the middle is read from the start again, and pages already returned are skipped.
"""

import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO

import msgspec

from penstock.documents import kinds
from penstock.documents.blocks import PAGE_CHARACTERS, Block, to_pages
from penstock.documents.kinds import Kind, detect_kind
from penstock.documents.office.docx import read_docx
from penstock.documents.office.package import archive_names
from penstock.documents.office.pptx import read_pptx
from penstock.documents.office.xlsx import read_xlsx
from penstock.documents.pages import Page
from penstock.documents.rejections import DocumentRejected, Rejection
from penstock.documents.text.csv_tables import read_csv
from penstock.documents.text.html import read_html
from penstock.documents.text.mail import read_mail
from penstock.documents.text.plain import read_plain
from penstock.kernel.errors import PenstockError

BATCH_BYTES = 4 * 1024 * 1024  # a batch ends after this; with its last page it stays below the answer limit
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


class ReadCursor(msgspec.Struct, frozen=True, kw_only=True):
    """Where a batch starts: its first page, and the position that the format reader stored."""

    page: int = 1
    resume: str = ""


class ReadBatch(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Some pages, and the cursor of the next batch; None after the last."""

    pages: tuple[Page, ...]
    following: ReadCursor | None


class DetectedKind(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The kind of a file, as an answer of the sandbox."""

    kind: Kind


def detect_kind_in_file(file: BinaryIO, filename: str) -> DetectedKind | Rejection:
    """Detect the kind of a file, looking into archives where needed."""
    head = file.read(kinds.HEAD_BYTES)
    names = archive_names(file) if kinds.is_archive(head) else ()
    if kinds.is_old_office(head):
        head += _directory(file, head)
    try:
        return DetectedKind(kind=detect_kind(head, filename, names))
    except PenstockError as error:
        return Rejection(code=error.code, reason=str(error.values.get("seen", "")))


def read_batch(file: BinaryIO, kind: str, page: int, resume: str) -> ReadBatch | Rejection:
    """Read pages from a cursor on, as many as fit a batch."""
    try:
        return _read_batch(file, Kind(kind), ReadCursor(page=page, resume=resume))
    except DocumentRejected as refused:
        return refused.rejection


def _read_batch(file: BinaryIO, kind: Kind, start: ReadCursor) -> ReadBatch:
    pages: list[Page] = []
    size = 0
    blocks = READERS[kind](file, start.resume)
    longest = sys.maxsize if kind is Kind.PPTX else PAGE_CHARACTERS  # a slide is one page, whatever its length
    for page, resume in to_pages(blocks, first=start.page if start.resume else 1, longest=longest):
        if page.number < start.page:
            continue
        if size >= BATCH_BYTES:
            return ReadBatch(pages=tuple(pages), following=ReadCursor(page=page.number))
        pages.append(page)
        size += len(msgspec.msgpack.encode(page))
        if size >= BATCH_BYTES and resume:
            return ReadBatch(pages=tuple(pages), following=ReadCursor(page=page.number + 1, resume=resume))
    return ReadBatch(pages=tuple(pages), following=None)


def _directory(file: BinaryIO, head: bytes) -> bytes:
    """The stream directory of an OLE container. Its names show whether the file has a password."""
    sector_bytes = 1 << min(int.from_bytes(head[30:32], "little"), 16)
    file.seek((int.from_bytes(head[48:52], "little") + 1) * sector_bytes)
    return file.read(DIRECTORY_BYTES)

"""Detects the kind of a file, by content first and by name second.

A PDF named .docx is a PDF. The name decides only between text formats that look alike (csv, txt, md) and where the
content is ambiguous. Office files are zip archives and are told apart by the names of their entries.
"""

import re
from collections.abc import Collection
from enum import StrEnum
from pathlib import PurePath

from penstock.documents.errors import DocumentEmpty, DocumentEncrypted, DocumentKindUnknown
from penstock.documents.text.encoding import SAMPLE_BYTES, decode_text, detect_encoding

HEAD_BYTES = SAMPLE_BYTES
PDF_BYTES = 1024  # the PDF header may start this late in the file


class Kind(StrEnum):
    """The supported kinds of files."""

    PDF = "pdf"
    PNG = "png"
    JPEG = "jpeg"
    TIFF = "tiff"
    WEBP = "webp"
    DOCX = "docx"
    PPTX = "pptx"
    XLSX = "xlsx"
    HTML = "html"
    EML = "eml"
    CSV = "csv"
    TXT = "txt"
    MD = "md"


IMAGES = frozenset({Kind.PNG, Kind.JPEG, Kind.TIFF, Kind.WEBP})
TEXT_KINDS = frozenset(Kind) - IMAGES - {Kind.PDF}  # need no OCR

SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", Kind.PNG),
    (b"\xff\xd8\xff", Kind.JPEG),
    (b"II*\0", Kind.TIFF),
    (b"MM\0*", Kind.TIFF),
    (b"II+\0", Kind.TIFF),
    (b"MM\0+", Kind.TIFF),
)
FOREIGN_TEXT = ((b"{\\rtf", "RTF"), (b"%!PS", "PostScript"))
FOREIGN_BYTES = (
    (b"\x1f\x8b", "gzip"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"Rar!\x1a\x07", "RAR"),
    (b"GIF8", "GIF"),
    (b"BM", "BMP"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
)
ZIP = (b"PK\x03\x04", b"PK\x05\x06")
OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
LOCKED_PACKAGE = "EncryptedPackage".encode("utf-16-le")  # stream name in a password-protected docx, pptx or xlsx
INSIDE = (("word/document", Kind.DOCX), ("ppt/presentation", Kind.PPTX), ("xl/workbook", Kind.XLSX))
OFFICE = tuple(kind for _, kind in INSIDE)
EXTENSIONS = {
    ".docx": Kind.DOCX,
    ".pptx": Kind.PPTX,
    ".xlsx": Kind.XLSX,
    ".html": Kind.HTML,
    ".htm": Kind.HTML,
    ".xhtml": Kind.HTML,
    ".eml": Kind.EML,
    ".csv": Kind.CSV,
    ".tsv": Kind.CSV,
    ".md": Kind.MD,
    ".markdown": Kind.MD,
}
WEB_PAGE = re.compile(
    r"\s*(<\?xml[^>]{0,200}>\s*)?(<!--.{0,2000}?-->\s*){0,4}<(!doctype\s+html|html)[\s>]", re.IGNORECASE | re.DOTALL
)
MAIL_HEADER = re.compile(r"^(from|to|cc|subject|date|received|return-path|message-id|mime-version):", re.IGNORECASE)
ANY_HEADER = re.compile(r"^[!-9;-~]+:|^[ \t]|^From ")
MIN_MAIL_HEADERS = 3


def detect_kind(head: bytes, filename: str, names: Collection[str] = ()) -> Kind:
    """The kind of a file, by its first HEAD_BYTES, its name, and the entry names if it is an archive."""
    if not head:
        raise DocumentEmpty(filename=filename)
    by_name = EXTENSIONS.get(PurePath(filename.lower()).suffix)
    if is_archive(head):
        return _of_archive(filename, by_name, names)
    if is_old_office(head):
        raise _old_office(head, filename)
    kind_found = _kind_by_header(head, filename)
    if kind_found is not None:
        return kind_found
    codec = detect_encoding(head)
    if codec is None:
        raise DocumentKindUnknown(filename=filename, seen=_describe(head, FOREIGN_BYTES) or "binary data")
    if seen := _describe(head, FOREIGN_TEXT):
        raise DocumentKindUnknown(filename=filename, seen=seen)
    return _of_text(decode_text(head, codec), by_name)


def is_archive(head: bytes) -> bool:
    """Whether it is a zip archive, whose kind depends on its entry names."""
    return head.startswith(ZIP)


def is_old_office(head: bytes) -> bool:
    """Whether it is an OLE container: Office before 2007, or a newer file with a password."""
    return head.startswith(OLD_OFFICE)


def _of_archive(filename: str, by_name: Kind | None, names: Collection[str]) -> Kind:
    for inside, kind in INSIDE:
        if any(name.startswith(inside) for name in names):
            return kind
    if not names and by_name in OFFICE:
        return by_name
    raise DocumentKindUnknown(filename=filename, seen="a zip archive")


def _old_office(head: bytes, filename: str) -> DocumentEncrypted | DocumentKindUnknown:
    if LOCKED_PACKAGE in head:
        return DocumentEncrypted(filename=filename)
    return DocumentKindUnknown(filename=filename, seen="an Office file from before 2007")


def kind_by_signature(head: bytes) -> Kind | None:
    """The kind of a file with an unambiguous signature (magic number). Only compares bytes."""
    for beginning, kind in SIGNATURES:
        if head.startswith(beginning):
            return kind
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return Kind.WEBP
    return Kind.PDF if head.lstrip().startswith(b"%PDF-") else None


def _kind_by_header(head: bytes, filename: str) -> Kind | None:
    if (kind_found := kind_by_signature(head)) is not None:
        return kind_found
    late = b"%PDF-" in head[:PDF_BYTES] and (filename.lower().endswith(".pdf") or detect_encoding(head) is None)
    return Kind.PDF if late else None  # otherwise a text that mentions PDF


def _describe(head: bytes, known: tuple[tuple[bytes, str], ...]) -> str | None:
    return next((seen for beginning, seen in known if head.startswith(beginning)), None)


def _of_text(text: str, by_name: Kind | None) -> Kind:
    if WEB_PAGE.match(text):
        return Kind.HTML
    if _is_mail(text):
        return Kind.EML
    if by_name in OFFICE or by_name is None:
        return Kind.TXT
    return by_name


def _is_mail(text: str) -> bool:
    """Whether it starts with mail headers."""
    known = set()
    for line in text.splitlines()[:200]:
        if not line:
            break
        if not ANY_HEADER.match(line):
            return False
        if header := MAIL_HEADER.match(line):
            known.add(header[1].lower())
    return "from" in known and len(known) >= MIN_MAIL_HEADERS

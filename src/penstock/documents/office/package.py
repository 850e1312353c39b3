"""An Office Open XML package: a zip archive with limits, whose parts are XML streams.

The declared sizes are checked before anything is decompressed, and zipfile never decompresses more than declared. XML
with a document type (DTD) is rejected: office programs never write one, and an external entity can only be declared
there.
"""

import posixpath
import struct
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Iterator
from typing import IO, BinaryIO
from xml.parsers import expat

from penstock.documents.errors import DocumentEncrypted
from penstock.documents.rejections import DocumentRejected, too_large, unreadable

MAX_ENTRIES = 10_000
MAX_DIRECTORY_BYTES = 4 * 1024 * 1024
MAX_BYTES = 1024 * 1024 * 1024  # of all parts, decompressed
UNCHECKED_BYTES = 16 * 1024 * 1024  # below this the compression ratio does not matter
MAX_RATIO = 200  # the XML of a monotonous spreadsheet compresses 20:1, a zip bomb 1000:1
MAX_TREE_BYTES = 64 * 1024 * 1024  # of a part that is parsed as a whole
CHUNK_BYTES = 64 * 1024

END = b"PK\x05\x06"
END_BYTES = 22
MAX_COMMENT_BYTES = 65_535
IS_ENCRYPTED = 0x1
RELATIONS = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"


class Package:
    """An office file within the limits."""

    def __init__(self, file: BinaryIO) -> None:
        _check_directory(file)
        self._zip = zipfile.ZipFile(file)
        self._parts = {entry.filename: entry for entry in self._zip.infolist()}
        self._check_sizes()

    def _check_sizes(self) -> None:
        entries = self._zip.infolist()
        if any(entry.flag_bits & IS_ENCRYPTED for entry in entries):
            raise DocumentRejected(DocumentEncrypted)
        unpacked = sum(entry.file_size for entry in entries)
        packed = sum(entry.compress_size for entry in entries)
        if unpacked > MAX_BYTES:
            raise too_large(f"it unpacks to {unpacked} bytes; the limit is {MAX_BYTES}")
        if unpacked > UNCHECKED_BYTES and unpacked > MAX_RATIO * max(packed, 1):
            raise too_large(f"it unpacks to more than {MAX_RATIO} times its size, like a zip bomb")

    def __contains__(self, part: str) -> bool:
        return part in self._parts

    def names(self) -> list[str]:
        """The names of all parts."""
        return list(self._parts)

    def tree(self, part: str) -> ET.Element:
        """Parse a whole part."""
        if self._entry(part).file_size > MAX_TREE_BYTES:
            raise too_large(f"{part} has more than {MAX_TREE_BYTES} bytes")
        with self.open_part(part) as stream:
            return ET.parse(stream).getroot()  # noqa: S314  (it has no document type, see _check_prolog)

    def items(self, part: str, *, depth: int) -> Iterator[ET.Element]:
        """Stream the elements at this depth (the root is 1). Each is freed after its turn."""
        with self.open_part(part) as stream:
            path: list[ET.Element] = []
            for event, element in ET.iterparse(stream, events=("start", "end")):  # noqa: S314  (as above)
                if event == "start":
                    path.append(element)
                    continue
                path.pop()
                if len(path) == depth - 1:
                    yield element
                    if path:
                        path[-1].clear()

    def relationships(self, part: str) -> dict[str, tuple[str, str]]:
        """The relationships of a part to parts of the package: id → (last segment of the type, part name)."""
        folder, name = posixpath.split(part)
        rels_name = posixpath.join(folder, "_rels", f"{name}.rels")
        if rels_name not in self:
            return {}
        return {
            each.get("Id", ""): (each.get("Type", "").rpartition("/")[2], _target_name(folder, each.get("Target", "")))
            for each in self.tree(rels_name).iter(RELATIONS)
            if each.get("TargetMode") != "External"
        }

    def related(self, part: str, kind: str) -> str | None:
        """The related part of this kind, or None."""
        names = (name for each, name in self.relationships(part).values() if each == kind)
        return next((name for name in names if name in self), None)

    def main(self) -> str:
        """The main part of the document."""
        name = self.related("", "officeDocument")
        if name is None:
            raise unreadable("it has no main part")
        return name

    def open_part(self, part: str) -> IO[bytes]:
        """Open a part after checking that it has no document type."""
        entry = self._entry(part)
        with self._zip.open(entry) as stream:
            _check_prolog(stream, part)
        return self._zip.open(entry)

    def _entry(self, part: str) -> zipfile.ZipInfo:
        entry = self._parts.get(part)
        if entry is None:
            raise unreadable(f"part {part} is missing")
        return entry


def archive_names(file: BinaryIO) -> list[str]:
    """The entry names of an archive; none if it is damaged or exceeds the limits."""
    try:
        _check_directory(file)
        return zipfile.ZipFile(file).namelist()
    except (zipfile.BadZipFile, DocumentRejected, ValueError, OSError):
        return []


def _check_directory(file: BinaryIO) -> None:
    """Check the size of the central directory, from its end record, before zipfile reads it into memory."""
    size = file.seek(0, 2)
    file.seek(max(0, size - END_BYTES - MAX_COMMENT_BYTES))
    tail = file.read()
    at = tail.rfind(END)
    if at < 0 or len(tail) < at + END_BYTES:
        raise unreadable("it is truncated: the end of the archive is missing")
    _, entries, directory_bytes = struct.unpack("<HHI", tail[at + 8 : at + 16])
    if entries > MAX_ENTRIES or directory_bytes > MAX_DIRECTORY_BYTES:
        raise too_large(f"it has {entries} or more parts; the limit is {MAX_ENTRIES}")


def _check_prolog(stream: IO[bytes], part: str) -> None:
    """Reject a document type. It can only stand before the first element, so parsing stops there."""

    class _PrologEnd(Exception):
        """The first element has started."""

    def begin(*_: object) -> None:
        raise _PrologEnd

    def refuse(*_: object) -> None:
        raise unreadable(f"{part} has a document type (DTD), which could declare entities")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.StartDoctypeDeclHandler = begin, refuse
    try:
        while chunk := stream.read(CHUNK_BYTES):
            parser.Parse(chunk, False)
    except _PrologEnd:
        return
    raise unreadable(f"{part} is empty")


def _target_name(folder: str, target: str) -> str:
    """The name of a target part, without a leading slash."""
    return posixpath.normpath(posixpath.join("/" + folder, target)).lstrip("/")

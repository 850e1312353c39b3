"""An office file as the zip archive that it is: opened with care, its parts as streams of XML.

What a file says of its own sizes is checked before anything is unpacked, and no more than that is ever unpacked. XML
with a document type is turned away: office programs never write one, and entities only come by it.
"""

import posixpath
import struct
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Iterator
from typing import IO, BinaryIO
from xml.parsers import expat

from penstock.documents.errors import DocumentEncrypted
from penstock.documents.rejections import TurnedAway, too_large, unreadable

MOST_ENTRIES = 10_000
MOST_DIRECTORY_BYTES = 4 * 1024 * 1024
MOST_BYTES = 1024 * 1024 * 1024  # of all parts, unpacked
FREE_BYTES = 16 * 1024 * 1024  # up to here nobody asks how well it was packed
MOST_RATIO = 200  # the XML of a dull spreadsheet is packed 20 to 1, a bomb 1000 to 1
MOST_TREE_BYTES = 64 * 1024 * 1024  # of a part that is read as a whole
CHUNK_BYTES = 64 * 1024

END = b"PK\x05\x06"
END_BYTES = 22
MOST_COMMENT_BYTES = 65_535
IS_ENCRYPTED = 0x1
RELATIONS = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"


class Package:
    """An office file that may be unpacked."""

    def __init__(self, file: BinaryIO) -> None:
        _check_directory(file)
        self._zip = zipfile.ZipFile(file)
        self._parts = {entry.filename: entry for entry in self._zip.infolist()}
        self._check_sizes()

    def _check_sizes(self) -> None:
        entries = self._zip.infolist()
        if any(entry.flag_bits & IS_ENCRYPTED for entry in entries):
            raise TurnedAway(DocumentEncrypted)
        unpacked = sum(entry.file_size for entry in entries)
        packed = sum(entry.compress_size for entry in entries)
        if unpacked > MOST_BYTES:
            raise too_large(f"it unpacks to {unpacked} bytes, and {MOST_BYTES} is the most")
        if unpacked > FREE_BYTES and unpacked > MOST_RATIO * max(packed, 1):
            raise too_large(f"it unpacks to more than {MOST_RATIO} times its size, as only a zip bomb does")

    def __contains__(self, part: str) -> bool:
        return part in self._parts

    def names(self) -> list[str]:
        """What is inside."""
        return list(self._parts)

    def tree(self, part: str) -> ET.Element:
        """A part as a whole."""
        if self._entry(part).file_size > MOST_TREE_BYTES:
            raise too_large(f"{part} has more than {MOST_TREE_BYTES} bytes")
        with self.opened(part) as stream:
            return ET.parse(stream).getroot()  # noqa: S314  (it has no document type, see _check_prolog)

    def items(self, part: str, *, depth: int) -> Iterator[ET.Element]:
        """The elements at this depth (the root is at 1), one after another; each is forgotten after its turn."""
        with self.opened(part) as stream:
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

    def relations(self, part: str) -> dict[str, tuple[str, str]]:
        """What a part refers to inside the package: by id, the last word of the type and the name of the part."""
        folder, name = posixpath.split(part)
        listed = posixpath.join(folder, "_rels", f"{name}.rels")
        if listed not in self:
            return {}
        return {
            each.get("Id", ""): (each.get("Type", "").rpartition("/")[2], _joined(folder, each.get("Target", "")))
            for each in self.tree(listed).iter(RELATIONS)
            if each.get("TargetMode") != "External"
        }

    def related(self, part: str, kind: str) -> str | None:
        """The one part of this kind that a part refers to."""
        names = (name for each, name in self.relations(part).values() if each == kind)
        return next((name for name in names if name in self), None)

    def main(self) -> str:
        """The part with which reading begins."""
        name = self.related("", "officeDocument")
        if name is None:
            raise unreadable("it names no main part")
        return name

    def opened(self, part: str) -> IO[bytes]:
        """The bytes of a part that has no document type."""
        entry = self._entry(part)
        with self._zip.open(entry) as stream:
            _check_prolog(stream, part)
        return self._zip.open(entry)

    def _entry(self, part: str) -> zipfile.ZipInfo:
        entry = self._parts.get(part)
        if entry is None:
            raise unreadable(f"its part {part} is missing")
        return entry


def names_inside(file: BinaryIO) -> list[str]:
    """What an archive has inside, as far as it may be looked at; nothing when it is broken."""
    try:
        _check_directory(file)
        return zipfile.ZipFile(file).namelist()
    except (zipfile.BadZipFile, TurnedAway, ValueError, OSError):
        return []


def _check_directory(file: BinaryIO) -> None:
    """Weigh the list of entries by what its end says, before it is read into memory."""
    size = file.seek(0, 2)
    file.seek(max(0, size - END_BYTES - MOST_COMMENT_BYTES))
    tail = file.read()
    at = tail.rfind(END)
    if at < 0 or len(tail) < at + END_BYTES:
        raise unreadable("it is cut short: the end of its archive is missing")
    _, entries, directory_bytes = struct.unpack("<HHI", tail[at + 8 : at + 16])
    if entries > MOST_ENTRIES or directory_bytes > MOST_DIRECTORY_BYTES:
        raise too_large(f"it has {entries} parts or more, and {MOST_ENTRIES} is the most")


def _check_prolog(stream: IO[bytes], part: str) -> None:
    """Read until the first element, before which alone a document type can stand."""

    class _Begun(Exception):
        """The prolog is over."""

    def begin(*_: object) -> None:
        raise _Begun

    def refuse(*_: object) -> None:
        raise unreadable(f"{part} has a document type (DTD), by which entities could be brought in")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.StartDoctypeDeclHandler = begin, refuse
    try:
        while chunk := stream.read(CHUNK_BYTES):
            parser.Parse(chunk, False)
    except _Begun:
        return
    raise unreadable(f"{part} has no content")


def _joined(folder: str, target: str) -> str:
    """A part's name without its leading slash, as the archive has it."""
    return posixpath.normpath(posixpath.join("/" + folder, target)).lstrip("/")

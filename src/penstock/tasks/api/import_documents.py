"""The files of an import: documents as `mongoexport` writes them, one per line, in an array, or pretty-printed.

A file is read in blocks, and one document is in memory at a time, so a file may have any size. MongoDB Extended JSON is
converted in both of its forms, relaxed and canonical.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO

import msgspec

BLOCK_BYTES = 1024 * 1024
# A stored document has at most 16 MiB; canonical Extended JSON makes it a few times longer.
MAX_DOCUMENT_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 12  # of Extended JSON that is converted: the time of a message of a task of a queue is at six
SEPARATORS = re.compile(rb"[\s,\[\]]*+")
STRUCTURE = re.compile(rb'["{}\n]')
STRING_REST = re.compile(
    rb'(?:[^"\\\n]++|\\[^\n])*+'
)  # up to the closing quote; a line break is never part of a string
NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
QUOTE, OPEN, LINE_BREAK = b'"{\n'
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True)
class ExportDocument:
    """A document of a file: its content, or its problem. `line` is where it begins."""

    line: int
    size_bytes: int
    content: dict[str, Any] | None = None
    problem: str = ""


class NotADocument(ValueError):
    """A part of the file that is not a document; the next one is looked for after it."""


def read_documents(file: BinaryIO) -> Iterator[ExportDocument]:
    """Read the documents of a file, one after the other."""
    scanner = _Scanner(file)
    while scanner.skip_separators():
        line, started_at = scanner.line, scanner.consumed
        try:
            raw = scanner.take_document()
            content = _decode(raw)
        except ValueError as error:
            if isinstance(error, NotADocument):
                scanner.skip_line()
            yield ExportDocument(line=line, size_bytes=scanner.consumed - started_at, problem=str(error))
        else:
            yield ExportDocument(line=line, size_bytes=len(raw), content=content)


class _Scanner:
    """Finds where documents begin and end: the braces outside of strings are counted, nothing is parsed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._buffer = b""
        self._at = 0  # up to here the file is consumed
        self._looked_at = 0  # up to here the current document was searched for its end
        self._one_per_line: bool | None = None  # unknown until the first document is complete
        self.line = 1
        self.consumed = 0  # bytes

    def skip_separators(self) -> bool:
        """Skip to the next document; False at the end of the file."""
        while True:
            if self.consumed == 0 and self._buffer.startswith(BOM):
                self._advance(len(BOM))
            found = SEPARATORS.match(self._buffer, self._at)
            self._advance(found.end() if found else self._at)
            if self._at < len(self._buffer):
                return True
            if not self._read():
                return False

    def take_document(self) -> bytes:
        """Consume the document at the position, or the part of it that was read when it turned out to be wrong."""
        if self._buffer[self._at] != OPEN:
            raise NotADocument("not a JSON object")
        self._looked_at, depth = self._at, 0
        while True:
            mark = self._next_mark()
            if mark == LINE_BREAK:
                if self._one_per_line or self._next_line_is_a_document():
                    self._looked_at -= 1  # before the line break
                    raise self._broken("the line ends inside of a document")
                continue
            depth += 1 if mark == OPEN else -1
            if depth == 0:
                return self._take()

    def _next_line_is_a_document(self) -> bool:
        """Whether the next line begins with a brace: inside of a document, lines are indented."""
        if self._looked_at == len(self._buffer):
            self._read_on()
        return self._buffer[self._looked_at] == OPEN

    def _take(self) -> bytes:
        raw, first_line = self._buffer[self._at : self._looked_at], self.line
        self._advance(self._looked_at)
        if self._one_per_line is None:
            self._one_per_line = self.line == first_line
        if len(raw) > MAX_DOCUMENT_BYTES:
            raise ValueError(f"longer than {MAX_DOCUMENT_BYTES} bytes")
        return raw

    def _next_mark(self) -> int:
        """The next brace or line break outside of a string."""
        while True:
            found = STRUCTURE.search(self._buffer, self._looked_at)
            if found is None:
                self._looked_at = len(self._buffer)
                self._read_on()
                continue
            self._looked_at = found.end()
            if (mark := self._buffer[found.start()]) != QUOTE:
                return mark
            self._skip_string()

    def _skip_string(self) -> None:
        while True:
            rest = STRING_REST.match(self._buffer, self._looked_at)
            self._looked_at = end = rest.end() if rest else self._looked_at
            if end < len(self._buffer):
                if self._buffer[end] == QUOTE:
                    self._looked_at += 1
                    return
                if self._buffer[end] == LINE_BREAK or end + 1 < len(self._buffer):
                    raise self._broken("the line ends inside of a text")
            self._read_on()  # also for a backslash at the end of the block: it belongs to what follows

    def _read_on(self) -> None:
        if len(self._buffer) - self._at > MAX_DOCUMENT_BYTES:
            raise self._broken(f"a document is longer than {MAX_DOCUMENT_BYTES} bytes")
        if not self._read():
            raise self._broken("the file ends inside of a document")

    def _broken(self, reason: str) -> NotADocument:
        self._advance(self._looked_at)
        return NotADocument(f"not valid JSON: {reason}")

    def skip_line(self) -> None:
        """Skip the rest of the line."""
        while (end := self._buffer.find(b"\n", self._at)) < 0:
            self._advance(len(self._buffer))
            if not self._read():
                return
        self._advance(end + 1)

    def _advance(self, to: int) -> None:
        self.line += self._buffer.count(b"\n", self._at, to)
        self.consumed += to - self._at
        self._at = to

    def _read(self) -> bool:
        """Read another block and drop what is consumed. Blocks grow with a document, so that it is copied rarely."""
        rest = self._buffer[self._at :]
        more = self._file.read(max(BLOCK_BYTES, len(rest)))
        self._buffer, self._looked_at, self._at = rest + more, self._looked_at - self._at, 0
        return bool(more)


def _decode(raw: bytes) -> dict[str, Any]:
    if b"\\u0000" in raw and NUL.search(raw):
        raise ValueError("contains a NUL character")
    try:
        content = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"not valid JSON: {error}") from error
    plain = _plain(content, MAX_DEPTH)
    assert isinstance(plain, dict)  # it begins with a brace
    return plain


def _plain(value: Any, depth: int) -> Any:
    """The value without MongoDB Extended JSON."""
    if depth and isinstance(value, list):
        return [_plain(one, depth - 1) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        [(name, inner)] = value.items()
        if name == "$oid":
            return inner
        if name == "$date":
            return _time(_plain(inner, 1))
        if name in ("$numberInt", "$numberLong") and isinstance(inner, str):
            return int(inner)
        if name == "$numberDouble" and isinstance(inner, str):
            return float(inner)
    return {name: _plain(one, depth - 1) for name, one in value.items()} if depth else value


def _time(value: Any) -> Any:
    """Milliseconds since 1970 as a time; a text is left to its field."""
    if type(value) is not int:
        return value
    try:
        return EPOCH + timedelta(milliseconds=value)
    except OverflowError as error:
        raise ValueError(f"time out of range: {value}") from error

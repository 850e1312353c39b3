"""Streaming parser for a multipart form with one file, which is written to disk in chunks and never held in memory.

The file part may precede the fields, so it is written to a temporary file that is deleted at the end of the block. File
size, field sizes, the time between two chunks and the total time are limited: an upload that stalls is aborted.
"""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from penstock.kernel.http.request_body import BadBody, BodyTooSlow, UploadTooLarge, bad_body, truncated_body
from penstock.kernel.private_folder import make_private_folder

FILE = "file"
MAX_FIELDS = 10
MAX_FIELD_BYTES = 1000
OVERHEAD_BYTES = 64 * 1024  # for the fields and the multipart headers
CHUNK_SECONDS = 30.0
TOTAL_SECONDS = 3600.0


@dataclass(kw_only=True)
class UploadForm:
    """A parsed form: its fields by name, and its file if there is one."""

    fields: dict[str, str] = field(default_factory=dict)
    filename: str | None = None
    path: Path
    size_bytes: int = 0
    sha256: str = ""


@asynccontextmanager
async def read_form(request: Request, folder: Path, *, max_bytes: int) -> AsyncIterator[UploadForm]:
    """Parse the form of a request; its file is at `path` until the block ends."""
    boundary = _boundary(request)
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > max_bytes + OVERHEAD_BYTES:
        raise UploadTooLarge(most_bytes=max_bytes)
    await asyncio.to_thread(make_private_folder, folder)
    path = folder / f"{secrets.token_hex(8)}.part"
    try:
        with await asyncio.to_thread(path.open, "wb") as file:
            reader = _FormReader(boundary, UploadForm(path=path), max_bytes=max_bytes)
            await _read(request, reader, file)
        yield reader.form
    finally:
        await asyncio.to_thread(path.unlink, missing_ok=True)


async def _read(request: Request, reader: "_FormReader", file: BinaryIO) -> None:
    digest = hashlib.sha256()
    try:
        async with asyncio.timeout(TOTAL_SECONDS):
            more = True
            while more:
                chunk, more = await _next(request)
                if content := reader.feed(chunk):
                    await asyncio.to_thread(_write, file, digest, content)
        reader.end()
        reader.form.sha256 = digest.hexdigest()
    except TimeoutError as error:
        raise BodyTooSlow(seconds=TOTAL_SECONDS) from error


def _write(file: BinaryIO, digest: "hashlib._Hash", content: bytes) -> None:
    digest.update(content)
    file.write(content)


async def _next(request: Request) -> tuple[bytes, bool]:
    try:
        async with asyncio.timeout(CHUNK_SECONDS):
            message = await request.receive()
    except TimeoutError as error:
        raise BodyTooSlow(seconds=CHUNK_SECONDS) from error
    if message["type"] != "http.request":
        raise truncated_body()
    return message.get("body", b""), message.get("more_body", False)


class _FormReader:
    """Incremental multipart parser."""

    def __init__(self, boundary: bytes, form: UploadForm, *, max_bytes: int) -> None:
        self.form = form
        self._max_bytes = max_bytes
        self._headers: dict[bytes, bytes] = {}
        self._header, self._value = bytearray(), bytearray()
        self._name = ""
        self._field = bytearray()
        self._in_file = False
        self._content: list[bytes] = []
        self._ended = False
        self._parser = self._new_parser(boundary)

    def feed(self, chunk: bytes) -> bytes:
        """Parse a chunk; returns the part of the file in it."""
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise _not_multipart() from error
        content, self._content = b"".join(self._content), []
        return content

    def end(self) -> None:
        """Raise if the form is incomplete."""
        if not self._ended:
            raise truncated_body()

    def _new_parser(self, boundary: bytes) -> MultipartParser:
        try:
            return MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin_part,
                    "on_header_field": self._add_header_name,
                    "on_header_value": self._add_header_value,
                    "on_header_end": self._end_header,
                    "on_headers_finished": self._end_headers,
                    "on_part_data": self._add_data,
                    "on_part_end": self._end_part,
                    "on_end": self._end,
                },
            )
        except FormParserError as error:  # the boundary is too long
            raise _not_multipart() from error

    def _begin_part(self) -> None:
        self._headers, self._field, self._in_file = {}, bytearray(), False

    def _add_header_name(self, raw: bytes, start: int, end: int) -> None:
        self._header += raw[start:end]

    def _add_header_value(self, raw: bytes, start: int, end: int) -> None:
        self._value += raw[start:end]

    def _end_header(self) -> None:
        self._headers[bytes(self._header).lower()] = bytes(self._value)
        self._header, self._value = bytearray(), bytearray()

    def _end_headers(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        self._name = _text(options.get(b"name", b""))
        if b"filename" not in options:
            return
        if self._name != FILE or self.form.filename is not None:
            raise bad_body(f"expected exactly one file, in the field {FILE}", f"应有且仅有一个文件，字段名为 {FILE}")
        self._in_file, self.form.filename = True, _text(options[b"filename"])

    def _add_data(self, raw: bytes, start: int, end: int) -> None:
        if self._in_file:
            self.form.size_bytes += end - start
            if self.form.size_bytes > self._max_bytes:
                raise UploadTooLarge(most_bytes=self._max_bytes)
            self._content.append(raw[start:end])
            return
        self._field += raw[start:end]
        if len(self._field) > MAX_FIELD_BYTES:
            raise bad_body(f"a field is longer than {MAX_FIELD_BYTES} bytes", f"字段超过 {MAX_FIELD_BYTES} 字节")

    def _end_part(self) -> None:
        if self._in_file:
            return
        if self._name in self.form.fields or len(self.form.fields) >= MAX_FIELDS:
            raise bad_body("duplicate field, or too many fields", "字段重复或过多")
        self.form.fields[self._name] = _text(bytes(self._field))

    def _end(self) -> None:
        self._ended = True


def _boundary(request: Request) -> bytes:
    kind, options = parse_options_header(request.headers.get("content-type"))
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not boundary:
        raise _not_multipart()
    return boundary


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise bad_body("a field name or value is not UTF-8", "名称或字段不是 UTF-8 编码") from error


def _not_multipart() -> BadBody:
    return bad_body("not multipart/form-data", "不是 multipart/form-data")

"""Read a result zip safely. Runs in the sandbox.

Nothing is unpacked to disk. The names of all entries are checked: a path traversal, a link, a duplicate, or too many
entries make the whole zip unsafe. Then the list of blocks is read, or the markdown if there is none, counting bytes
while unpacking whatever size the zip declares. Pages are returned in batches, since the output of the sandbox is
bounded.
"""

import stat
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Literal

import msgspec

from penstock.adapters.mineru.content import entries_by_page, page_of, plain_page
from penstock.documents.pages import Page, write_page

MAX_ENTRIES = 20_000  # even a page with twenty images stays far below
MAX_NAME_CHARACTERS = 1000
MAX_LIST_BYTES = 128 * 1024 * 1024  # of the list of blocks; a thousand pages have 10 MB
MAX_MARKDOWN_BYTES = 32 * 1024 * 1024
MAX_DECLARED_BYTES = 4 * 1024 * 1024 * 1024  # declared unpacked size of all entries
STRETCH_BYTES = 4 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
LIST_NAME = "content_list.json"
MARKDOWN_NAME = "full.md"
BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError)


class UnpackedPages(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Some pages of a part, by zero-based index; `following` is None after the last."""

    pages: tuple[Page, ...]
    by_page: bool
    following: int | None


class UnpackFailure(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Why a zip is not read: it is broken and may arrive whole another time, or it is not trustworthy."""

    kind: Literal["broken", "refused"]
    reason: str


class _UnpackError(Exception):
    def __init__(self, kind: Literal["broken", "refused"], reason: str) -> None:
        super().__init__(reason)
        self.failure = UnpackFailure(kind=kind, reason=reason)


def read_pages_from(
    file: BinaryIO, first: int, pages: int, start: int, max_pages: int
) -> UnpackedPages | UnpackFailure:
    """Pages from index `start` on; `first` is the page number of index 0. `pages` is 0 if unknown."""
    try:
        return _read_pages(file, first, pages, start, max_pages)
    except _UnpackError as error:
        return error.failure
    except BROKEN as error:
        return UnpackFailure(kind="broken", reason=f"it is not a complete zip ({type(error).__name__})")


def _read_pages(file: BinaryIO, first: int, pages: int, start: int, max_pages: int) -> UnpackedPages:
    with zipfile.ZipFile(file) as archive:
        _check_names(archive)
        listed = _find(archive, LIST_NAME)
        if listed is None:
            return UnpackedPages(pages=(plain_page(first, _markdown(archive)),), by_page=False, following=None)
        entries = entries_by_page(_blocks(archive, listed), pages)
    count = pages or max(entries, default=0) + 1
    if count > max_pages:
        raise _UnpackError("refused", f"it has {count} pages, and {max_pages} may be read (ETL_MAX_PAGES)")
    made: list[Page] = []
    size, index = 0, start
    while index < count and size < STRETCH_BYTES:
        page = page_of(first + index, entries.get(index, ()))  # also for a page without blocks
        made.append(page)
        size += len(write_page(page))
        index += 1
    return UnpackedPages(pages=tuple(made), by_page=True, following=index if index < count else None)


def _check_names(archive: zipfile.ZipFile) -> None:
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES:
        raise _UnpackError("refused", f"it has more than {MAX_ENTRIES} entries")
    if sum(entry.file_size for entry in entries) > MAX_DECLARED_BYTES:
        raise _UnpackError("refused", f"it would unpack to more than {MAX_DECLARED_BYTES} bytes")
    seen = set()
    for entry in entries:
        if (reason := _entry_problem(entry)) is not None:
            raise _UnpackError("refused", reason)
        if entry.orig_filename in seen:
            raise _UnpackError("refused", "two of its entries have the same name")
        seen.add(entry.orig_filename)


def _entry_problem(entry: zipfile.ZipInfo) -> str | None:
    name = entry.orig_filename  # as written; `filename` is cut at a NUL
    if len(name) > MAX_NAME_CHARACTERS:
        return f"an entry name is longer than {MAX_NAME_CHARACTERS} characters"
    if name.startswith("/") or "\\" in name or "\0" in name or name[1:2] == ":" or ".." in name.split("/"):
        return "an entry name leads out of its folder"
    if stat.S_IFMT(entry.external_attr >> 16) not in {0, stat.S_IFREG, stat.S_IFDIR}:
        return "an entry is a link or a device"
    return None


def _find(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo | None:
    """The entry of this name, or one that ends in it after a prefix; the least deep if there are several."""
    return _least_deep(entry for entry in archive.infolist() if _is_named(PurePosixPath(entry.filename).name, name))


def _is_named(given: str, name: str) -> bool:
    return given == name or given.endswith(f"_{name}")


def _least_deep(entries: Iterable[zipfile.ZipInfo]) -> zipfile.ZipInfo | None:
    return min(entries, key=lambda entry: (entry.filename.count("/"), entry.filename), default=None)


def _markdown(archive: zipfile.ZipFile) -> str:
    others = (entry for entry in archive.infolist() if entry.filename.endswith(".md"))
    entry = _find(archive, MARKDOWN_NAME) or _least_deep(others)
    if entry is None:
        raise _UnpackError("broken", "it has neither a list of blocks nor markdown")
    return _content(archive, entry, MAX_MARKDOWN_BYTES).decode(errors="replace").replace("\0", "")


def _blocks(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Any:
    try:
        return msgspec.json.decode(_content(archive, entry, MAX_LIST_BYTES))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _UnpackError("broken", "its list of blocks is not JSON") from error


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, max_bytes: int) -> bytes:
    """Unpack an entry, up to a limit."""
    read = bytearray()
    with archive.open(entry) as stream:
        while chunk := stream.read(CHUNK_BYTES):
            read += chunk
            if len(read) > max_bytes:
                raise _UnpackError("refused", f"an entry unpacks to more than {max_bytes} bytes")
    return bytes(read)

"""The staging area on a local directory: a file that grows in staged/, renamed to its object when it is whole.

A writer holds an exclusive lock (flock) on the file while it has it open. So a late writer of another process can never
change a file that somebody else writes to, or that was sealed: whoever comes next gets `StagedObjectBusy` until the
lock is free. The system frees it when a process dies.

Bytes are in the file as soon as `write` returns, so a kill loses none. The file is synced to disk when it is sealed;
after a power failure the size of the file tells what is left.
"""

import fcntl
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from urllib.parse import quote, unquote

from penstock.adapters.disk.directories import (
    INCOMING,
    STAGED,
    open_directory,
    open_or_create_subdirectory,
    open_subdirectory,
)
from penstock.adapters.disk.reading import object_at, stat_of
from penstock.adapters.disk.writing import FILE_MODE, PIECE_BYTES, TempFile, publish, replace
from penstock.adapters.disk_thread import in_thread
from penstock.adapters.held_writer import holding
from penstock.kernel.blobs import BadBlobRange, BlobNotFound, BlobStat
from penstock.kernel.private_folder import make_private_folder
from penstock.kernel.staging import (
    MAX_LISTED_STAGED,
    StagedObject,
    StagedObjectBusy,
    StagedObjectNotFound,
    StagedWriter,
    check_staged_key,
)

OPEN_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class DiskStagedWriter:
    """An open staged file. Calls come one at a time."""

    def __init__(self, root: Path, key: str, file: int, offset: int) -> None:
        self._root = root
        self._key = key
        self._file = file
        self._end = offset

    @property
    def stored_bytes(self) -> int:
        return self._end

    async def write(self, chunk: bytes) -> None:
        await in_thread(self._key, partial(self._write, chunk))

    async def save(self) -> None:
        """Written bytes are stored already."""

    async def seal(self) -> None:
        await in_thread(self._key, partial(_seal, self._root, self._key, self._file))

    def _write(self, chunk: bytes) -> None:
        view = memoryview(chunk)
        while view:
            written = os.pwrite(self._file, view, self._end)
            self._end += written
            view = view[written:]


class DiskStaging:
    """Staged files under the root of a `DiskBlobs`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def begin(self, key: str, *, max_bytes: int, content_type: str | None = None) -> StagedObject:  # noqa: ARG002  (a file has neither)
        check_staged_key(key)
        await in_thread(key, partial(_create, self._root, key))
        return StagedObject(key=key)

    async def stored_bytes(self, staged: StagedObject, *, saved: int | None = None) -> int:  # noqa: ARG002  (a power failure may have taken some)
        return await in_thread(staged.key, partial(_size, self._root, staged.key))

    @asynccontextmanager
    async def append(self, staged: StagedObject, *, offset: int, held: bool = False) -> AsyncIterator[StagedWriter]:
        file = await in_thread(staged.key, partial(_open_at, self._root, staged.key, offset))
        try:
            writer = DiskStagedWriter(self._root, staged.key, file, offset)
            async with holding(writer, self._root / INCOMING) if held else nullcontext(writer) as opened:
                yield opened
        finally:
            os.close(file)  # and with it the lock

    async def seal(self, staged: StagedObject, *, size_bytes: int) -> None:
        await in_thread(staged.key, partial(_seal_stored, self._root, staged.key, size_bytes))

    async def join(self, key: str, sources: Sequence[BlobStat], *, content_type: str | None = None) -> None:  # noqa: ARG002  (a file has no content type)
        check_staged_key(key)
        await in_thread(key, partial(_join, self._root, key, [source.key for source in sources]))

    async def discard(self, staged: StagedObject) -> None:
        await in_thread(staged.key, partial(_remove, self._root, staged.key))

    async def list_staged(self, *, older_than: datetime) -> Sequence[StagedObject]:
        return await in_thread(STAGED, partial(_list_older, self._root, older_than.timestamp()))


def _create(root: Path, key: str) -> None:
    make_private_folder(root)
    with open_directory(root, [STAGED], open_or_create_subdirectory) as directory:
        with suppress(FileNotFoundError):
            os.unlink(_name(key), dir_fd=directory)
        os.close(os.open(_name(key), OPEN_FLAGS | os.O_CREAT | os.O_EXCL, FILE_MODE, dir_fd=directory))


def _size(root: Path, key: str) -> int:
    with suppress(StagedObjectNotFound), _staged_directory(root, key) as directory:
        return os.stat(_name(key), dir_fd=directory, follow_symlinks=False).st_size
    try:
        return stat_of(root, key).size_bytes
    except BlobNotFound as error:
        raise StagedObjectNotFound(key=key) from error


def _open_locked(root: Path, key: str) -> int:
    """Open a staged file and lock it."""
    with _staged_directory(root, key) as directory:
        file = os.open(_name(key), OPEN_FLAGS, dir_fd=directory)
        try:
            _lock(key, file)
            named = os.stat(_name(key), dir_fd=directory, follow_symlinks=False)
        except BaseException:
            os.close(file)
            raise
    if not os.path.samestat(os.fstat(file), named):  # sealed before we had the lock: objects are not written to
        os.close(file)
        raise StagedObjectNotFound(key=key)
    return file


def _open_at(root: Path, key: str, offset: int) -> int:
    """Open a staged file whose end is at `offset`."""
    file = _open_locked(root, key)
    size_bytes = os.fstat(file).st_size
    if size_bytes != offset:
        os.close(file)
        raise BadBlobRange(key=key, start=offset, stop=None, reason=f"{size_bytes} bytes are stored")
    return file


def _lock(key: str, file: int) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StagedObjectBusy(key=key) from error


def _seal(root: Path, key: str, file: int) -> None:
    """Sync a locked file and rename it to its object."""
    os.fsync(file)
    publish(root, _name(key), key, replace, source=STAGED)


def _seal_stored(root: Path, key: str, size_bytes: int) -> None:
    try:
        file = _open_at(root, key, size_bytes)
    except StagedObjectNotFound:
        with suppress(BlobNotFound):
            if stat_of(root, key).size_bytes == size_bytes:
                return  # sealed before
        raise
    try:
        _seal(root, key, file)
    finally:
        os.close(file)


def _join(root: Path, key: str, sources: Sequence[str]) -> None:
    joined = TempFile(root, key)
    try:
        for source in sources:
            with object_at(root, source) as file:
                while chunk := os.read(file, PIECE_BYTES):
                    joined.write(chunk)
        joined.finish(b"", replace)
    finally:
        joined.discard()


def _remove(root: Path, key: str) -> None:
    with suppress(StagedObjectNotFound), _staged_directory(root, key) as directory:
        os.unlink(_name(key), dir_fd=directory)


def _list_older(root: Path, before: float) -> list[StagedObject]:
    found: list[StagedObject] = []
    with suppress(StagedObjectNotFound), _staged_directory(root, "") as directory, os.scandir(directory) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_mtime < before:
                    found.append(StagedObject(key=unquote(entry.name)))
            if len(found) == MAX_LISTED_STAGED:
                break
    return found


@contextmanager
def _staged_directory(root: Path, key: str) -> Iterator[int]:
    """The directory staged/; a file that is missing there is `StagedObjectNotFound`."""
    try:
        with open_directory(root, [STAGED], open_subdirectory) as directory:
            yield directory
    except FileNotFoundError as error:
        raise StagedObjectNotFound(key=key) from error


def _name(key: str) -> str:
    """One file name per key: staged/ has no directories of its own."""
    return quote(key, safe="")

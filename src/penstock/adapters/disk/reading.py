"""Read one object. Objects are immutable, so an open file is one version to its end."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from penstock.adapters.disk.directories import missing_as_not_found, object_path, open_directory, open_subdirectory
from penstock.kernel.blobs import BlobNotFound, BlobStat, check_read, end_of_range

CHUNK_BYTES = 1024 * 1024
READ_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC  # a planted FIFO must not block


def read_all(root: Path, key: str, max_bytes: int) -> bytes:
    """Read a whole object."""
    with object_at(root, key) as file:
        size_bytes = os.fstat(file).st_size
        check_read(key, size_bytes, max_bytes=max_bytes)
        return read(file, 0, size_bytes)


def read_range(root: Path, key: str, start: int, stop: int) -> bytes:
    """Read a range of an object."""
    with object_at(root, key) as file:
        return read(file, start, end_of_range(key, start, stop, size_bytes=os.fstat(file).st_size))


def stat_of(root: Path, key: str) -> BlobStat:
    """Size and modification time of an object."""
    with object_at(root, key) as file:
        return to_blob_stat(key, os.fstat(file))


def to_blob_stat(key: str, found: os.stat_result) -> BlobStat:
    """Convert a stat result to a `BlobStat`."""
    modified_at = datetime.fromtimestamp(found.st_mtime, tz=UTC)
    etag = f"{found.st_ino:x}-{found.st_mtime_ns:x}"  # clocks of file systems tick in milliseconds
    return BlobStat(key=key, size_bytes=found.st_size, modified_at=modified_at, etag=etag)


class ObjectStream:
    """An object being streamed. The first chunk opens the file, so a small object costs one thread hop."""

    def __init__(self, root: Path, key: str, start: int, stop: int | None) -> None:
        self.ended = False
        self._root, self._key, self._at, self._stop = root, key, start, stop
        self._file: int | None = None

    def next_chunk(self) -> bytes:
        """Read the next chunk; empty when the range is empty."""
        if self._file is None:
            self._file = _open_object(self._root, self._key)
        end = end_of_range(self._key, self._at, self._stop, size_bytes=os.fstat(self._file).st_size)
        chunk = read(self._file, self._at, min(end, self._at + CHUNK_BYTES))
        self._at += len(chunk)
        self.ended = self._at == end
        return chunk

    def close(self) -> None:
        """Close the file; harmless when none was opened."""
        if self._file is not None:
            os.close(self._file)


@contextmanager
def object_at(root: Path, key: str) -> Iterator[int]:
    """Open the file of an object."""
    file = _open_object(root, key)
    try:
        yield file
    finally:
        os.close(file)


def read(file: int, start: int, stop: int) -> bytes:
    """Read exactly the bytes [start, stop) of an open file."""
    pieces = []
    while start < stop:
        piece = os.pread(file, stop - start, start)
        if not piece:
            raise OSError(errno.EIO, "object is shorter than its reported size")
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def _open_object(root: Path, key: str) -> int:
    directories, name = object_path(key)
    with missing_as_not_found(key), open_directory(root, directories, open_subdirectory) as directory:
        file = os.open(name, READ_FLAGS, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise BlobNotFound(key=key)
    return file

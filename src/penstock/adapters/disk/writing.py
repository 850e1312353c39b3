"""Write objects atomically: to a temporary file, fsync, then rename (put) or link (create) to the final name.

An aborted write or a full disk leaves no partial object. The local store of obstore does not fsync: an object that the
database refers to could be incomplete after a power failure.
"""

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from penstock.adapters.disk.directories import (
    INCOMING,
    MISSING_ERRNOS,
    missing_as_not_found,
    object_path,
    open_directory,
    open_or_create_subdirectory,
    open_subdirectory,
)
from penstock.adapters.disk.reading import object_at, read, to_blob_stat
from penstock.kernel.blobs import BlobExists, BlobNotFound, BlobReceipt, BlobStat
from penstock.kernel.private_folder import make_private_folder

PIECE_BYTES = 1024 * 1024  # larger writes are no faster, and a cancelled put waits for one of them
PUBLISH_TRIES = 100  # a try fails when a concurrent delete removes the directory; this many in a row mean a real fault
CHECK_BYTES = 256 * 1024  # a store with less space than this is full for most documents
OPENED_SECONDS = 7 * 24 * 3600  # how much longer an opened file, whose name has a suffix, may be in use than written
FILE_MODE = 0o660  # before the umask, as for directories
CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
NO_HARDLINK_ERRNOS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}

Publish = Callable[[str, int, str, int], None]


class WriteAborted(Exception):
    """Ends the thread of a cancelled put."""


class TempFile:
    """A temporary file that becomes an object. It has no object name until all of it is synced to disk."""

    def __init__(self, root: Path, key: str) -> None:
        self.key = key
        self._root = root
        self._name = secrets.token_hex(16)
        self._file: int | None = None
        self._sha256 = hashlib.sha256()
        self._size_bytes = 0
        self._aborted = False

    def abort(self) -> None:
        """Called from the event loop while a thread writes: stop soon and do not publish."""
        self._aborted = True

    def write(self, piece: bytes) -> None:
        """Append a piece; the first one creates the file."""
        if self._file is None:
            self._file = _create_temp_file(self._root, self._name)
        view = memoryview(piece)
        while view:
            self._stop_if_aborted()
            written = os.write(self._file, view[:PIECE_BYTES])
            self._sha256.update(view[:written])
            self._size_bytes += written
            view = view[written:]

    def finish(self, rest: bytes, publish_by: Publish) -> BlobReceipt:
        """Append the last piece, fsync and publish."""
        self.write(rest)
        assert self._file is not None
        os.fsync(self._file)
        self._stop_if_aborted()
        publish(self._root, self._name, self.key, publish_by)
        self.discard()
        return BlobReceipt(key=self.key, size_bytes=self._size_bytes, sha256=self._sha256.hexdigest())

    def discard(self) -> None:
        """Close the temporary file and remove it from incoming/, if it exists."""
        if self._file is None:
            return
        file, self._file = self._file, None
        remove_temp_file(self._root, self._name)
        with suppress(OSError):  # already synced, or discarded
            os.close(file)

    def _stop_if_aborted(self) -> None:
        if self._aborted:
            raise WriteAborted


def replace(temp_file: str, incoming: int, name: str, directory: int) -> None:
    """Publish and replace an existing object."""
    os.replace(temp_file, name, src_dir_fd=incoming, dst_dir_fd=directory)


def link_if_absent(temp_file: str, incoming: int, name: str, directory: int) -> None:
    """Publish only if the name is free. Unlike a rename, link() fails atomically if it is taken."""
    os.link(temp_file, name, src_dir_fd=incoming, dst_dir_fd=directory, follow_symlinks=False)


def copy(root: Path, source: str, target: str) -> BlobStat:
    """Publish an object under a second key, by hard link where the file system supports it."""
    try:
        return _copy_by_link(root, source, target)
    except OSError as error:
        if error.errno not in NO_HARDLINK_ERRNOS:
            raise
        return _copy_bytes(root, source, target)


def link_file(root: Path, key: str, name: str) -> Path | None:
    """Give the file of an object a second name in incoming/; None where the file system has no hard links."""
    try:
        _link_to_temp_file(root, key, name)
    except OSError as error:
        if error.errno not in NO_HARDLINK_ERRNOS:
            raise
        return None
    return root / INCOMING / name


def delete(root: Path, key: str) -> None:
    """Remove an object and the directories this leaves empty."""
    directories, name = object_path(key)
    with suppress(BlobNotFound), missing_as_not_found(key):
        with open_directory(root, directories, open_subdirectory) as directory:
            os.unlink(name, dir_fd=directory)
        while len(directories) > 1 and _remove_if_empty(root, directories):
            directories = directories[:-1]
        with open_directory(root, directories, open_subdirectory) as directory:
            os.fsync(directory)


def check_writable(root: Path) -> None:
    """Write and remove a temporary file: fails in the same way as a put."""
    temp_file = TempFile(root, INCOMING)
    try:
        temp_file.write(bytes(CHECK_BYTES))
    finally:
        temp_file.discard()


def sweep(root: Path, before: float) -> int:
    """Remove temporary files that were last changed before `before`."""
    with (
        suppress(FileNotFoundError),
        open_directory(root, [INCOMING], open_subdirectory) as incoming,
        os.scandir(incoming) as entries,
    ):
        return sum(_remove_if_stale(entry, incoming, before) for entry in entries)
    return 0


def _create_temp_file(root: Path, name: str) -> int:
    make_private_folder(root)
    with open_directory(root, [INCOMING], open_or_create_subdirectory) as incoming:
        return os.open(name, CREATE_FLAGS, FILE_MODE, dir_fd=incoming)


def remove_temp_file(root: Path, name: str) -> None:
    # `sweep` removes a leftover file later; the error that may have led here matters more.
    with suppress(OSError), open_directory(root, [INCOMING], open_subdirectory) as incoming:
        os.unlink(name, dir_fd=incoming)


def publish(root: Path, temp_file: str, key: str, publish_by: Publish, *, source: str = INCOMING) -> None:
    """Give a file of the directory `source` its object name."""
    tries_left = PUBLISH_TRIES
    while True:
        tries_left -= 1
        try:
            _publish_once(root, temp_file, key, publish_by, source)
            return
        except FileExistsError as error:
            raise BlobExists(key=key) from error
        except FileNotFoundError:  # a concurrent delete removed the empty directory just before we used it
            if not tries_left:
                raise


def _publish_once(root: Path, temp_file: str, key: str, publish_by: Publish, source: str) -> None:
    directories, name = object_path(key)
    with (
        open_directory(root, [source], open_subdirectory) as folder,
        open_directory(root, directories, open_or_create_subdirectory) as directory,
    ):
        publish_by(temp_file, folder, name, directory)
        os.fsync(directory)


def _copy_by_link(root: Path, source: str, target: str) -> BlobStat:
    """Add a second name for the same bytes: safe, because objects are immutable."""
    temp_file = secrets.token_hex(16)
    try:
        found = _link_to_temp_file(root, source, temp_file)
        publish(root, temp_file, target, replace)
    finally:
        remove_temp_file(root, temp_file)  # renaming between two names of one file is a no-op and leaves both
    return to_blob_stat(target, found)


def _link_to_temp_file(root: Path, source: str, temp_file: str) -> os.stat_result:
    directories, name = object_path(source)
    with (
        missing_as_not_found(source),
        open_directory(root, directories, open_subdirectory) as directory,
        open_directory(root, [INCOMING], open_or_create_subdirectory) as incoming,
    ):
        os.link(name, temp_file, src_dir_fd=directory, dst_dir_fd=incoming, follow_symlinks=False)
        found = os.stat(temp_file, dir_fd=incoming, follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode):
        raise BlobNotFound(key=source)
    return found


def _copy_bytes(root: Path, source: str, target: str) -> BlobStat:
    temp_file = TempFile(root, target)
    with object_at(root, source) as file:
        found = os.fstat(file)
        try:
            for start in range(0, found.st_size, PIECE_BYTES):
                temp_file.write(read(file, start, min(start + PIECE_BYTES, found.st_size)))
            temp_file.finish(b"", replace)
        finally:
            temp_file.discard()
    return to_blob_stat(target, found)


def _remove_if_empty(root: Path, directories: list[str]) -> bool:
    """Remove the last of these directories if it is empty."""
    try:
        with open_directory(root, directories[:-1], open_subdirectory) as above:
            os.rmdir(directories[-1], dir_fd=above)
    except OSError as error:
        return error.errno in MISSING_ERRNOS  # else it is in use
    return True


def _remove_if_stale(entry: os.DirEntry[str], incoming: int, before: float) -> bool:
    """Judged by ctime, not mtime: the content of a copy in progress is old."""
    with suppress(FileNotFoundError):
        newest = before - OPENED_SECONDS if "." in entry.name else before
        if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_ctime < newest:
            os.unlink(entry.name, dir_fd=incoming)
            return True
    return False

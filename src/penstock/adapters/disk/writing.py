"""Drafts and how they become objects: written aside, made safe on the disk, then given their name in one step."""

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from penstock.adapters.disk.folders import (
    ABSENT,
    FOLDER_MODE,
    INCOMING,
    absent_is_not_found,
    enter,
    enter_or_make,
    folder_at,
    place_of,
)
from penstock.adapters.disk.reading import as_stat, object_at, read
from penstock.kernel.blobs import BlobExists, BlobNotFound, BlobReceipt, BlobStat

PIECE_BYTES = 1024 * 1024  # larger writes are no faster, and a cancelled put waits for one of them
PUBLISH_TRIES = 100  # a try fails when a delete gets between; so many in a row mean something else
FILE_MODE = 0o660  # less the umask, as for folders
OPEN_DRAFT = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
NO_LINK = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}

Place = Callable[[str, int, str, int], None]


class Abandoned(Exception):
    """Ends the thread of a cancelled put; nobody is waiting for it any more."""


class Draft:
    """An object being written. It has no name among the objects before all of it is safe on the disk."""

    def __init__(self, root: Path, key: str) -> None:
        self.key = key
        self._root = root
        self._name = secrets.token_hex(16)
        self._file: int | None = None
        self._sha256 = hashlib.sha256()
        self._size_bytes = 0
        self._abandoned = False

    def abandon(self) -> None:
        """Called from the event loop while a thread writes: stop soon, and do not publish."""
        self._abandoned = True

    def write(self, piece: bytes) -> None:
        """Add to the draft; the first piece makes its file."""
        if self._file is None:
            self._file = _open_draft(self._root, self._name)
        view = memoryview(piece)
        while view:
            self._stop_if_abandoned()
            written = os.write(self._file, view[:PIECE_BYTES])
            self._sha256.update(view[:written])
            self._size_bytes += written
            view = view[written:]

    def finish(self, rest: bytes, place: Place) -> BlobReceipt:
        """Add the last piece, make all of it safe, and publish it."""
        self.write(rest)
        assert self._file is not None
        os.fsync(self._file)
        self._stop_if_abandoned()
        _publish(self._root, self._name, self.key, place)
        self.discard()
        return BlobReceipt(key=self.key, size_bytes=self._size_bytes, sha256=self._sha256.hexdigest())

    def discard(self) -> None:
        """Close the draft and remove its name in incoming/, if it has one there."""
        if self._file is None:
            return
        file, self._file = self._file, None
        _remove_draft(self._root, self._name)
        with suppress(OSError):  # synced before, or not wanted any more
            os.close(file)

    def _stop_if_abandoned(self) -> None:
        if self._abandoned:
            raise Abandoned


def replace(draft: str, incoming: int, name: str, folder: int) -> None:
    """Publish over whatever has the name."""
    os.replace(draft, name, src_dir_fd=incoming, dst_dir_fd=folder)


def link_as_new(draft: str, incoming: int, name: str, folder: int) -> None:
    """Publish unless the name is taken. A link, unlike a rename, fails then, for all processes alike."""
    os.link(draft, name, src_dir_fd=incoming, dst_dir_fd=folder, follow_symlinks=False)


def copy(root: Path, source: str, target: str) -> BlobStat:
    """Publish an object under a second key, without moving bytes where the file system can."""
    try:
        return _copy_by_link(root, source, target)
    except OSError as error:
        if error.errno not in NO_LINK:
            raise
        return _copy_bytes(root, source, target)


def delete(root: Path, key: str) -> None:
    """Remove an object and the folders that this leaves empty."""
    folders, name = place_of(key)
    with suppress(BlobNotFound), absent_is_not_found(key):
        with folder_at(root, folders, enter) as folder:
            os.unlink(name, dir_fd=folder)
        while len(folders) > 1 and _removed(root, folders):
            folders = folders[:-1]
        with folder_at(root, folders, enter) as folder:
            os.fsync(folder)


def try_draft(root: Path) -> None:
    """Write a little and take it away again: fails as a put would."""
    draft = Draft(root, INCOMING)
    try:
        draft.write(b"?")
    finally:
        draft.discard()


def sweep(root: Path, before: float) -> int:
    """Remove drafts that nobody has touched since `before`."""
    with suppress(FileNotFoundError), folder_at(root, [INCOMING], enter) as incoming, os.scandir(incoming) as entries:
        return sum(_swept(entry, incoming, before) for entry in entries)
    return 0


def _open_draft(root: Path, name: str) -> int:
    root.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    with folder_at(root, [INCOMING], enter_or_make) as incoming:
        return os.open(name, OPEN_DRAFT, FILE_MODE, dir_fd=incoming)


def _remove_draft(root: Path, name: str) -> None:
    # A draft that stays behind is swept later; the failure that may have led here counts more.
    with suppress(OSError), folder_at(root, [INCOMING], enter) as incoming:
        os.unlink(name, dir_fd=incoming)


def _publish(root: Path, draft: str, key: str, place: Place) -> None:
    tries_left = PUBLISH_TRIES
    while True:
        tries_left -= 1
        try:
            _publish_once(root, draft, key, place)
            return
        except FileExistsError as error:
            raise BlobExists(key=key) from error
        except FileNotFoundError:  # a delete removed a folder as empty just before we used it
            if not tries_left:
                raise


def _publish_once(root: Path, draft: str, key: str, place: Place) -> None:
    folders, name = place_of(key)
    with folder_at(root, [INCOMING], enter) as incoming, folder_at(root, folders, enter_or_make) as folder:
        place(draft, incoming, name, folder)
        os.fsync(folder)


def _copy_by_link(root: Path, source: str, target: str) -> BlobStat:
    """A second name for the same bytes: safe, because nobody ever writes into an object."""
    draft = secrets.token_hex(16)
    try:
        found = _link_to_draft(root, source, draft)
        _publish(root, draft, target, replace)
    finally:
        _remove_draft(root, draft)  # a rename between two names of one file does nothing, and leaves both
    return as_stat(target, found)


def _link_to_draft(root: Path, source: str, draft: str) -> os.stat_result:
    folders, name = place_of(source)
    with (
        absent_is_not_found(source),
        folder_at(root, folders, enter) as folder,
        folder_at(root, [INCOMING], enter_or_make) as incoming,
    ):
        os.link(name, draft, src_dir_fd=folder, dst_dir_fd=incoming, follow_symlinks=False)
        found = os.stat(draft, dir_fd=incoming, follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode):
        raise BlobNotFound(key=source)
    return found


def _copy_bytes(root: Path, source: str, target: str) -> BlobStat:
    draft = Draft(root, target)
    with object_at(root, source) as file:
        found = os.fstat(file)
        try:
            for start in range(0, found.st_size, PIECE_BYTES):
                draft.write(read(file, start, min(start + PIECE_BYTES, found.st_size)))
            draft.finish(b"", replace)
        finally:
            draft.discard()
    return as_stat(target, found)


def _removed(root: Path, folders: list[str]) -> bool:
    """Remove the last of these folders if it is empty."""
    try:
        with folder_at(root, folders[:-1], enter) as above:
            os.rmdir(folders[-1], dir_fd=above)
    except OSError as error:
        return error.errno in ABSENT  # else it is in use
    return True


def _swept(entry: os.DirEntry[str], incoming: int, before: float) -> bool:
    """Judged by the last change to the file or its names, not to its bytes: those of a copy under way are old."""
    with suppress(FileNotFoundError):
        if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_ctime < before:
            os.unlink(entry.name, dir_fd=incoming)
            return True
    return False

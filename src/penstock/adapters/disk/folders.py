"""How paths are walked: one folder below the other, never through a link.

A folder is an open file descriptor here: what is done in it stays in it, whatever happens to its path meanwhile.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.kernel.blobs import BlobNotFound

INCOMING, OBJECTS = "incoming", "objects"
FOLDER_MODE = 0o770  # less the umask; documents are nobody else's business
ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}  # the last two: a link stands where a folder or an object should

Enter = Callable[[str, int], int]


@contextmanager
def folder_at(root: Path, names: Sequence[str], enter: Enter) -> Iterator[int]:
    """The folder that `names` lead to, open; each is entered with `enter` or `enter_or_make`."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # the root itself may be a link
    try:
        for name in names:
            inner = enter(name, folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def enter(name: str, folder: int) -> int:
    """Open a folder inside a folder."""
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)


def enter_or_make(name: str, folder: int) -> int:
    """Open a folder inside a folder, and make it if it is not there. FileNotFoundError: somebody removed it again."""
    try:
        return enter(name, folder)
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.mkdir(name, FOLDER_MODE, dir_fd=folder)
        os.fsync(folder)
        return enter(name, folder)


def disk_name(segment: str) -> str:
    """The name of the folder that holds what comes after `segment/`."""
    return f"{segment}~"


def place_of(key: str) -> tuple[list[str], str]:
    """The folders of an object, from the root down, and its name in the last of them."""
    *segments, name = key.split("/")
    return [OBJECTS, *map(disk_name, segments)], name


@contextmanager
def absent_is_not_found(key: str) -> Iterator[None]:
    """Turn the failures that mean "there is no such object" into BlobNotFound."""
    try:
        yield
    except OSError as error:
        if error.errno in ABSENT:
            raise BlobNotFound(key=key) from error
        raise

"""Walk paths one directory at a time and never through a symbolic link.

So no key reaches outside the root. Directories are open file descriptors, so an operation stays inside a directory even
if its path changes meanwhile.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.kernel.blobs import BlobNotFound
from penstock.kernel.private_folder import FOLDER_MODE

INCOMING, OBJECTS, STAGED = "incoming", "objects", "staged"
MISSING_ERRNOS = {
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ELOOP,
}  # ENOTDIR and ELOOP: a link stands where a directory or an object should

OpenSubdirectory = Callable[[str, int], int]


@contextmanager
def open_directory(root: Path, names: Sequence[str], open_subdirectory: OpenSubdirectory) -> Iterator[int]:
    """Open the directory at `names` below `root`; `open_subdirectory` opens, or creates, each one on the way."""
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # the root itself may be a link
    try:
        for name in names:
            inner = open_subdirectory(name, directory)
            os.close(directory)
            directory = inner
        yield directory
    finally:
        os.close(directory)


def open_subdirectory(name: str, directory: int) -> int:
    """Open a subdirectory of an open directory."""
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)


def open_or_create_subdirectory(name: str, directory: int) -> int:
    """Open a subdirectory and create it if it is missing. FileNotFoundError: another process removed it again."""
    try:
        return open_subdirectory(name, directory)
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.mkdir(name, FOLDER_MODE, dir_fd=directory)
        os.fsync(directory)
        return open_subdirectory(name, directory)


def directory_name(segment: str) -> str:
    """The name of the directory that holds the keys below `segment/`."""
    return f"{segment}~"


def object_path(key: str) -> tuple[list[str], str]:
    """The directories of an object, from the root down, and its file name."""
    *segments, name = key.split("/")
    return [OBJECTS, *map(directory_name, segments)], name


@contextmanager
def missing_as_not_found(key: str) -> Iterator[None]:
    """Map the errors that mean "no such object" to BlobNotFound."""
    try:
        yield
    except OSError as error:
        if error.errno in MISSING_ERRNOS:
            raise BlobNotFound(key=key) from error
        raise

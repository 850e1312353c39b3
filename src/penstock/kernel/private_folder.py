"""Folders of documents, databases and temporary files, which only the user of this process may enter."""

import errno
import logging
import os
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

FOLDER_MODE = 0o700


def make_private_folder(folder: Path) -> None:
    """Create a folder, and the missing folders above it, for this user only. An existing one stays as it is."""
    missing, above = [], folder
    while not above.exists():
        missing.append(above)
        above = above.parent
    for path in reversed(missing):
        with suppress(FileExistsError):  # another process was first
            path.mkdir(FOLDER_MODE)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def warn_if_shared(folder: Path) -> None:
    """Log a warning if other users may enter a folder, such as one that an earlier version created."""
    with suppress(OSError):
        mode = folder.stat().st_mode & 0o777
        if mode & 0o077:
            log.warning("other users may enter the data folder %s (mode %03o): chmod 700 it", folder, mode)

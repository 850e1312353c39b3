"""Many objects, in the byte order of their keys, without reading folders that cannot matter.

Python compares strings by code point, which is the order of their UTF-8 bytes, in which S3 lists too.
A folder is listed as "a/", and so falls between the objects "a.b" and "a0", where the keys inside it belong.
"""

import heapq
import os
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path

from penstock.adapters.disk.folders import absent_is_not_found, disk_name, enter, folder_at, place_of
from penstock.adapters.disk.reading import as_stat
from penstock.kernel.blobs import MOST_LISTED, BlobNotFound, BlobPage, BlobStat, why_bad_key

BATCH = MOST_LISTED + 1  # names of one folder held at a time: a page, and one to see that more follow
LAST = "\U0010ffff"  # sorts after every name: the last code point, and in no key


def page(root: Path, prefix: str, after: str, limit: int) -> BlobPage:
    """The first objects that begin with `prefix` and come after `after`."""
    folders, part = place_of(prefix)
    inside = prefix.removesuffix(part)
    found: tuple[BlobStat, ...] = ()
    with (
        suppress(BlobNotFound),
        absent_is_not_found(prefix),
        folder_at(root, folders, enter) as folder,
        closing(_walk(folder, inside, part, after)) as walk,
    ):
        found = tuple(islice(walk, limit + 1))
    return BlobPage(blobs=found[:limit], after=found[limit - 1].key if len(found) > limit else None)


def _walk(folder: int, inside: str, part: str, after: str) -> Generator[BlobStat, None, None]:
    for name in _names(folder, part, _first_name(inside, after)):
        key = f"{inside}{name}"
        if why_bad_key(key.removesuffix("/")):
            continue  # put there by somebody else; nobody can ask for it
        with suppress(FileNotFoundError):  # deleted since the folder was read
            if name.endswith("/"):
                yield from _walk_below(folder, name, key, after)
            else:
                yield as_stat(key, os.stat(name, dir_fd=folder, follow_symlinks=False))


def _walk_below(folder: int, name: str, inside: str, after: str) -> Iterator[BlobStat]:
    inner = enter(disk_name(name.removesuffix("/")), folder)
    try:
        yield from _walk(inner, inside, "", after)
    finally:
        os.close(inner)


def _names(folder: int, part: str, first: str) -> Iterator[str]:
    """The names in a folder in order, from `first` on; read again for each batch, so that few are held at a time."""
    while True:
        with os.scandir(folder) as entries:
            names = filter(None, map(_listed_name, entries))
            batch = heapq.nsmallest(BATCH, (name for name in names if name >= first and name.startswith(part)))
        yield from batch
        if len(batch) < BATCH:
            return
        first = f"{batch[-1]}\0"


def _listed_name(entry: os.DirEntry[str]) -> str | None:
    if entry.is_dir(follow_symlinks=False):
        return f"{entry.name[:-1]}/" if entry.name.endswith("~") else None
    return entry.name if entry.is_file(follow_symlinks=False) else None


def _first_name(inside: str, after: str) -> str:
    """The first name in the folder `inside` whose keys can come after `after`."""
    if not after.startswith(inside):
        return "" if after < inside else LAST
    name, slash, _ = after.removeprefix(inside).partition("/")
    return f"{name}/" if slash else f"{name}\0"

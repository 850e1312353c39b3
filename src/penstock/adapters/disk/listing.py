"""List objects in the byte order of their keys, skipping directories that cannot contain a match.

Python compares strings by code point, which is the order of their UTF-8 bytes, the order in which S3 lists.
A directory sorts as "a/", between the objects "a.b" and "a0", where the keys below it belong.
"""

import heapq
import os
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path

from penstock.adapters.disk.directories import (
    directory_name,
    missing_as_not_found,
    object_path,
    open_directory,
    open_subdirectory,
)
from penstock.adapters.disk.reading import to_blob_stat
from penstock.kernel.blobs import MAX_LISTED, BlobNotFound, BlobPage, BlobStat, why_bad_key

BATCH = MAX_LISTED + 1  # names of one directory held in memory: a page, and one to see whether more follow
LAST = "\U0010ffff"  # sorts after every name: the last code point, and in no key


def page(root: Path, prefix: str, after: str, limit: int) -> BlobPage:
    """The first objects whose key starts with `prefix` and sorts after `after`."""
    directories, name_prefix = object_path(prefix)
    parent = prefix.removesuffix(name_prefix)
    found: tuple[BlobStat, ...] = ()
    with (
        suppress(BlobNotFound),
        missing_as_not_found(prefix),
        open_directory(root, directories, open_subdirectory) as directory,
        closing(_walk(directory, parent, name_prefix, after)) as walk,
    ):
        found = tuple(islice(walk, limit + 1))
    return BlobPage(blobs=found[:limit], after=found[limit - 1].key if len(found) > limit else None)


def _walk(directory: int, parent: str, name_prefix: str, after: str) -> Generator[BlobStat, None, None]:
    for name in _names(directory, name_prefix, _first_name(parent, after)):
        key = f"{parent}{name}"
        if why_bad_key(key.removesuffix("/")):
            continue  # a foreign file: no valid key names it
        with suppress(FileNotFoundError):  # deleted since the directory was read
            if name.endswith("/"):
                yield from _walk_subdirectory(directory, name, key, after)
            else:
                yield to_blob_stat(key, os.stat(name, dir_fd=directory, follow_symlinks=False))


def _walk_subdirectory(directory: int, name: str, parent: str, after: str) -> Iterator[BlobStat]:
    inner = open_subdirectory(directory_name(name.removesuffix("/")), directory)
    try:
        yield from _walk(inner, parent, "", after)
    finally:
        os.close(inner)


def _names(directory: int, name_prefix: str, first: str) -> Iterator[str]:
    """The names in a directory in order, starting at `first`. Rescans the directory per batch to bound memory."""
    while True:
        with os.scandir(directory) as entries:
            names = filter(None, map(_listed_name, entries))
            batch = heapq.nsmallest(BATCH, (name for name in names if name >= first and name.startswith(name_prefix)))
        yield from batch
        if len(batch) < BATCH:
            return
        first = f"{batch[-1]}\0"


def _listed_name(entry: os.DirEntry[str]) -> str | None:
    if entry.is_dir(follow_symlinks=False):
        return f"{entry.name[:-1]}/" if entry.name.endswith("~") else None
    return entry.name if entry.is_file(follow_symlinks=False) else None


def _first_name(parent: str, after: str) -> str:
    """The first name in the directory `parent` whose keys can sort after `after`."""
    if not after.startswith(parent):
        return "" if after < parent else LAST
    name, slash, _ = after.removeprefix(parent).partition("/")
    return f"{name}/" if slash else f"{name}\0"

"""Blobs as local files, and local files as streams for the blob store."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from penstock.kernel.blobs import Blobs, LocalFiles
from penstock.kernel.private_folder import make_private_folder

if TYPE_CHECKING:
    import hashlib

CHUNK_BYTES = 1024 * 1024
RENEW_SECONDS = 3600.0
SUFFIX = ".pdf"  # of every local file: the PDF parser opens files of this name only, and the others ignore it


@asynccontextmanager
async def local_file(
    blobs: Blobs, key: str, folder: Path, *, digest: "hashlib._Hash | None" = None
) -> AsyncIterator[Path]:
    """A blob as a local file for the length of a block: the file of a local store, else a download in `folder`.

    `digest` is updated with the content, of a download while it is written, so that the object is read once."""
    async with open_file(blobs, key) as opened:
        if opened is not None:
            if digest is not None:
                await asyncio.to_thread(_update, digest, opened)
            yield opened
            return
        async with temporary_file(folder, suffix=SUFFIX) as path:
            async for chunk in blobs.stream(key):
                await asyncio.to_thread(append_chunk, path, chunk, digest)
            yield path


def open_file(blobs: Blobs, key: str) -> AbstractAsyncContextManager[Path | None]:
    """The file of an object in a local store, or None."""
    return blobs.open_file(key, suffix=SUFFIX) if isinstance(blobs, LocalFiles) else nullcontext()


@asynccontextmanager
async def temporary_file(folder: Path, *, suffix: str = ".part") -> AsyncIterator[Path]:
    """Create an empty temporary file, which is deleted at the end of the block.

    Files that a killed process left are deleted by their age, so its time is renewed while the block runs.
    """
    path = folder / f"{secrets.token_hex(8)}{suffix}"
    renewing = asyncio.create_task(_renew_time(path))
    try:
        await asyncio.to_thread(create_file, path)
        yield path
    finally:
        renewing.cancel()
        await asyncio.to_thread(path.unlink, missing_ok=True)


async def _renew_time(path: Path) -> None:
    while True:
        await asyncio.sleep(RENEW_SECONDS)
        with suppress(OSError):  # it was deleted, or the disk is full
            await asyncio.to_thread(os.utime, path)


async def file_chunks(path: Path) -> AsyncIterator[bytes]:
    """Yield the chunks of a local file. A small file takes a single thread call."""
    file, chunk = await asyncio.to_thread(_open, path)
    with file:
        while chunk:
            yield chunk
            if len(chunk) < CHUNK_BYTES:
                return  # end of file
            chunk = await asyncio.to_thread(file.read, CHUNK_BYTES)


def _open(path: Path) -> tuple[BinaryIO, bytes]:
    """Open a file and read its first chunk."""
    file = path.open("rb")
    try:
        return file, file.read(CHUNK_BYTES)
    except OSError:
        file.close()
        raise


def create_file(path: Path) -> None:
    """Create an empty file and its parent folders."""
    make_private_folder(path.parent)
    path.touch()


def append_chunk(path: Path, chunk: bytes, digest: "hashlib._Hash | None" = None) -> None:
    """Append to an existing file. A deleted file is not created again: the thread may outlive its cancelled caller."""
    if digest is not None:
        digest.update(chunk)
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(chunk)


def _update(digest: "hashlib._Hash", path: Path) -> None:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)

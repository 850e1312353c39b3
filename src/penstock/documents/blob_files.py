"""Objects of the blob store as local files or as values, and files on their way to the store."""

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from penstock.kernel.blobs import BlobNotFound, Blobs, BlobTooLarge

log = logging.getLogger(__name__)

PIECE_BYTES = 1024 * 1024

T = TypeVar("T")


async def find_value(blobs: Blobs, key: str, kind: type[T]) -> T | None:
    """What an object says in JSON. One that cannot be understood is as good as none: whoever made it makes it again."""
    try:
        return msgspec.json.decode(await blobs.get(key), type=kind)
    except BlobNotFound:
        return None
    except (BlobTooLarge, msgspec.MsgspecError, UnicodeDecodeError) as error:
        log.warning("%s cannot be understood: %s", key, error)
        return None


@asynccontextmanager
async def borrowed(blobs: Blobs, key: str, folder: Path) -> AsyncIterator[Path]:
    """A copy of an object in a file of its own, gone at the end of the block."""
    async with scratch_file(folder) as path:
        async for chunk in blobs.stream(key):
            await asyncio.to_thread(append, path, chunk)
        yield path


@asynccontextmanager
async def scratch_file(folder: Path) -> AsyncIterator[Path]:
    """An empty file of one's own in a folder, which is gone at the end of the block."""
    path = folder / f"{secrets.token_hex(8)}.part"
    try:
        await asyncio.to_thread(make_file, path)
        yield path
    finally:
        await asyncio.to_thread(path.unlink, missing_ok=True)


async def pieces_of(path: Path) -> AsyncIterator[bytes]:
    """A local file piece by piece, as the store takes it. A small one costs one hop into a thread."""
    file, piece = await asyncio.to_thread(_open, path)
    with file:
        while piece:
            yield piece
            if len(piece) < PIECE_BYTES:
                return  # the file ends there
            piece = await asyncio.to_thread(file.read, PIECE_BYTES)


def _open(path: Path) -> tuple[BinaryIO, bytes]:
    """A file and its first piece."""
    file = path.open("rb")
    try:
        return file, file.read(PIECE_BYTES)
    except OSError:
        file.close()
        raise


def make_file(path: Path) -> None:
    """An empty file, and the folder that it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def append(path: Path, chunk: bytes) -> None:
    """Add to a file that is there. One that is gone stays gone: a thread may come late when its caller was stopped."""
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(chunk)

"""Blobs as local files or decoded values, and local files as streams for the blob store."""

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

CHUNK_BYTES = 1024 * 1024

T = TypeVar("T")


async def find_json(blobs: Blobs, key: str, kind: type[T]) -> T | None:
    """Decode a JSON blob. An invalid one is logged and counts as missing, so that its writer creates it again."""
    try:
        return msgspec.json.decode(await blobs.get(key), type=kind)
    except BlobNotFound:
        return None
    except (BlobTooLarge, msgspec.MsgspecError, UnicodeDecodeError) as error:
        log.warning("ignoring invalid blob %s: %s", key, error)
        return None


@asynccontextmanager
async def local_copy(blobs: Blobs, key: str, folder: Path) -> AsyncIterator[Path]:
    """Download a blob to a temporary file, which is deleted at the end of the block."""
    async with temporary_file(folder) as path:
        async for chunk in blobs.stream(key):
            await asyncio.to_thread(append_chunk, path, chunk)
        yield path


@asynccontextmanager
async def temporary_file(folder: Path) -> AsyncIterator[Path]:
    """Create an empty temporary file, which is deleted at the end of the block."""
    path = folder / f"{secrets.token_hex(8)}.part"
    try:
        await asyncio.to_thread(create_file, path)
        yield path
    finally:
        await asyncio.to_thread(path.unlink, missing_ok=True)


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
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def append_chunk(path: Path, chunk: bytes) -> None:
    """Append to an existing file. A deleted file is not created again: the thread may outlive its cancelled caller."""
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(chunk)

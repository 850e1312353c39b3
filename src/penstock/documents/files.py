"""Objects of the blob store as local files or as values, and files on their way to the store."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

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
        with await asyncio.to_thread(path.open, "wb") as file:
            async for chunk in blobs.stream(key):
                await asyncio.to_thread(file.write, chunk)
        yield path


@asynccontextmanager
async def scratch_file(folder: Path) -> AsyncIterator[Path]:
    """A path in a folder for a file of one's own, which is gone at the end of the block."""
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    path = folder / f"{secrets.token_hex(8)}.part"
    try:
        yield path
    finally:
        await asyncio.to_thread(path.unlink, missing_ok=True)


async def pieces_of(path: Path) -> AsyncIterator[bytes]:
    """A local file piece by piece, as the store takes it."""
    with await asyncio.to_thread(path.open, "rb") as file:
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            yield piece

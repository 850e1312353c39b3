"""Objects of the blob store as local files, for tools that want one, and files on their way to the store."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from penstock.kernel.blobs import Blobs

PIECE_BYTES = 1024 * 1024


@asynccontextmanager
async def borrowed(blobs: Blobs, key: str, folder: Path) -> AsyncIterator[Path]:
    """A copy of an object in a file of its own, gone at the end of the block."""
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    path = folder / f"{secrets.token_hex(8)}.part"
    try:
        with await asyncio.to_thread(path.open, "wb") as file:
            async for chunk in blobs.stream(key):
                await asyncio.to_thread(file.write, chunk)
        yield path
    finally:
        await asyncio.to_thread(path.unlink, missing_ok=True)


async def pieces_of(path: Path) -> AsyncIterator[bytes]:
    """A local file piece by piece, as the store takes it."""
    with await asyncio.to_thread(path.open, "rb") as file:
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            yield piece

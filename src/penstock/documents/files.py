"""Objects of the blob store as local files, for tools that want one."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from penstock.kernel.blobs import Blobs


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

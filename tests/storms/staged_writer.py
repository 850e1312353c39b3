"""A process that has a staged object open for writing, and stays."""

import asyncio
from pathlib import Path

from penstock.adapters.disk import DiskStaging
from penstock.kernel.staging import StagedObject


def hold_open(folder: Path, key: str) -> None:
    """The life of the process: it writes three bytes, says so, and waits to be killed."""
    asyncio.run(_hold(folder, key))


async def _hold(folder: Path, key: str) -> None:
    async with DiskStaging(folder / "blobs").append(StagedObject(key=key), offset=0) as writer:
        await writer.write(b"abc")
        (folder / "open").touch()
        await asyncio.Event().wait()

"""A staged writer that holds bytes aside until they are known to be right, in a temporary file without a name.

Neither a folder nor S3 can take back stored bytes for sure: a kill may come before, and parts of a multipart upload
cannot be deleted. So bytes whose checksum comes last are not stored before it was compared.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

from penstock.adapters.disk_thread import in_thread
from penstock.kernel.private_folder import make_private_folder
from penstock.kernel.staging import StagedWriter

CHUNK_BYTES = 1024 * 1024


class HeldWriter:
    """Passes the bytes on to a writer when they are saved or sealed."""

    def __init__(self, inner: StagedWriter, spool: IO[bytes]) -> None:
        self._inner = inner
        self._spool = spool

    @property
    def stored_bytes(self) -> int:
        return self._inner.stored_bytes

    async def write(self, chunk: bytes) -> None:
        await in_thread(self._spool_name, lambda: self._spool.write(chunk))

    async def save(self) -> None:
        await self._pass_on()
        await self._inner.save()

    async def seal(self) -> None:
        await self._pass_on()
        await self._inner.seal()

    @property
    def _spool_name(self) -> str:
        return "held bytes"

    async def _pass_on(self) -> None:
        await in_thread(self._spool_name, lambda: self._spool.seek(0))
        while chunk := await in_thread(self._spool_name, lambda: self._spool.read(CHUNK_BYTES)):
            await self._inner.write(chunk)
        await in_thread(self._spool_name, self._spool.truncate)


@asynccontextmanager
async def holding(inner: StagedWriter, folder: Path) -> AsyncIterator[HeldWriter]:
    """Hold bytes in a temporary file of this folder for the length of a block."""
    spool = await in_thread(str(folder), lambda: _open_spool(folder))
    try:
        yield HeldWriter(inner, spool)
    finally:
        await asyncio.to_thread(spool.close)


def _open_spool(folder: Path) -> IO[bytes]:
    make_private_folder(folder)
    return tempfile.TemporaryFile(dir=folder)

"""Artifacts: the blobs that one piece of work makes, under one key prefix.

Keys are deterministic: work that runs twice writes to the same ones.

Checkpoints are stored as the work proceeds. What is finished is stored next, and a commit marker last: if the marker
exists, everything it stands for does. A marker that cannot be decoded counts as missing, so its writer makes it again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from penstock.kernel.blobs import JSON_TYPE, BlobNotFound, Blobs, BlobTooLarge, Chunks

log = logging.getLogger(__name__)

DELETED_AT_ONCE = 16

T = TypeVar("T")


@dataclass(frozen=True)
class Artifacts:
    """The blobs under a prefix, which ends with a slash. Names are relative to it."""

    blobs: Blobs
    prefix: str

    def key(self, name: str) -> str:
        """The blob key of a name."""
        return self.prefix + name

    async def put(self, name: str, chunks: Chunks, *, content_type: str | None = None) -> None:
        """Store a checkpoint or a result."""
        await self.blobs.put(self.key(name), chunks, content_type=content_type)

    async def commit(self, name: str, marker: object) -> None:
        """Store a value as JSON: a commit marker, after everything that it stands for."""
        await self.blobs.put(self.key(name), msgspec.json.encode(marker), content_type=JSON_TYPE)

    async def find(self, name: str, kind: type[T]) -> T | None:
        """The value of a commit marker; None if it is missing or cannot be decoded."""
        try:
            return msgspec.json.decode(await self.blobs.get(self.key(name)), type=kind)
        except BlobNotFound:
            return None
        except (BlobTooLarge, msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("ignoring invalid blob %s: %s", self.key(name), error)
            return None

    async def names(self) -> AsyncIterator[list[str]]:
        """The names of everything stored, in pages."""
        after: str | None = None
        while True:
            page = await self.blobs.list(self.prefix, after=after)
            yield [blob.key.removeprefix(self.prefix) for blob in page.blobs]
            if (after := page.after) is None:
                return

    async def is_empty(self) -> bool:
        """Whether nothing is stored."""
        return not (await self.blobs.list(self.prefix, limit=1)).blobs

    async def delete(self, name: str) -> None:
        """Delete one of them; no error if it does not exist."""
        await self.blobs.delete(self.key(name))

    async def drop(self, chosen: Callable[[str], bool] | None = None) -> None:
        """Delete everything, or all with a chosen name. Idempotent, also after an interruption."""
        async for page in self.names():
            names = page if chosen is None else [name for name in page if chosen(name)]
            for start in range(0, len(names), DELETED_AT_ONCE):
                await asyncio.gather(*map(self.delete, names[start : start + DELETED_AT_ONCE]))

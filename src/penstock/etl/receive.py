"""Receive: a document that was sent with its task is put where documents lie, under a key that nobody else uses.

The key is the one that callers of the older API know, users/{user}/raw/{project}/{name}, while it is free. A task whose
document lies there already must find it unchanged, so a second document of that name gets a key of its own.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path, PurePosixPath

from penstock.access.domain import Caller
from penstock.etl import moves
from penstock.etl.errors import RuleNotFound
from penstock.etl.names import safe_name
from penstock.etl.store import rules
from penstock.etl.tools import Tools
from penstock.kernel.blobs import BlobExists, BlobNotFound

CHUNK_BYTES = 1024 * 1024
LEFT = timedelta(days=8)  # no stage lasts so long


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A document as it came: its file, its name, and the task that is wanted for it."""

    file: Path
    filename: str
    project_id: int
    rule_id: int | None = None


async def keep(tools: Tools, caller: Caller, sent: Sent) -> str:
    """Store a document whose task will most likely be taken; returns its key."""
    await _expect_task(tools, caller, sent.rule_id)
    folder, name, file = f"users/{caller.user_id}/raw/{sent.project_id}", safe_name(sent.filename), sent.file
    plain = f"{folder}/{name}"
    if not await _is_taken(tools, plain):
        try:
            await tools.blobs.create(plain, _chunks(file))
        except BlobExists:  # somebody was quicker
            pass
        else:
            return plain
    path = PurePosixPath(name)
    key = f"{folder}/{path.stem}-{secrets.token_hex(4)}{path.suffix}"
    await tools.blobs.create(key, _chunks(file))
    return key


async def drop(tools: Tools, key: str) -> None:
    """Forget a document whose task was refused."""
    await tools.blobs.delete(key)


async def sweep(tools: Tools) -> None:
    """Delete copies of documents on this machine's disk that a process left behind when it died."""
    before = tools.db.clock.now() - LEFT
    await asyncio.to_thread(_drop_old, tools.scratch, before.timestamp())


def _drop_old(folder: Path, before: float) -> None:
    for path in folder.glob("*.part"):
        with suppress(FileNotFoundError):  # its own process was quicker
            if path.stat().st_mtime < before:
                path.unlink()


async def _expect_task(tools: Tools, caller: Caller, rule_id: int | None) -> None:
    """Refuse now what would be refused later, when a large file has been stored for nothing."""
    async with tools.db.read() as tx:
        if rule_id is not None and await rules.find_rule_for(tx, caller, rule_id) is None:
            raise RuleNotFound(rule_id=rule_id)
        await moves.check_room(tools, tx)


async def _is_taken(tools: Tools, key: str) -> bool:
    try:
        await tools.blobs.stat(key)
    except BlobNotFound:
        return False
    return True


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk

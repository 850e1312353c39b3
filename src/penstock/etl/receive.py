"""Receive: a document that was sent with its task is put where documents lie, under a key that nobody else uses.

One whose task is refused is not kept. Both are called as the document was, or as near to that as stores allow.

The key is the one that callers of the older API know, users/{user}/raw/{project}/{name}, while it is free. A task whose
document lies there already must find it unchanged, so a second document of that name gets a key of its own.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path, PurePosixPath

from penstock.access.domain import Caller
from penstock.documents.blob_files import pieces_of
from penstock.etl import moves
from penstock.etl.deps import Deps
from penstock.etl.names import safe_name, task_name
from penstock.kernel.blobs import BlobExists, BlobNotFound
from penstock.kernel.errors import Conflict, Invalid, NotFound, Refused, TooLarge, TooMany

log = logging.getLogger(__name__)

REFUSED = (Invalid, Refused, NotFound, Conflict, TooLarge, TooMany)  # after these there is no task, for certain
LEFT = timedelta(days=8)  # no stage lasts so long
LEFT_BEHIND = (".part", ".md", ".jsonl")  # copies of documents, and what readers bind of their pages
SWEEP_SECONDS = 3600


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A document as it came: its file, its name, and the task that is wanted for it."""

    file: Path
    filename: str
    project_id: int
    rule_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A document as it is stored: its key, and what its task is called."""

    key: str
    filename: str


@asynccontextmanager
async def kept(tools: Deps, caller: Caller, sent: Sent) -> AsyncIterator[Kept]:
    """A stored document whose task is made in the block; when that is refused, it is not kept."""
    named = replace(sent, filename=task_name(sent.filename))
    key = await _keep(tools, caller, named)
    try:
        yield Kept(key=key, filename=named.filename)
    except REFUSED:
        await tools.blobs.delete(key)
        raise


async def _keep(tools: Deps, caller: Caller, sent: Sent) -> str:
    """Store a document whose task will most likely be taken; returns its key."""
    await _expect_task(tools, caller, sent.rule_id)
    folder, name, file = f"users/{caller.user_id}/raw/{sent.project_id}", safe_name(sent.filename), sent.file
    plain = f"{folder}/{name}"
    if not await _is_taken(tools, plain):
        try:
            await tools.blobs.create(plain, pieces_of(file))
        except BlobExists:  # somebody was quicker
            pass
        else:
            return plain
    path = PurePosixPath(name)
    key = f"{folder}/{path.stem}-{secrets.token_hex(4)}{path.suffix}"
    await tools.blobs.create(key, pieces_of(file))
    return key


async def keep_swept(tools: Deps) -> None:
    """Sweep at the start and then every hour, until cancelled. Each process does: it may be the only one here."""
    while True:
        try:
            await sweep(tools)
        except OSError as error:
            log.warning("%s cannot be swept: %s", tools.scratch, error)
        await tools.db.clock.sleep(SWEEP_SECONDS)


async def sweep(tools: Deps) -> None:
    """Delete files on this machine's disk that a process left behind when it died."""
    before = tools.db.clock.now() - LEFT
    await asyncio.to_thread(_drop_old, tools.scratch, before.timestamp())


def _drop_old(folder: Path, before: float) -> None:
    for path in folder.glob("*"):
        if path.suffix not in LEFT_BEHIND:
            continue
        with suppress(FileNotFoundError):  # its own process was quicker
            if path.stat().st_mtime < before:
                path.unlink()


async def _expect_task(tools: Deps, caller: Caller, rule_id: int | None) -> None:
    """Refuse now what would be refused later, when a large file has been stored for nothing."""
    async with tools.db.read() as tx:
        await moves.get_rule_for(tools, tx, caller, rule_id)
        await moves.check_room(tools, tx)


async def _is_taken(tools: Deps, key: str) -> bool:
    try:
        await tools.blobs.stat(key)
    except BlobNotFound:
        return False
    return True

"""Upload: store a document that is sent together with its task, under a key of its own.

If the task is rejected, the document is deleted again; if the process dies in between, or does not learn whether its
task was created, the document is swept after a few hours. The key is users/{user}/raw/{project}/{name}, which clients
of the older API expect, as long as that key is free. A task that already refers to that key must find its document
unchanged, so documents of the same name do not overwrite each other: the second gets a random suffix.
"""

import asyncio
import logging
import re
import secrets
import unicodedata
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path, PurePosixPath

from penstock.access.domain import Caller
from penstock.documents.blob_files import file_chunks
from penstock.etl import lifecycle
from penstock.etl.deps import Deps
from penstock.etl.store import tasks
from penstock.etl.store.tasks import OrphanedUpload
from penstock.kernel.blobs import BlobExists, BlobNotFound, why_bad_key
from penstock.kernel.db import Tx
from penstock.kernel.errors import Conflict, Invalid, NotFound, Refused, TooLarge, TooMany

log = logging.getLogger(__name__)

REJECTED = (Invalid, Refused, NotFound, Conflict, TooLarge, TooMany)  # after any of these no task was created
SCRATCH_AGE = timedelta(hours=20)  # files in use are renewed every hour; so leftovers go within a day
SCRATCH_SUFFIXES = (".part", ".pdf", ".md", ".jsonl")  # copies of documents, and pages that readers merge
CLEAN_SECONDS = 3600
ORPHAN_AGE = timedelta(minutes=10)  # of a document that is listed: a younger one may still get its task
SWEEP_AGE = timedelta(hours=6)  # of a document that is swept: longer than any upload takes
SWEPT_AT_ONCE = 100
MAX_NAME_BYTES = 160  # of the 200 bytes of a key segment: names of artifacts are longer than the document's name
MAX_SUFFIX_BYTES = 20
DEFAULT_NAME = "document"

Reserve = Callable[[str], Awaitable[bool]]  # records that a key is about to be stored; False if it is taken


@dataclass(frozen=True, kw_only=True)
class UploadedDocument:
    """An uploaded file with its name and the parameters of its task."""

    file: Path
    filename: str
    project_id: int
    rule_id: int | None = None


async def check_acceptable(tx: Tx, deps: Deps, caller: Caller, rule_id: int | None) -> None:
    """Reject now what `submit` would reject later, before a large file is stored."""
    await lifecycle.get_rule_for_task(tx, deps, caller, rule_id)
    await lifecycle.check_queue_capacity(tx, deps, caller, owner=caller.user_id)


async def store_document(deps: Deps, caller: Caller, document: UploadedDocument, reserve: Reserve) -> str:
    """Store a document under a free key, which `reserve` has recorded before; returns the key."""
    folder, name = f"users/{caller.user_id}/raw/{document.project_id}", safe_name(document.filename)
    plain, path = f"{folder}/{name}", PurePosixPath(name)
    for key in (plain, f"{folder}/{path.stem}-{secrets.token_hex(4)}{path.suffix}"):
        if not await _exists(deps, key) and await reserve(key):
            with suppress(BlobExists):  # a client of the store itself was first
                await deps.blobs.create(key, file_chunks(document.file))
                return key
    raise BlobExists(key=plain)


async def list_orphans(tx: Tx, *, offset: int, limit: int) -> list[OrphanedUpload]:
    """Documents that were uploaded a while ago and have no task, oldest first."""
    return await tasks.list_orphans(tx, before=tx.now - ORPHAN_AGE, offset=offset, limit=limit)


async def claim_orphans(tx: Tx) -> tuple[list[str], list[str]]:
    """Take some documents that are old enough to be swept: the keys of all, and of those that no task has."""
    old = [one.key for one in await tasks.list_orphans(tx, before=tx.now - SWEEP_AGE, limit=SWEPT_AT_ONCE)]
    return old, await tasks.claim_orphans(tx, old) if old else []


async def clean_scratch_periodically(deps: Deps) -> None:
    """Clean the scratch folder at start and then hourly, until cancelled. Every process does this for its own disk."""
    while True:
        try:
            await clean_scratch(deps)
        except OSError as error:
            log.warning("cannot clean %s: %s", deps.scratch, error)
        await deps.db.clock.sleep(CLEAN_SECONDS)


async def clean_scratch(deps: Deps) -> None:
    """Delete temporary files that a killed process left on this machine's disk."""
    before = deps.db.clock.now() - SCRATCH_AGE
    await asyncio.to_thread(_delete_older, deps.scratch, before.timestamp())


def task_name(filename: str) -> str:
    """The filename as sent if the result can be stored under it, else a safe variant."""
    composed = unicodedata.normalize("NFC", filename)  # macOS sends decomposed accents
    return composed if why_bad_key(f"{composed}.json") is None and "/" not in composed else safe_name(composed)


def safe_name(filename: str) -> str:
    """The filename with invalid characters replaced: valid as one segment of a blob key in every store."""
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", filename))[-1]
    name = "".join(one if one.isprintable() else "_" for one in last).strip(" ").rstrip("~").strip(" ")
    stem, dot, suffix = name.rpartition(".")
    if not dot or len(suffix.encode()) > MAX_SUFFIX_BYTES:
        stem, suffix = name, ""
    end = f".{suffix}" if suffix else ""
    cut = stem.encode()[: MAX_NAME_BYTES - len(end.encode())].decode(errors="ignore").strip(" ")
    safe = f"{cut or DEFAULT_NAME}{end}"
    return safe if why_bad_key(safe) is None else DEFAULT_NAME


async def _exists(deps: Deps, key: str) -> bool:
    try:
        await deps.blobs.stat(key)
    except BlobNotFound:
        return False
    return True


def _delete_older(folder: Path, before: float) -> None:
    for path in folder.glob("*"):
        if path.suffix not in SCRATCH_SUFFIXES:
            continue
        with suppress(FileNotFoundError):  # its own process deleted it first
            if path.stat().st_mtime < before:
                path.unlink()

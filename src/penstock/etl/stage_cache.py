"""Cache of stage results: artifacts that one of the user's tasks made before are copied instead of made again.

Tasks of other users are never copied from, not even for admins. A copy belongs to its task: either can be removed
without the other. A stage has a cache key: a hash of everything that its artifacts depend on. A row of `etl_memory`
names the task that has artifacts of that key. It refers to them and holds nothing itself, so any change to them is a
miss at worst: the artifacts contain their own key, and their task must still be in the run that made them. A hit leaves
the same artifacts as the stage itself would, in the same order, so later steps need not know.

An OCR result is cached by the bytes of the document, hashed while it is opened. If the object is replaced during OCR,
or between two attempts that share their pages, the result is not cached.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace

import msgspec

from penstock.documents.blob_files import local_file
from penstock.documents.ocr.provider import Reading, Source, check_size
from penstock.documents.postprocessor import ExtractionRule, PostProcessor
from penstock.etl import artifacts
from penstock.etl.artifacts import CacheOutcome, OcrCommit, ResultCommit
from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask, Phase
from penstock.etl.errors import SourceNotFound
from penstock.etl.stage_context import EtlStageContext
from penstock.etl.store import tasks
from penstock.etl.store.tasks import CachedStage
from penstock.kernel.blobs import BlobNotFound, Blobs, BlobStat
from penstock.kernel.db import Tx
from penstock.kernel.json_object import JsonObject
from penstock.kernel.stages.artifacts import Artifacts

VERSION = 1  # of the cache keys: a new version invalidates all entries
AT_ONCE_BYTES = 64 * 1024  # smaller chunks are hashed faster than a thread is started
CACHED: JsonObject = {"cached": True}  # usage of a result that was copied from another task


@dataclass(frozen=True, kw_only=True)
class HashedDocument:
    """An open document: the source that a provider gets, the cache key of its OCR result, its blob metadata."""

    key: str
    source: Source
    stat: BlobStat


@asynccontextmanager
async def open_document(deps: Deps, task: EtlTask) -> AsyncIterator[HashedDocument]:
    """The document of a task as a local file, for the length of a block. It is read once: hashed while it is copied."""
    stat = await artifacts.get_source(deps.blobs, task.s3_key)
    source = Source(key=stat.key, filename=task.filename, size_bytes=stat.size_bytes)
    check_size(source, max_bytes=deps.config.max_file_bytes)
    digest = _begin_digest(Phase.OCR, _ending(task.filename), deps.provider.identity)
    async with AsyncExitStack() as closing:
        try:
            path = await closing.enter_async_context(local_file(deps.blobs, stat.key, deps.scratch, digest=digest))
        except BlobNotFound as error:
            raise SourceNotFound(key=stat.key) from error
        yield HashedDocument(key=digest.hexdigest(), source=replace(source, path=path), stat=stat)


async def is_unchanged(deps: Deps, task: EtlTask, document: HashedDocument) -> bool:
    """Whether the object is still the one that was hashed; a remote provider may have fetched it by itself."""
    try:
        return document.stat.is_same_version(await artifacts.get_source(deps.blobs, task.s3_key))
    except SourceNotFound:
        return False


async def key_of_pages(deps: Deps, context: EtlStageContext, document: HashedDocument) -> str | None:
    """The cache key of the OCR result; None if pages of an earlier attempt may belong to another document."""
    if (known := context.cached) is not None:
        return document.key if known["key"] == document.key else None
    fresh = context.provider_task_id is None and await Artifacts(deps.blobs, context.folder).is_empty()
    return document.key if fresh else None


async def result_key(deps: Deps, reading: Reading, rule: ExtractionRule, post_processor: PostProcessor) -> str | None:
    """The cache key of a rule's result: a hash of the pages, the schema, prompt, strategy and options, and the model.

    None if the result is too cheap to cache.
    """
    identity = post_processor.identity(rule)
    if identity is None:
        return None
    return await _digest(deps.blobs, reading.pages_key, Phase.POSTPROCESS, asdict(rule), identity)


async def copy_ocr(deps: Deps, context: EtlStageContext, key: str) -> OcrCommit | None:
    """Copy the OCR result that another task has of the same document."""
    maker = await _find_maker(context, Phase.OCR, key)
    known = await artifacts.find_ocr(deps.blobs, maker) if maker is not None else None
    if maker is None or known is None or known.cache.key != key:
        return None
    await context.check()
    try:
        copied = await artifacts.copy_ocr(deps.blobs, context.task, known.reading)
    except BlobNotFound:  # it is being removed
        return None
    if not await _is_maker(context, maker, Phase.OCR):  # the markdown may belong to a later run
        return None
    return await artifacts.commit_ocr(deps.blobs, context.task, copied, CacheOutcome(key=key, task_id=maker.id))


async def copy_result(deps: Deps, context: EtlStageContext, key: str) -> ResultCommit | None:
    """Copy the result that another task has of the same pages and rule."""
    maker = await _find_maker(context, Phase.POSTPROCESS, key)
    known = await artifacts.find_result(deps.blobs, maker) if maker is not None else None
    if maker is None or known is None or known.cache.key != key:
        return None
    await context.check()
    try:
        await deps.blobs.copy(artifacts.result_key(maker), artifacts.result_key(context.task))
    except BlobNotFound:
        return None
    cache = CacheOutcome(key=key, task_id=maker.id)
    done = msgspec.structs.replace(known, run=context.task.run, usage=CACHED, cache=cache)
    await artifacts.commit_grounding(deps.blobs, context.task, done)
    return done


async def insert_entry(tx: Tx, task: EtlTask, phase: Phase, key: str | None) -> None:
    """Let later tasks reuse this stage's artifacts; nothing if the stage has no cache key."""
    if key is None:
        return
    run = artifacts.run_of(task, phase)
    made = CachedStage(user_id=task.user_id, key=key, stage=phase, task_id=task.id, run=run, made_at=tx.now)
    await tasks.insert_cached_stage(tx, made)


def may_use(task: EtlTask, phase: Phase) -> bool:
    """Whether a stage may use the cache. A retry from OCR must run OCR again."""
    reads_again = phase is Phase.OCR and task.run > 1 and task.ocr_run == task.run
    return not reads_again and not task.metadata.get(artifacts.FORCE)


async def _find_maker(context: EtlStageContext, phase: Phase, key: str) -> EtlTask | None:
    """The task of the same user that has artifacts of this key, unless it is in a later run by now."""
    user_id = context.task.user_id
    async with context.read() as tx:
        known = await tasks.find_cached_stage(tx, user_id, key)
        row = await tasks.find_task(tx, known.task_id) if known is not None else None
    if known is None or row is None or row.user_id != user_id or artifacts.run_of(row, phase) != known.run:
        return None
    return row


async def _is_maker(context: EtlStageContext, maker: EtlTask, phase: Phase) -> bool:
    """Whether a task is still in the same run."""
    async with context.read() as tx:
        row = await tasks.find_task(tx, maker.id)
    return row is not None and artifacts.run_of(row, phase) == artifacts.run_of(maker, phase)


def _ending(filename: str) -> str:
    """The filename extension, by which readers detect a type that the content does not show."""
    _, dot, last = filename.rpartition(".")
    return dot + last.lower() if dot else ""


async def _digest(blobs: Blobs, key: str, *beside: object) -> str:
    """A hash of an object and of other values."""
    digest = _begin_digest(*beside)
    async for chunk in blobs.stream(key):
        if len(chunk) > AT_ONCE_BYTES:
            await asyncio.to_thread(digest.update, chunk)
        else:
            digest.update(chunk)
    return digest.hexdigest()


def _begin_digest(*beside: object) -> "hashlib._Hash":
    """A hash of these values, to be continued with an object; the order of members in objects does not matter."""
    head = json.dumps([VERSION, *beside], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{head}\n".encode())  # unambiguous: JSON on one line contains no newline

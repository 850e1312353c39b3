"""Cache of stage results: artifacts that one of the user's tasks made before are copied instead of made again.

A stage has a cache key: a hash of everything that its artifacts depend on. A row of `etl_memory` names the task that
has artifacts of that key. It refers to them and holds nothing itself, so any change to them is a miss at worst: the
artifacts contain their own key, and their task must still be in the run that made them. A hit leaves the same artifacts
as the stage itself would, in the same order, so later steps need not know.

An OCR result is cached by the bytes of the document, hashed before OCR. If the object is replaced during OCR, or
between two attempts that share their pages, the result is not cached.
"""

import asyncio
import hashlib
import json
from dataclasses import asdict, dataclass, replace

from penstock.documents.ocr.provider import Reading, Source
from penstock.documents.postprocessor import ExtractionRule, PostProcessor
from penstock.etl import papers
from penstock.etl.deps import Deps
from penstock.etl.desk import StageDesk
from penstock.etl.domain import EtlTask, Phase
from penstock.etl.errors import SourceNotFound
from penstock.etl.papers import Memo, ReadingPaper, ShapingPaper
from penstock.etl.store import tasks
from penstock.etl.store.memory import find_memory
from penstock.kernel.blobs import BlobNotFound, Blobs, BlobStat
from penstock.kernel.json_object import JsonObject

VERSION = 1  # of the cache keys: a new version invalidates all entries
AT_ONCE_BYTES = 64 * 1024  # smaller chunks are hashed faster than a thread is started
CACHED: JsonObject = {"cached": True}  # usage of a result that was copied from another task


@dataclass(frozen=True, kw_only=True)
class HashedDocument:
    """A hashed document: the cache key of its OCR result, and its blob metadata just before hashing."""

    key: str
    stat: BlobStat
    filename: str

    @property
    def source(self) -> Source:
        """The source that a provider gets."""
        return Source(key=self.stat.key, filename=self.filename, size_bytes=self.stat.size_bytes)


async def look_at(deps: Deps, task: EtlTask) -> HashedDocument:
    """Hash the document of a task."""
    stat = await papers.get_source(deps.blobs, task.s3_key)
    return HashedDocument(key=await _reading_key(deps, task), stat=stat, filename=task.filename)


async def is_unchanged(deps: Deps, task: EtlTask, document: HashedDocument) -> bool:
    """Whether the object is still the one that was hashed.

    A store with timestamps in whole seconds cannot show a replacement within one, so the object is hashed again there.
    """
    try:
        if await papers.get_source(deps.blobs, task.s3_key) != document.stat:
            return False
        return bool(document.stat.modified_at.microsecond) or await _reading_key(deps, task) == document.key
    except SourceNotFound:
        return False


async def key_of_pages(deps: Deps, desk: StageDesk, document: HashedDocument) -> str | None:
    """The cache key of the OCR result; None if pages of an earlier attempt may belong to another document."""
    if (known := desk.cached) is not None:
        return document.key if known["key"] == document.key else None
    begun = desk.provider_task_id is not None or (await deps.blobs.list(desk.folder, limit=1)).blobs
    return None if begun else document.key


async def shaping_key(deps: Deps, reading: Reading, rule: ExtractionRule, shaper: PostProcessor) -> str | None:
    """The cache key of a rule's result; None if the result is too cheap to cache."""
    identity = shaper.identity(rule)
    if identity is None:
        return None
    return await _digest(deps.blobs, reading.pages_key, Phase.POSTPROCESS, asdict(rule), identity)


async def recall_reading(deps: Deps, desk: StageDesk, key: str) -> ReadingPaper | None:
    """Copy the OCR result that another task has of the same document."""
    maker = await _find_maker(deps, desk.task, Phase.OCR, key)
    known = await papers.find_reading_paper(deps.blobs, maker) if maker is not None else None
    if maker is None or known is None or known.memo.key != key:
        return None
    await desk.check()
    try:
        laid = await papers.lay_reading(deps.blobs, desk.task, known.reading)
    except BlobNotFound:  # it is being removed
        return None
    if not await _is_maker(deps, maker, Phase.OCR):  # the markdown may belong to a later run
        return None
    return await papers.keep_reading(deps.blobs, desk.task, laid, Memo(key=key, task_id=maker.id))


async def recall_shaping(deps: Deps, desk: StageDesk, key: str) -> ShapingPaper | None:
    """Copy the result that another task has of the same pages and rule."""
    maker = await _find_maker(deps, desk.task, Phase.POSTPROCESS, key)
    known = await papers.find_shaping(deps.blobs, maker) if maker is not None else None
    if maker is None or known is None or known.memo.key != key:
        return None
    await desk.check()
    try:
        await deps.blobs.copy(papers.result_key(maker), papers.result_key(desk.task))
    except BlobNotFound:
        return None
    paper = replace(known, run=desk.task.run, usage=CACHED, memo=Memo(key=key, task_id=maker.id))
    await papers.keep_grounding(deps.blobs, desk.task, paper)
    return paper


def may_recall(task: EtlTask, phase: Phase) -> bool:
    """Whether a stage may use the cache. A retry from OCR must run OCR again."""
    reads_again = phase is Phase.OCR and task.run > 1 and task.ocr_run == task.run
    return not reads_again and not task.metadata.get(papers.FORCE)


async def _find_maker(deps: Deps, task: EtlTask, phase: Phase, key: str) -> EtlTask | None:
    """The task of the same user that has artifacts of this key, unless it is in a later run by now."""
    async with deps.db.read() as tx:
        known = await find_memory(tx, task.user_id, key)
        row = await tasks.find_task(tx, known.task_id) if known is not None else None
    if known is None or row is None or row.user_id != task.user_id or papers.run_of(row, phase) != known.run:
        return None
    return row


async def _is_maker(deps: Deps, maker: EtlTask, phase: Phase) -> bool:
    """Whether a task is still in the same run."""
    async with deps.db.read() as tx:
        row = await tasks.find_task(tx, maker.id)
    return row is not None and papers.run_of(row, phase) == papers.run_of(maker, phase)


async def _reading_key(deps: Deps, task: EtlTask) -> str:
    try:
        return await _digest(deps.blobs, task.s3_key, Phase.OCR, _ending(task.filename), deps.provider.identity)
    except BlobNotFound as error:
        raise SourceNotFound(key=task.s3_key) from error


def _ending(filename: str) -> str:
    """The filename extension, by which readers detect a type that the content does not show."""
    _, dot, last = filename.rpartition(".")
    return dot + last.lower() if dot else ""


async def _digest(blobs: Blobs, key: str, *beside: object) -> str:
    """A hash of an object and of other values; the order of members in objects does not matter."""
    head = json.dumps([VERSION, *beside], sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(f"{head}\n".encode())  # unambiguous: JSON on one line contains no newline
    async for chunk in blobs.stream(key):
        if len(chunk) > AT_ONCE_BYTES:
            await asyncio.to_thread(digest.update, chunk)
        else:
            digest.update(chunk)
    return digest.hexdigest()

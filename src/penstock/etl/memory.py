"""Memory: what one of a user's tasks has made before is copied, and not made again.

A stage has a key: a hash of all that its papers depend on. The table `etl_memory` knows which task has papers of that
key. It points at them and holds nothing itself, so whatever happens to them is a miss at the worst: they say their own
key, and their task must still be in the run that made them. A hit leaves the same papers as the stage itself does, by
the same rules, so whoever finds them need not know.

A reading is remembered by the bytes that were read. They were hashed before, so an object that was replaced meanwhile,
or between two attempts that share their pages, is known by no key.
"""

import asyncio
import hashlib
import json
from dataclasses import asdict, dataclass, replace

from penstock.documents.ocr.provider import Reading, Source
from penstock.documents.postprocessor import PostProcessor, ShapeRule
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

VERSION = 1  # of the keys: another one forgets everything
AT_ONCE_BYTES = 64 * 1024  # are hashed quicker than a thread is asked
CACHED: JsonObject = {"cached": True}  # what a result has cost that was made for another task


@dataclass(frozen=True, kw_only=True)
class Document:
    """A document as it was looked at: the key of its reading, and what the store knew of it just before."""

    key: str
    stat: BlobStat
    filename: str

    @property
    def source(self) -> Source:
        """What a provider is told of it."""
        return Source(key=self.stat.key, filename=self.filename, size_bytes=self.stat.size_bytes)


async def look_at(tools: Deps, task: EtlTask) -> Document:
    """The document of a task, hashed."""
    stat = await papers.get_source(tools.blobs, task.s3_key)
    return Document(key=await _reading_key(tools, task), stat=stat, filename=task.filename)


async def is_unchanged(tools: Deps, task: EtlTask, document: Document) -> bool:
    """Whether the object is the one that was looked at.

    A store that tells whole seconds cannot show that an object was replaced within one, so there it is hashed again.
    """
    try:
        if await papers.get_source(tools.blobs, task.s3_key) != document.stat:
            return False
        return bool(document.stat.modified_at.microsecond) or await _reading_key(tools, task) == document.key
    except SourceNotFound:
        return False


async def key_of_pages(tools: Deps, desk: StageDesk, document: Document) -> str | None:
    """The key of what is about to be read; none when pages of an earlier attempt may be those of another document."""
    if (known := desk.cached) is not None:
        return document.key if known["key"] == document.key else None
    begun = desk.provider_task_id is not None or (await tools.blobs.list(desk.folder, limit=1)).blobs
    return None if begun else document.key


async def shaping_key(tools: Deps, reading: Reading, rule: ShapeRule, shaper: PostProcessor) -> str | None:
    """The key of what a rule makes of pages; none when making it costs next to nothing."""
    identity = shaper.identity(rule)
    if identity is None:
        return None
    return await _digest(tools.blobs, reading.pages_key, Phase.POSTPROCESS, asdict(rule), identity)


async def recall_reading(tools: Deps, desk: StageDesk, key: str) -> ReadingPaper | None:
    """What another task has read of the same document, as this task's own."""
    maker = await _find_maker(tools, desk.task, Phase.OCR, key)
    known = await papers.find_reading_paper(tools.blobs, maker) if maker is not None else None
    if maker is None or known is None or known.memo.key != key:
        return None
    await desk.check()
    try:
        laid = await papers.lay_reading(tools.blobs, desk.task, known.reading)
    except BlobNotFound:  # it is being removed
        return None
    if not await _is_maker(tools, maker, Phase.OCR):  # its markdown may be that of a later run
        return None
    return await papers.keep_reading(tools.blobs, desk.task, laid, Memo(key=key, task_id=maker.id))


async def recall_shaping(tools: Deps, desk: StageDesk, key: str) -> ShapingPaper | None:
    """What another task has made of the same pages by the same rule, as this task's own."""
    maker = await _find_maker(tools, desk.task, Phase.POSTPROCESS, key)
    known = await papers.find_shaping(tools.blobs, maker) if maker is not None else None
    if maker is None or known is None or known.memo.key != key:
        return None
    await desk.check()
    try:
        await tools.blobs.copy(papers.result_key(maker), papers.result_key(desk.task))
    except BlobNotFound:
        return None
    paper = replace(known, run=desk.task.run, usage=CACHED, memo=Memo(key=key, task_id=maker.id))
    await papers.keep_grounding(tools.blobs, desk.task, paper)
    return paper


def may_recall(task: EtlTask, phase: Phase) -> bool:
    """Whether a stage may do with what was made before. A retry from OCR is there to read the document again."""
    reads_again = phase is Phase.OCR and task.run > 1 and task.ocr_run == task.run
    return not reads_again and not task.metadata.get(papers.FORCE)


async def _find_maker(tools: Deps, task: EtlTask, phase: Phase, key: str) -> EtlTask | None:
    """The task of the same user that has papers of this key, unless it is in a later run by now."""
    async with tools.db.read() as tx:
        known = await find_memory(tx, task.user_id, key)
        row = await tasks.find_task(tx, known.task_id) if known is not None else None
    if known is None or row is None or row.user_id != task.user_id or papers.run_of(row, phase) != known.run:
        return None
    return row


async def _is_maker(tools: Deps, maker: EtlTask, phase: Phase) -> bool:
    """Whether a task is still in the run that it was in."""
    async with tools.db.read() as tx:
        row = await tasks.find_task(tx, maker.id)
    return row is not None and papers.run_of(row, phase) == papers.run_of(maker, phase)


async def _reading_key(tools: Deps, task: EtlTask) -> str:
    try:
        return await _digest(tools.blobs, task.s3_key, Phase.OCR, _ending(task.filename), tools.provider.identity)
    except BlobNotFound as error:
        raise SourceNotFound(key=task.s3_key) from error


def _ending(filename: str) -> str:
    """By which readers judge where the content does not tell."""
    _, dot, last = filename.rpartition(".")
    return dot + last.lower() if dot else ""


async def _digest(blobs: Blobs, key: str, *beside: object) -> str:
    """A hash of an object and of what else counts. The order of names in that does not."""
    head = json.dumps([VERSION, *beside], sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(f"{head}\n".encode())  # no line of JSON has one inside
    async for chunk in blobs.stream(key):
        if len(chunk) > AT_ONCE_BYTES:
            await asyncio.to_thread(digest.update, chunk)
        else:
            digest.update(chunk)
    return digest.hexdigest()

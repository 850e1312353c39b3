"""Advance: the two stages of a run, each a job under a lease.

A stage that fails for good, or too often, ends the run, and that is a success as far as the job goes: the row is moved
in the transaction that marks the job done. What may pass is raised again and the kernel tries it later, with the
room's own backoff; when a part of our own house is away, that costs no attempt, but no run waits for ever. A run that
is not wanted any more is dropped without a word: its row says so, whatever run state says.

What an earlier task of the same user has made of the very same thing is copied instead of made (`memory.py`).
"""

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from penstock.documents.ocr.provider import Reading
from penstock.etl import memory, moves, papers
from penstock.etl.deps import Deps
from penstock.etl.desk import StageDesk
from penstock.etl.domain import EtlTask, Phase
from penstock.etl.errors import NoReading, NotWanted, RunTakenOver
from penstock.etl.papers import Memo, ReadingPaper, ShapingPaper
from penstock.etl.runs import Trail
from penstock.etl.store import rules, tasks
from penstock.kernel.blobs import BlobNotFound
from penstock.kernel.errors import PenstockError
from penstock.kernel.json_object import JsonObject
from penstock.kernel.queue import Job
from penstock.kernel.retry import worth_retrying
from penstock.kernel.workers import Settle

log = logging.getLogger(__name__)

Stage = Callable[[Deps, StageDesk], Coroutine[Any, Any, Settle]]


async def ocr(tools: Deps, job: Job) -> Settle | None:
    """Read the document, unless that is done; then post-processing can begin."""
    return await _attempt(tools, job, Phase.OCR, _read)


async def postprocess(tools: Deps, job: Job) -> Settle | None:
    """Make JSON of what was read; then the run is over."""
    return await _attempt(tools, job, Phase.POSTPROCESS, _shape)


async def _attempt(tools: Deps, job: Job, phase: Phase, stage: Stage) -> Settle | None:
    row = await _find_wanted(tools, job)
    if row is None:
        return None
    try:
        desk = StageDesk(tools, await Trail.open(tools, row, phase, attempt=job.attempts), phase)
    except NotWanted:
        return await _refused(tools, job, row, phase)
    except PenstockError as error:
        return await _put_off(tools, row, error, phase)
    began = tools.db.clock.now()
    try:
        return await desk.watched(stage(tools, desk))
    except Exception as error:  # noqa: BLE001  (whatever a tool raises decides the run's fate)
        return await _failed(tools, job, desk, error, phase)
    finally:
        tools.meters.count_stage(moves.STAGES[phase], (tools.db.clock.now() - began).total_seconds())


async def _find_wanted(tools: Deps, job: Job) -> EtlTask | None:
    async with tools.db.read() as tx:
        row = await tasks.find_task(tx, job.payload["task_id"])
    return row if row is not None and row.run == job.payload["run"] and not row.is_over else None


async def _failed(tools: Deps, job: Job, desk: StageDesk, error: Exception, phase: Phase) -> Settle | None:
    """What becomes of the run after this; raises where another attempt is worth it."""
    if desk.unwanted:
        return await _refused(tools, job, desk.task, phase)
    if isinstance(error, PenstockError) and error.internal_outage:
        return await _put_off(tools, desk.task, error, phase)
    failure = moves.failure_of(error, moves.STAGES[phase])
    log.warning("%s attempt %d of %d: %r", job.id, job.attempts, job.max_attempts, error)
    if not worth_retrying(error) or job.attempts >= job.max_attempts:
        return partial(moves.fail, tools, desk.task, failure)
    try:
        await desk.note(failure)
    except NotWanted:
        return await _refused(tools, job, desk.task, phase)
    raise error


async def _refused(tools: Deps, job: Job, task: EtlTask, phase: Phase) -> Settle | None:
    """Stop, when the row says so too. Run state alone is not enough: somebody who lost this run may stand there."""
    if await _find_wanted(tools, job) is not None:
        return await _put_off(tools, task, RunTakenOver(task_id=task.id, run=task.run), phase)
    log.info("%s stops: run %d of etl:%d is not wanted any more", job.id, task.run, task.id)
    return None


async def _put_off(tools: Deps, task: EtlTask, error: PenstockError, phase: Phase) -> Settle:
    """Wait for a part of our own house, which raises the error again, or end a run that has waited too long."""
    if not error.internal_outage or not await moves.has_waited_too_long(tools, task):
        raise error
    log.warning("run %d of etl:%d has waited too long: %s", task.run, task.id, error)
    return partial(moves.fail, tools, task, moves.failure_of(error, moves.STAGES[phase]))


async def _read(tools: Deps, desk: StageDesk) -> Settle:
    read = await papers.find_reading_paper(tools.blobs, desk.task) or await _recall_or_read(tools, desk)
    await desk.begin_shaping(read)
    await papers.drop(tools.blobs, papers.reading_folder(desk.task))
    await papers.drop_earlier(tools.blobs, desk.task)
    return partial(moves.hand_on, tools, desk.task, read.memo.key)


async def _recall_or_read(tools: Deps, desk: StageDesk) -> ReadingPaper:
    document = await memory.look_at(tools, desk.task)
    await desk.breathe()
    if memory.may_recall(desk.task, Phase.OCR):
        known = await memory.recall_reading(tools, desk, document.key)
        _count_look(tools, Phase.OCR, known)
        if known is not None:
            return known
    key = await memory.key_of_pages(tools, desk, document)
    desk.note_cache(Phase.OCR, Memo(key=key))
    made = await tools.provider.read(document.source, desk)
    if key is not None and not await memory.is_unchanged(tools, desk.task, document):
        key = None
    await desk.check()
    return await papers.keep_reading(tools.blobs, desk.task, made, Memo(key=key))


async def _shape(tools: Deps, desk: StageDesk) -> Settle:
    read = await papers.find_reading_paper(tools.blobs, desk.task)
    if read is None:
        raise NoReading(task_id=desk.task.id)
    if not desk.shows(read):
        await desk.begin_shaping(read)
    made = await papers.find_shaping(tools.blobs, desk.task) or await _recall_or_make(tools, desk, read.reading)
    if made.memo.key is not None:
        desk.note_cache(Phase.POSTPROCESS, made.memo)
    await desk.check()
    where = await _publish(tools, desk.task)
    await papers.drop(tools.blobs, desk.folder)
    await papers.drop_earlier(tools.blobs, desk.task)
    return partial(moves.complete, tools, desk.task, _result(desk, made, where), made.memo.key)


async def _recall_or_make(tools: Deps, desk: StageDesk, reading: Reading) -> ShapingPaper:
    async with tools.db.read() as tx:
        rule = await rules.get_rule_version(tx, desk.task.rule_id, desk.task.rule_version)
    shaper, asked = moves.shaper_of(tools, rule), rule.body.asked
    key = await memory.shaping_key(tools, reading, asked, shaper)
    if key is not None and memory.may_recall(desk.task, Phase.POSTPROCESS):
        known = await memory.recall_shaping(tools, desk, key)
        _count_look(tools, Phase.POSTPROCESS, known)
        if known is not None:
            return known
    shaped = await shaper.shape(desk.task.filename, reading, asked, desk)
    await desk.check()
    return await papers.keep_shaping(tools.blobs, desk.task, shaped, Memo(key=key))


async def _publish(tools: Deps, task: EtlTask) -> str:
    """Put the result in its place by name, unless that is a later task's already; returns where it lies."""
    own, public = papers.result_key(task), papers.public_key_of(task)
    if await _find_later(tools, task) is not None:
        return own
    await tools.blobs.copy(own, public)
    if (later := await _find_later(tools, task)) is None:
        return public
    try:
        await tools.blobs.copy(papers.result_key(later), public)  # it was completed just now: its place is given back
    except BlobNotFound:  # and it is being removed already
        return public
    return own


async def _find_later(tools: Deps, task: EtlTask) -> EtlTask | None:
    """The latest completed task of the same name, when it is later than this one."""
    async with tools.db.read() as tx:
        return await tasks.find_namesake(
            tx, user_id=task.user_id, project_id=task.project_id, filename=task.filename, after=task.id
        )


def _count_look(tools: Deps, phase: Phase, known: object) -> None:
    count = tools.meters.count_miss if known is None else tools.meters.count_hit
    count(moves.STAGES[phase])


def _result(desk: StageDesk, made: ShapingPaper, where: str) -> JsonObject:
    provider_task_id = desk.provider_task_id
    return {
        "output_path": where,
        "output_size": made.output_size,
        "processing_time": desk.seconds(),
        "provider_task_id": provider_task_id,
        "mineru_task_id": provider_task_id,
        "strategy": made.strategy,
        **({"usage": made.usage} if made.usage else {}),
    }

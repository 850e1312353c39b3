"""Advance: the two stages of a run, each a job under a lease.

A stage that fails permanently or runs out of attempts ends the run; for the queue the job has then succeeded, and the
task row is moved in the transaction that marks the job as done. Transient errors are raised again, and the kernel
retries with this module's backoff. If one of our own dependencies is unavailable, the retry costs no attempt, but a run
does not wait forever. A run that was cancelled is dropped silently: its row decides, not run state.

If a worker dies at any point, its lease expires and the next worker continues from the artifacts and checkpoints, so
the task is completed once.

Artifacts that an earlier task of the same user made from the same input are copied instead (`memory.py`).
"""

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from penstock.documents.ocr.provider import Reading
from penstock.etl import lifecycle, memory, papers
from penstock.etl.deps import Deps
from penstock.etl.desk import StageDesk
from penstock.etl.domain import EtlTask, Phase
from penstock.etl.errors import OcrResultMissing, RunCancelled, RunTakenOver
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


async def ocr(deps: Deps, job: Job) -> Settle | None:
    """Run OCR unless its artifacts exist, then enqueue post-processing."""
    return await _attempt(deps, job, Phase.OCR, _read)


async def postprocess(deps: Deps, job: Job) -> Settle | None:
    """Turn the OCR result into JSON, then end the run."""
    return await _attempt(deps, job, Phase.POSTPROCESS, _shape)


async def _attempt(deps: Deps, job: Job, phase: Phase, stage: Stage) -> Settle | None:
    row = await _find_active_run(deps, job)
    if row is None:
        return None
    try:
        desk = StageDesk(deps, await Trail.open(deps, row, phase, attempt=job.attempts), phase)
    except RunCancelled:
        return await _refused(deps, job, row, phase)
    except PenstockError as error:
        return await _defer(deps, row, error, phase)
    began = deps.db.clock.now()
    try:
        return await desk.watched(stage(deps, desk))
    except Exception as error:  # noqa: BLE001  (any error of a provider decides how the run ends)
        return await _failed(deps, job, desk, error, phase)
    finally:
        deps.metrics.count_stage(lifecycle.STAGES[phase], (deps.db.clock.now() - began).total_seconds())


async def _find_active_run(deps: Deps, job: Job) -> EtlTask | None:
    async with deps.db.read() as tx:
        row = await tasks.find_task(tx, job.payload["task_id"])
    return row if row is not None and row.run == job.payload["run"] and not row.is_final else None


async def _failed(deps: Deps, job: Job, desk: StageDesk, error: Exception, phase: Phase) -> Settle | None:
    """How the run ends after this error; raises if another attempt is worthwhile."""
    if desk.is_cancelled:
        return await _refused(deps, job, desk.task, phase)
    if isinstance(error, PenstockError) and error.internal_outage:
        return await _defer(deps, desk.task, error, phase)
    failure = lifecycle.failure_from(error, lifecycle.STAGES[phase])
    log.warning("%s attempt %d of %d: %r", job.id, job.attempts, job.max_attempts, error)
    if not worth_retrying(error) or job.attempts >= job.max_attempts:
        return partial(lifecycle.fail, deps, desk.task, failure)
    try:
        await desk.note(failure)
    except RunCancelled:
        return await _refused(deps, job, desk.task, phase)
    raise error


async def _refused(deps: Deps, job: Job, task: EtlTask, phase: Phase) -> Settle | None:
    """Stop if the row says so too. Run state alone is not enough: a worker that lost this run may have written it."""
    if await _find_active_run(deps, job) is not None:
        return await _defer(deps, task, RunTakenOver(task_id=task.id, run=task.run), phase)
    log.info("%s stops: run %d of etl:%d was cancelled", job.id, task.run, task.id)
    return None


async def _defer(deps: Deps, task: EtlTask, error: PenstockError, phase: Phase) -> Settle:
    """Defer the run by raising the error again; end it after ETL_PATIENCE_SECONDS without progress."""
    if not error.internal_outage or not await lifecycle.is_deferred_too_long(deps, task):
        raise error
    log.warning("run %d of etl:%d was deferred for too long: %s", task.run, task.id, error)
    return partial(lifecycle.fail, deps, task, lifecycle.failure_from(error, lifecycle.STAGES[phase]))


async def _read(deps: Deps, desk: StageDesk) -> Settle:
    read = await papers.find_reading_paper(deps.blobs, desk.task) or await _recall_or_read(deps, desk)
    await desk.begin_shaping(read)
    await papers.drop(deps.blobs, papers.reading_folder(desk.task))
    await papers.drop_earlier(deps.blobs, desk.task)
    return partial(lifecycle.enqueue_postprocess, deps, desk.task, read.memo.key)


async def _recall_or_read(deps: Deps, desk: StageDesk) -> ReadingPaper:
    document = await memory.look_at(deps, desk.task)
    await desk.breathe()
    if memory.may_recall(desk.task, Phase.OCR):
        known = await memory.recall_reading(deps, desk, document.key)
        _count_lookup(deps, Phase.OCR, known)
        if known is not None:
            return known
    key = await memory.key_of_pages(deps, desk, document)
    desk.note_cache(Phase.OCR, Memo(key=key))
    made = await deps.provider.read(document.source, desk)
    if key is not None and not await memory.is_unchanged(deps, desk.task, document):
        key = None
    await desk.check()
    return await papers.keep_reading(deps.blobs, desk.task, made, Memo(key=key))


async def _shape(deps: Deps, desk: StageDesk) -> Settle:
    read = await papers.find_reading_paper(deps.blobs, desk.task)
    if read is None:
        raise OcrResultMissing(task_id=desk.task.id)
    if not desk.shows(read):
        await desk.begin_shaping(read)
    made = await papers.find_shaping(deps.blobs, desk.task) or await _recall_or_make(deps, desk, read.reading)
    if made.memo.key is not None:
        desk.note_cache(Phase.POSTPROCESS, made.memo)
    await desk.check()
    where = await _publish(deps, desk.task)
    await papers.drop(deps.blobs, desk.folder)
    await papers.drop_earlier(deps.blobs, desk.task)
    return partial(lifecycle.complete, deps, desk.task, _result(desk, made, where), made.memo.key)


async def _recall_or_make(deps: Deps, desk: StageDesk, reading: Reading) -> ShapingPaper:
    async with deps.db.read() as tx:
        rule = await rules.get_rule_version(tx, desk.task.rule_id, desk.task.rule_version)
    shaper, extraction = lifecycle.get_post_processor(deps, rule), rule.body.extraction_rule
    key = await memory.shaping_key(deps, reading, extraction, shaper)
    if key is not None and memory.may_recall(desk.task, Phase.POSTPROCESS):
        known = await memory.recall_shaping(deps, desk, key)
        _count_lookup(deps, Phase.POSTPROCESS, known)
        if known is not None:
            return known
    shaped = await shaper.shape(desk.task.filename, reading, extraction, desk)
    await desk.check()
    return await papers.keep_shaping(deps.blobs, desk.task, shaped, Memo(key=key))


async def _publish(deps: Deps, task: EtlTask) -> str:
    """Publish the result under its key by filename, unless a later task has; returns the key of the result."""
    own, public = papers.result_key(task), papers.public_key_of(task)
    if await _find_later(deps, task) is not None:
        return own
    await deps.blobs.copy(own, public)
    if (later := await _find_later(deps, task)) is None:
        return public
    try:
        await deps.blobs.copy(papers.result_key(later), public)  # completed in the meantime: restore its result
    except BlobNotFound:  # it is already being removed
        return public
    return own


async def _find_later(deps: Deps, task: EtlTask) -> EtlTask | None:
    """The latest completed task of the same filename, if it is later than this one."""
    async with deps.db.read() as tx:
        return await tasks.find_completed_by_name(
            tx, user_id=task.user_id, project_id=task.project_id, filename=task.filename, after=task.id
        )


def _count_lookup(deps: Deps, phase: Phase, known: object) -> None:
    count = deps.metrics.count_miss if known is None else deps.metrics.count_hit
    count(lifecycle.STAGES[phase])


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

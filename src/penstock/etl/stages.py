"""The two stages of a run, each a job under a lease: OCR, then post-processing.

A stage that fails permanently or runs out of attempts ends the run; for the queue the job has then succeeded, and the
task row is moved in the transaction that marks the job as done. Transient errors, such as TASK_TIMEOUT, are raised
again, and the kernel retries with this module's backoff. If one of our own dependencies is unavailable, the retry costs
no attempt, but a run does not wait forever. Whoever ends a run revokes its job, so a worker that finds its lease lost
drops its work.

Each stage has its own attempts, so finished work is not repeated or paid for twice. If a worker dies at any point, its
lease expires and the next worker continues from the artifacts and checkpoints, so the task is completed once. Artifacts
that an earlier task of the same user made from the same input are copied instead (`stage_cache.py`).
"""

import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any

import msgspec

from penstock.documents.ocr.provider import Reading
from penstock.etl import artifacts, lifecycle, review_requests, stage_cache
from penstock.etl.artifacts import CacheOutcome, OcrCommit, ResultCommit
from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask, Phase, ReviewReason
from penstock.etl.errors import OcrResultMissing, RunCancelled, RunTakenOver
from penstock.etl.review_requests import MAX_FIELDS_BYTES, ReviewQuestion
from penstock.etl.stage_context import EtlStageContext
from penstock.etl.store import rules, tasks
from penstock.kernel.blobs import BlobNotFound
from penstock.kernel.db import Tx
from penstock.kernel.errors import PenstockError, folder_full_from
from penstock.kernel.json_object import JsonObject
from penstock.kernel.leases import LeaseLost
from penstock.kernel.queue import Job
from penstock.kernel.retry import worth_retrying
from penstock.kernel.runstate import RunMovedOn
from penstock.kernel.stages.run_handle import HeldLease
from penstock.kernel.workers import Settle

log = logging.getLogger(__name__)

Read = Callable[[], AbstractAsyncContextManager[Tx]]
Stage = Callable[[Deps, EtlStageContext], Coroutine[Any, Any, Settle]]


async def ocr(deps: Deps, job: Job) -> Settle | None:
    """Run OCR unless its artifacts exist, then enqueue post-processing."""
    return await _attempt(deps, job, Phase.OCR, _ocr)


async def _ocr(deps: Deps, context: EtlStageContext) -> Settle:
    done = await artifacts.find_ocr(deps.blobs, context.task) or await _copy_or_read(deps, context)
    await context.begin_postprocess(done)
    await artifacts.drop_finished(deps.blobs, context.task, Phase.OCR)
    task = context.task

    async def enqueue_postprocess(tx: Tx) -> None:
        await deps.queue.enqueue(tx, lifecycle.stage_job(deps, task, Phase.POSTPROCESS))
        await stage_cache.insert_entry(tx, task, Phase.OCR, done.cache.key)

    return enqueue_postprocess


async def _copy_or_read(deps: Deps, context: EtlStageContext) -> OcrCommit:
    """Copy the OCR result of the same document, or call the provider."""
    async with stage_cache.open_document(deps, context.task) as document:
        await context.heartbeat()
        if stage_cache.may_use(context.task, Phase.OCR):
            known = await stage_cache.copy_ocr(deps, context, document.key)
            _count_lookup(deps, Phase.OCR, known)
            if known is not None:
                return known
        key = await stage_cache.key_of_pages(deps, context, document)
        context.note_cache(Phase.OCR, CacheOutcome(key=key))
        made = await deps.provider.read(document.source, context)
    if key is not None and not await stage_cache.is_unchanged(deps, context.task, document):
        key = None
    await context.check()
    return await artifacts.commit_ocr(deps.blobs, context.task, made, CacheOutcome(key=key))


async def postprocess(deps: Deps, job: Job) -> Settle | None:
    """Turn the OCR result into JSON, then end the run."""
    return await _attempt(deps, job, Phase.POSTPROCESS, _postprocess)


async def _postprocess(deps: Deps, context: EtlStageContext) -> Settle:
    read = await artifacts.find_ocr(deps.blobs, context.task)
    if read is None:
        raise OcrResultMissing(task_id=context.task.id)
    if not context.shows(read):
        await context.begin_postprocess(read)
    made = await artifacts.find_result(deps.blobs, context.task) or await _copy_or_make(deps, context, read.reading)
    if made.cache.key is not None:
        context.note_cache(Phase.POSTPROCESS, made.cache)
    await context.check()
    output_path = await publish(deps, context.read, context.task)
    question = await _question(deps, context, made)
    await artifacts.drop_finished(deps.blobs, context.task, Phase.POSTPROCESS)
    task, result = context.task, _result(context, made, output_path)

    async def complete(tx: Tx) -> None:
        if await lifecycle.complete(tx, deps, task, result, question) is not None:
            await stage_cache.insert_entry(tx, task, Phase.POSTPROCESS, made.cache.key)

    return complete


async def _copy_or_make(deps: Deps, context: EtlStageContext, reading: Reading) -> ResultCommit:
    """Copy the result of the same pages and rule, or call the post-processor."""
    task = context.task
    async with context.read() as tx:
        rule = await rules.get_rule_version(tx, task.rule_id, task.rule_version)
    post_processor, extraction = lifecycle.get_post_processor(deps, rule), rule.body.extraction_rule
    key = await stage_cache.result_key(deps, reading, extraction, post_processor)
    if key is not None and stage_cache.may_use(task, Phase.POSTPROCESS):
        known = await stage_cache.copy_result(deps, context, key)
        _count_lookup(deps, Phase.POSTPROCESS, known)
        if known is not None:
            return known
    made = await post_processor.extract(task.filename, reading, extraction, context)
    await context.check()
    return await artifacts.commit_result(deps.blobs, task, made, CacheOutcome(key=key))


async def _question(deps: Deps, context: EtlStageContext, made: ResultCommit) -> ReviewQuestion | None:
    """What a person is asked, if the rule wants ungrounded values reviewed and the result has some."""
    ungrounded = [citation.pointer for citation in made.citations if not citation.grounded]
    if not ungrounded:
        return None
    async with context.read() as tx:
        if await review_requests.find_policy(tx, context.task, ReviewReason.UNGROUNDED) is None:
            return None
    fields = None
    if made.output_size <= MAX_FIELDS_BYTES:
        fields = msgspec.json.decode(await deps.blobs.get(artifacts.result_key(context.task)))
    return review_requests.ungrounded_question(context.task, ungrounded, fields)


async def publish(deps: Deps, read: Read, task: EtlTask) -> str:
    """Publish the result under its key by filename, unless a later task has; returns the key of the result."""
    own, public = artifacts.result_key(task), artifacts.public_key_of(task)
    if await _find_later(read, task) is not None:
        return own
    await deps.blobs.copy(own, public)
    if (later := await _find_later(read, task)) is None:
        return public
    try:
        await deps.blobs.copy(artifacts.result_key(later), public)  # completed in the meantime: restore its result
    except BlobNotFound:  # it is already being removed
        return public
    return own


async def _find_later(read: Read, task: EtlTask) -> EtlTask | None:
    """The latest completed task of the same filename, if it is later than this one."""
    async with read() as tx:
        return await tasks.find_completed_by_name(
            tx, user_id=task.user_id, project_id=task.project_id, filename=task.filename, after=task.id
        )


def _result(context: EtlStageContext, made: ResultCommit, output_path: str) -> JsonObject:
    provider_task_id = context.provider_task_id
    return {
        "output_path": output_path,
        "output_size": made.output_size,
        "processing_time": context.seconds(),
        "provider_task_id": provider_task_id,
        "mineru_task_id": provider_task_id,
        "strategy": made.strategy,
        **({"usage": made.usage} if made.usage else {}),
    }


def _count_lookup(deps: Deps, phase: Phase, known: object) -> None:
    count = deps.metrics.count_miss if known is None else deps.metrics.count_hit
    count(lifecycle.STAGES[phase])


async def _attempt(deps: Deps, job: Job, phase: Phase, stage: Stage) -> Settle | None:
    """Run one attempt of a stage; nothing if the run has ended."""
    lease = HeldLease(db=deps.db, leases=deps.queue.leases, row_id=job.id, token=job.token or "")
    async with lease.read() as tx:
        row = await tasks.find_task(tx, job.payload["task_id"])
    if row is None or row.run != job.payload["run"] or row.is_final:
        return None
    try:
        context = await EtlStageContext.open(deps, lease, row, phase, attempt=job.attempts)
    except LeaseLost:
        _log_dropped(job, row)
        return None
    except RunMovedOn:
        return await _defer(deps, lease, row, RunTakenOver(task_id=row.id, run=row.run), phase)
    except PenstockError as error:
        return await _defer(deps, lease, row, error, phase)
    began = deps.db.clock.now()
    try:
        return await context.watched(stage(deps, context))
    except Exception as error:  # noqa: BLE001  (any error of a provider decides how the run ends)
        return await _failed(deps, job, lease, context, error, phase)
    finally:
        deps.metrics.count_stage(lifecycle.STAGES[phase], (deps.db.clock.now() - began).total_seconds())


async def _failed(
    deps: Deps, job: Job, lease: HeldLease, context: EtlStageContext, error: Exception, phase: Phase
) -> Settle | None:
    """How the run ends after this error; raises if another attempt is worthwhile."""
    task = context.task
    if context.is_lost:
        _log_dropped(job, task)
        return None
    if isinstance(error, RunMovedOn):
        error = RunTakenOver(task_id=task.id, run=task.run)
    error = folder_full_from(error) or error
    if isinstance(error, PenstockError) and error.internal_outage:
        return await _defer(deps, lease, task, error, phase)
    log.warning("%s attempt %d of %d: %r", job.id, job.attempts, job.max_attempts, error)
    if not worth_retrying(error) or job.attempts >= job.max_attempts:
        return _fail(deps, task, error, phase)
    try:
        await context.note_failure(lifecycle.failure_from(error, lifecycle.STAGES[phase]))
    except RunCancelled:
        _log_dropped(job, task)
        return None
    raise error


def _fail(deps: Deps, task: EtlTask, error: Exception, phase: Phase) -> Settle:
    failure = lifecycle.failure_from(error, lifecycle.STAGES[phase])

    async def fail(tx: Tx) -> None:
        await lifecycle.fail(tx, deps, task, failure)

    return fail


def _log_dropped(job: Job, task: EtlTask) -> None:
    log.info("%s stops: run %d of etl:%d was cancelled or taken over", job.id, task.run, task.id)


async def _defer(deps: Deps, lease: HeldLease, task: EtlTask, error: PenstockError, phase: Phase) -> Settle:
    """Defer the run by raising the error again; end it after ETL_PATIENCE_SECONDS without progress."""
    if not error.internal_outage or not await _is_deferred_too_long(deps, lease, task):
        raise error
    log.warning("run %d of etl:%d was deferred for too long: %s", task.run, task.id, error)
    return _fail(deps, task, error, phase)


async def _is_deferred_too_long(deps: Deps, lease: HeldLease, task: EtlTask) -> bool:
    """Whether a run that is deferred at no attempt has made no progress for `max_deferred_seconds`.

    The row stores since when, so neither a flushed Redis nor another worker restarts the count; only progress does.
    """
    now, known = deps.db.clock.now(), task.metadata.get(lifecycle.WAITS)
    if known is not None and task.progress <= known["progress"]:
        since = datetime.fromisoformat(known["since"])
        return now - since > timedelta(seconds=deps.config.max_deferred_seconds)
    async with lease.tx() as tx:
        if await tasks.claim_active(tx, task.id, run=task.run):
            row = await tasks.find_task(tx, task.id)  # another worker may have stored newer metadata
            waits = {"since": now.isoformat(), "progress": task.progress}
            await tasks.move_metadata(tx, task, {**(row or task).metadata, lifecycle.WAITS: waits})
    return False

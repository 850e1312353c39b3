"""Lifecycle of a run: submitted, its jobs, and its end. Shared by the verbs.

Where a transaction changes both a job and a task row, the job comes first, as it does when a worker settles. Any other
order could deadlock.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from penstock.access.domain import Caller
from penstock.documents.postprocessor import PostProcessor
from penstock.etl import papers, runs
from penstock.etl.deps import Deps
from penstock.etl.domain import CHINESE_TEXTS, ETL_TASK, EtlTask, Failure, Phase, Rule, Status
from penstock.etl.errors import (
    DefaultRuleMissing,
    EtlTaskNotFound,
    QueueFull,
    RuleNotFound,
    RuleRequired,
    UnsupportedMode,
)
from penstock.etl.store import memory, rules, tasks
from penstock.etl.store.memory import CachedStage
from penstock.kernel import queue
from penstock.kernel.db import Tx, advisory_lock
from penstock.kernel.errors import PenstockError, error_text, storable_text
from penstock.kernel.json_object import JsonObject
from penstock.kernel.machine import WrongState
from penstock.kernel.message import Event
from penstock.kernel.queue import Job, JobState, NewJob
from penstock.kernel.redact import redact
from penstock.kernel.transitions import MovedAlready, record
from penstock.messages import EtlTaskEnded, EtlTaskSubmitted

log = logging.getLogger(__name__)

MODULE = "etl"
KINDS = {Phase.OCR: "etl_ocr_job", Phase.POSTPROCESS: "etl_postprocess_job"}
STAGES = {Phase.OCR: "mineru", Phase.POSTPROCESS: "postprocess"}  # values of `error_stage`
LIVE_JOBS = frozenset({JobState.WAITING, JobState.RUNNING})
JOB_SECONDS = 7 * 86400.0  # a last resort: ETL_TASK_TIMEOUT ends a stalled stage much earlier
FULL_WAIT_SECONDS = 5.0
SERIALIZE_BELOW = 100  # free places: from here on submissions are counted under a lock, so the limit holds exactly
QUEUE_LOCK = 0x65746C71  # "etlq"
WAITS = "waits"  # metadata key of a deferred run: since when, and its progress at that time


def stage_job(deps: Deps, task: EtlTask, phase: Phase) -> NewJob:
    """The job of one stage of a run. Its payload holds ids only; the worker loads the rest."""
    config = deps.config
    return NewJob(
        kind=KINDS[phase],
        id=runs.job_id(task, phase),
        module=MODULE,
        payload={"task_id": task.id, "run": task.run},
        max_attempts=config.ocr_attempts if phase is Phase.OCR else config.postprocess_attempts,
        timeout_seconds=JOB_SECONDS,
    )


async def get_owned_task(tx: Tx, caller: Caller, task_id: int) -> EtlTask:
    """The row of a task that the caller can access, or `EtlTaskNotFound`."""
    row = await tasks.find_task(tx, task_id)
    if row is None or not can_access(caller, row):
        raise EtlTaskNotFound
    return row


def can_access(caller: Caller, task: EtlTask) -> bool:
    """Whether the caller owns the task or is an admin."""
    return caller.is_admin or task.user_id == caller.user_id


async def get_rule_for_task(deps: Deps, tx: Tx, caller: Caller, rule_id: int | None) -> Rule:
    """The rule for a new task of the caller: `rule_id`, or the default rule, whoever owns that one."""
    default_id = deps.config.default_rule_id
    chosen_id = default_id if rule_id is None else rule_id
    if chosen_id is None:
        raise RuleRequired
    rule = await rules.find_rule_for(tx, caller, chosen_id, default_id=default_id)
    if rule is None:
        raise DefaultRuleMissing(rule_id=chosen_id) if rule_id is None else RuleNotFound(rule_id=chosen_id)
    get_post_processor(deps, rule).identity(rule.body.extraction_rule)  # raises now rather than after an expensive OCR
    return rule


def get_post_processor(deps: Deps, rule: Rule) -> PostProcessor:
    """The post-processor of a rule's mode, or `UnsupportedMode`."""
    mode = rule.body.postprocess_mode
    if mode not in deps.shapers:
        raise UnsupportedMode(mode=mode)
    return deps.shapers[mode]


async def check_queue_capacity(deps: Deps, tx: Tx) -> None:
    """Raise `QueueFull` if ETL_QUEUE_SIZE tasks are active. Close to the limit, submissions are serialized."""
    size = deps.config.queue_size
    count = await tasks.count_active(tx, limit=size)
    if size - SERIALIZE_BELOW <= count < size:
        await advisory_lock(tx, QUEUE_LOCK)
        count = await tasks.count_active(tx, limit=size)
    if count >= size:
        raise QueueFull(most=size, wait_seconds=FULL_WAIT_SECONDS)


async def record_submitted(tx: Tx, task: EtlTask, *, before: Status | None, verb: str) -> None:
    """Record the transition of a newly opened run, and send its event and message."""
    await record(tx, ETL_TASK.name, [str(task.id)], before, task.status, verb)
    tx.tell(_event(task))
    tx.send(
        EtlTaskSubmitted(
            task_id=task.id,
            user_id=task.user_id,
            project_id=task.project_id,
            filename=task.filename,
            rule_id=task.rule_id,
            run=task.run,
        )
    )


async def enqueue_postprocess(deps: Deps, task: EtlTask, key: str | None, tx: Tx) -> None:
    """Enqueue the next stage in the transaction that ends this one, unless the run has ended."""
    if await tasks.claim_active(tx, task.id, run=task.run):
        await deps.queue.enqueue(tx, stage_job(deps, task, Phase.POSTPROCESS))
        await _insert_cache_entry(tx, task, Phase.OCR, key)


async def complete(deps: Deps, task: EtlTask, result: JsonObject, key: str | None, tx: Tx) -> None:
    """End a run as completed."""
    done = replace(task, progress=100, result=result, error=None)
    if await end_run(deps, done, "complete", tx) is not None:
        await _insert_cache_entry(tx, task, Phase.POSTPROCESS, key)


async def fail(deps: Deps, task: EtlTask, failure: Failure, tx: Tx) -> None:
    """End a run as failed. Its metadata is kept, so that a retry can start from it."""
    why = {"error_stage": failure.stage, "error_code": failure.code, "hint": failure.hint}
    chinese = {CHINESE_TEXTS: {"error": failure.message_zh, "hint": failure.hint_zh}} if failure.message_zh else {}
    failed = replace(task, result=None, error=failure.message, metadata={**task.metadata, **why, **chinese})
    await end_run(deps, failed, "fail", tx)


async def end_run(deps: Deps, task: EtlTask, verb: str, tx: Tx) -> EtlTask | None:
    """Move the row of an active run to its final status; None, and no change, if it has already ended."""
    before = replace(task, status=Status.PENDING)
    known = {name: value for name, value in task.metadata.items() if name != WAITS}
    after = replace(task, status=ETL_TASK.move(verb, Status.PENDING), updated_at=tx.now, metadata=known)
    if not await tasks.move_task(tx, before, after):
        log.info("etl:%d run %d has already ended; ignoring %s", task.id, task.run, verb)
        return None
    await record(tx, ETL_TASK.name, [str(task.id)], before.status, after.status, verb)
    tx.tell(_event(after))
    tx.send(_ended(after))
    tx.after_commit.append(partial(deps.metrics.count_ended, after.status))
    return after


async def is_deferred_too_long(deps: Deps, task: EtlTask) -> bool:
    """Whether a run that is deferred at no attempt has made no progress for `max_deferred_seconds`.

    The row stores since when, so neither a flushed Redis nor another worker restarts the count; only progress does.
    """
    now, known = deps.db.clock.now(), task.metadata.get(WAITS)
    if known is not None and task.progress <= known["progress"]:
        since = datetime.fromisoformat(known["since"])
        return now - since > timedelta(seconds=deps.config.max_deferred_seconds)
    async with deps.db.tx() as tx:
        if await tasks.claim_active(tx, task.id, run=task.run):
            row = await tasks.find_task(tx, task.id)  # another worker may have stored newer metadata
            waits = {"since": now.isoformat(), "progress": task.progress}
            await tasks.move_metadata(tx, task, {**(row or task).metadata, WAITS: waits})
    return False


async def list_jobs(tx: Tx, some: Sequence[EtlTask]) -> Mapping[str, Job]:
    """The jobs of these runs by id, in one consistent read."""
    ids = [runs.job_id(task, phase) for task in some for phase in KINDS]
    return {job.id: job for job in await queue.list_jobs(tx, ids)}


async def cancel_jobs(deps: Deps, tx: Tx, task: EtlTask) -> list[Job]:
    """Cancel the waiting jobs of a run; returns those that a worker is running."""
    running = []
    for known in (await list_jobs(tx, [task])).values():
        if known.state is JobState.WAITING:
            with suppress(WrongState, MovedAlready):  # a worker claimed it first
                await deps.queue.cancel(tx, known.id)
                continue
        if known.state in LIVE_JOBS:
            running.append(known)
    return running


def failure_from(error: Exception, stage: str) -> Failure:
    """The failure to store for an error. Unknown exceptions may contain anything, so secrets are redacted."""
    if isinstance(error, PenstockError):
        return Failure(
            code=error.code,
            message=error_text(error),
            stage=stage,
            hint=error.hint,
            message_zh=storable_text(error.in_chinese()),
            hint_zh=error.hint_zh,
        )
    return Failure(code=PenstockError.code, message=redact(error_text(error)), stage=stage)


async def _insert_cache_entry(tx: Tx, task: EtlTask, phase: Phase, key: str | None) -> None:
    """Let later tasks reuse this stage's artifacts; nothing if the stage has no cache key."""
    if key is None:
        return
    run = papers.run_of(task, phase)
    made = CachedStage(user_id=task.user_id, key=key, stage=phase, task_id=task.id, run=run, made_at=tx.now)
    await memory.insert_memory(tx, made)


def _event(task: EtlTask) -> Event:
    """The event for event streams: `etl_pending`, `etl_completed`, `etl_failed` or `etl_cancelled`."""
    data: JsonObject = {"task_id": task.id, "run": task.run, "status": task.status.value, "progress": task.progress}
    if task.error is not None:
        data |= {"error": task.error, "error_stage": task.metadata.get("error_stage")}
    return Event(topic=f"etl:{task.id}", kind=f"etl_{task.status}", audience=f"user:{task.user_id}", data=data)


def _ended(task: EtlTask) -> EtlTaskEnded:
    return EtlTaskEnded(
        task_id=task.id,
        user_id=task.user_id,
        project_id=task.project_id,
        filename=task.filename,
        run=task.run,
        status=task.status,
        output_path=(task.result or {}).get("output_path"),
        error=task.error,
        error_code=task.metadata.get("error_code"),
        error_stage=task.metadata.get("error_stage"),
    )

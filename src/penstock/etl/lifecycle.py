"""Lifecycle of a run: submitted, its jobs, and its end. Shared by the verbs.

Where a transaction changes both a job and a task row, the job comes first, as it does when a worker settles. Any other
order could deadlock.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from penstock.access.domain import Caller
from penstock.documents.postprocessor import PostProcessor
from penstock.etl import review_requests, run_state
from penstock.etl.deps import Deps
from penstock.etl.domain import CHINESE_TEXTS, ETL_TASK, EtlTask, Failure, Phase, Rule, Status
from penstock.etl.errors import (
    DefaultRuleMissing,
    EtlTaskNotFound,
    QueueFull,
    QueueShareFull,
    RuleNotFound,
    RuleRequired,
    UnsupportedMode,
)
from penstock.etl.review_requests import ReviewQuestion
from penstock.etl.store import rules, tasks
from penstock.kernel import queue
from penstock.kernel.db import Tx
from penstock.kernel.dialect.sql import advisory_lock
from penstock.kernel.errors import PenstockError, error_text, storable_text
from penstock.kernel.json_object import JsonObject
from penstock.kernel.message import Event
from penstock.kernel.queue import Job, JobState, NewJob
from penstock.kernel.redact import redact
from penstock.kernel.stages.run_handle import end_channel
from penstock.kernel.transitions import record
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
# Metadata of a failed task: why it failed.
ERROR_METADATA = frozenset({"error_stage", "error_code", "hint", CHINESE_TEXTS})
WAITS = "waits"  # metadata key of a deferred run: since when, and its progress at that time


def stage_job(deps: Deps, task: EtlTask, phase: Phase) -> NewJob:
    """The job of one stage of a run. Its payload holds ids only; the worker loads the rest."""
    config = deps.config
    return NewJob(
        kind=KINDS[phase],
        id=run_state.job_id(task, phase),
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


async def get_rule_for_task(tx: Tx, deps: Deps, caller: Caller, rule_id: int | None) -> Rule:
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
    if mode not in deps.post_processors:
        raise UnsupportedMode(mode=mode)
    return deps.post_processors[mode]


async def check_queue_capacity(tx: Tx, deps: Deps, caller: Caller, *, owner: int) -> None:
    """Raise `QueueFull` if ETL_QUEUE_SIZE tasks are active, or `QueueShareFull` if the owner of the new one has its
    share of them. An admin's call is not held to a share. Close to a limit, submissions are serialized.
    """
    size = deps.config.queue_size
    share = size if caller.is_admin else max(1, int(size * deps.config.queue_share))
    active, owned = await tasks.count_active_of(tx, owner, limit=size)
    if min(size - active, share - owned) in range(1, SERIALIZE_BELOW + 1):
        await advisory_lock(tx, QUEUE_LOCK)
        active, owned = await tasks.count_active_of(tx, owner, limit=size)
    if active >= size:
        raise QueueFull(most=size, wait_seconds=FULL_WAIT_SECONDS)
    if owned >= share:
        raise QueueShareFull(most=share, wait_seconds=FULL_WAIT_SECONDS)


async def record_submitted(tx: Tx, task: EtlTask, *, before: Status | None, verb: str) -> None:
    """Record the transition of a newly opened run, and send its event and message."""
    await record(tx, ETL_TASK.name, [str(task.id)], before, task.status, verb)
    tx.publish(_event(task))
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


async def complete(
    tx: Tx, deps: Deps, task: EtlTask, result: JsonObject, question: ReviewQuestion | None = None
) -> EtlTask | None:
    """End a run as completed, and ask for a review if there is a question; None if it has already ended."""
    done = replace(task, progress=100, result=result, error=None)
    return await _end_and_ask(tx, deps, done, "complete", question)


async def fail(tx: Tx, deps: Deps, task: EtlTask, failure: Failure) -> None:
    """End a run as failed. Its metadata is kept, so that a retry can start from it."""
    why = {"error_stage": failure.stage, "error_code": failure.code, "hint": failure.hint}
    chinese = {CHINESE_TEXTS: {"error": failure.message_zh, "hint": failure.hint_zh}} if failure.message_zh else {}
    failed = replace(task, result=None, error=failure.message, metadata={**task.metadata, **why, **chinese})
    await _end_and_ask(tx, deps, failed, "fail", review_requests.failure_question(failed))


async def _end_and_ask(tx: Tx, deps: Deps, task: EtlTask, verb: str, question: ReviewQuestion | None) -> EtlTask | None:
    request = None
    if question is not None:
        task, request = await review_requests.request(tx, task, question)
    ended = await end_run(tx, deps, task, verb)
    if ended is not None and request is not None:
        tx.send(request)
    return ended


async def end_run(tx: Tx, deps: Deps, task: EtlTask, verb: str) -> EtlTask | None:
    """Move the row of an active run to its final status; None, and no change, if it has already ended.

    The worker that settles its own job calls this, or someone who has revoked the run's jobs before.
    """
    before = replace(task, status=Status.PENDING)
    known = {name: value for name, value in task.metadata.items() if name != WAITS}
    after = replace(task, status=ETL_TASK.move(verb, Status.PENDING), updated_at=tx.now, metadata=known)
    if not await tasks.move_task(tx, before, after):
        log.info("etl:%d run %d has already ended; ignoring %s", task.id, task.run, verb)
        return None
    await record(tx, ETL_TASK.name, [str(task.id)], before.status, after.status, verb)
    tx.publish(_event(after))
    tx.send(_ended(after))
    tx.wake(end_channel(run_state.key(deps, after.id)))
    tx.after_commit.append(partial(deps.metrics.count_ended, after.status))
    return after


async def list_jobs(tx: Tx, some: Sequence[EtlTask]) -> Mapping[str, Job]:
    """The jobs of these runs by id, in one consistent read."""
    return {job.id: job for job in await queue.list_jobs(tx, [one for task in some for one in _job_ids(task)])}


async def revoke_jobs(tx: Tx, deps: Deps, task: EtlTask) -> list[Job]:
    """Revoke the jobs of a run before it is ended; returns those that waited or ran, as they were.

    A worker that ran one can then neither report progress nor settle: it stops at its next step.
    """
    return await deps.queue.revoke(tx, _job_ids(task))


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


def _job_ids(task: EtlTask) -> list[str]:
    return [run_state.job_id(task, phase) for phase in KINDS]


def _event(task: EtlTask) -> Event:
    """The event for event streams: `etl_pending`, `etl_completed`, `etl_failed` or `etl_cancelled`."""
    return _task_event(task, f"etl_{task.status}")


def reviewed_event(task: EtlTask) -> Event:
    """The event of an answered review."""
    return _task_event(task, "etl_reviewed")


def _task_event(task: EtlTask, kind: str) -> Event:
    data: JsonObject = {"task_id": task.id, "run": task.run, "status": task.status.value, "progress": task.progress}
    if task.error is not None:
        data |= {"error": task.error, "error_stage": task.metadata.get("error_stage")}
    return Event(topic=f"etl:{task.id}", kind=kind, audience=f"user:{task.user_id}", data=data)


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

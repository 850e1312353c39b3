"""What verbs share and what needs a transaction: the beginning and the end of a run, and the jobs in between.

Where a job and a row are both moved, the job comes first, as it does when a worker settles: in any other order two
transactions could wait for each other.
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
from penstock.etl.domain import ETL_TASK, IN_CHINESE, EtlTask, Failure, Phase, Rule, Status
from penstock.etl.errors import DefaultRuleMissing, EtlTaskNotFound, ModeUnknown, QueueFull, RuleNotFound, RuleRequired
from penstock.etl.store import memory, rules, tasks
from penstock.etl.store.memory import Remembered
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

ROOM = "etl"
KINDS = {Phase.OCR: "etl_ocr_job", Phase.POSTPROCESS: "etl_postprocess_job"}
STAGES = {Phase.OCR: "mineru", Phase.POSTPROCESS: "postprocess"}  # as `error_stage` names them
LIVE = frozenset({JobState.WAITING, JobState.RUNNING})
JOB_SECONDS = 7 * 86400.0  # ETL_TASK_TIMEOUT ends a stage that stands still; this only ends what never would
FULL_WAIT_SECONDS = 5.0
ONE_BY_ONE = 100  # places before the queue is full; more tasks than that are not submitted at the same moment
ROOM_LOCK = 0x65746C71  # "etlq"
WAITS = "waits"  # among the metadata of a run that is put off: since when, and how far it was then


def stage_job(tools: Deps, task: EtlTask, phase: Phase) -> NewJob:
    """The job of one stage of a run. It carries numbers only: what they mean is looked up when it runs."""
    terms = tools.terms
    return NewJob(
        kind=KINDS[phase],
        id=runs.job_id(task, phase),
        module=ROOM,
        payload={"task_id": task.id, "run": task.run},
        max_attempts=terms.ocr_attempts if phase is Phase.OCR else terms.postprocess_attempts,
        timeout_seconds=JOB_SECONDS,
    )


async def get_own(tx: Tx, caller: Caller, task_id: int) -> EtlTask:
    """The row of a task that this caller may see, or `EtlTaskNotFound`."""
    row = await tasks.find_task(tx, task_id)
    if row is None or not may_see(caller, row):
        raise EtlTaskNotFound
    return row


def may_see(caller: Caller, task: EtlTask) -> bool:
    """Whether a task is the caller's to see."""
    return caller.is_admin or task.user_id == caller.user_id


async def get_rule_for(tools: Deps, tx: Tx, caller: Caller, rule_id: int | None) -> Rule:
    """The rule of a caller's task that names this one, or none and so the default, whoever made that."""
    default_id = tools.terms.default_rule_id
    wanted = default_id if rule_id is None else rule_id
    if wanted is None:
        raise RuleRequired
    found = await rules.find_rule_for(tx, caller, wanted, default_id=default_id)
    if found is None:
        raise DefaultRuleMissing(rule_id=wanted) if rule_id is None else RuleNotFound(rule_id=wanted)
    shaper_of(tools, found).identity(found.body.asked)  # said now, and not when a document was read for nothing
    return found


def shaper_of(tools: Deps, rule: Rule) -> PostProcessor:
    """Who does what a rule asks for, or `ModeUnknown`."""
    mode = rule.body.postprocess_mode
    if mode not in tools.shapers:
        raise ModeUnknown(mode=mode)
    return tools.shapers[mode]


async def check_room(tools: Deps, tx: Tx) -> None:
    """Refuse one task more when as many are under way as may be. Where it gets close, they are let in one by one."""
    most = tools.terms.queue_size
    count = await tasks.count_under_way(tx, most=most)
    if most - ONE_BY_ONE <= count < most:
        await advisory_lock(tx, ROOM_LOCK)
        count = await tasks.count_under_way(tx, most=most)
    if count >= most:
        raise QueueFull(most=most, wait_seconds=FULL_WAIT_SECONDS)


async def say_begun(tx: Tx, task: EtlTask, *, before: Status | None, verb: str) -> None:
    """Write down and tell that a run waits for its first worker."""
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


async def hand_on(tools: Deps, task: EtlTask, key: str | None, tx: Tx) -> None:
    """Let the next stage begin, in the transaction that ends this one. Nothing begins when the run is over."""
    if await tasks.claim_under_way(tx, task.id, run=task.run):
        await tools.queue.enqueue(tx, stage_job(tools, task, Phase.POSTPROCESS))
        await _remember(tx, task, Phase.OCR, key)


async def complete(tools: Deps, task: EtlTask, result: JsonObject, key: str | None, tx: Tx) -> None:
    """End a run well."""
    done = replace(task, progress=100, result=result, error=None)
    if await end(tools, done, "complete", tx) is not None:
        await _remember(tx, task, Phase.POSTPROCESS, key)


async def fail(tools: Deps, task: EtlTask, failure: Failure, tx: Tx) -> None:
    """End a run badly. What is known of it is kept, for a retry to begin with."""
    why = {"error_stage": failure.stage, "error_code": failure.code, "hint": failure.hint}
    chinese = {IN_CHINESE: {"error": failure.message_zh, "hint": failure.hint_zh}} if failure.message_zh else {}
    failed = replace(task, result=None, error=failure.message, metadata={**task.metadata, **why, **chinese})
    await end(tools, failed, "fail", tx)


async def end(tools: Deps, task: EtlTask, verb: str, tx: Tx) -> EtlTask | None:
    """Move the row of a run that is under way to its end; none, and nothing is written, when it is over already."""
    before = replace(task, status=Status.PENDING)
    known = {name: value for name, value in task.metadata.items() if name != WAITS}
    after = replace(task, status=ETL_TASK.move(verb, Status.PENDING), updated_at=tx.now, metadata=known)
    if not await tasks.move_task(tx, before, after):
        log.info("etl:%d run %d is over already; it does not %s", task.id, task.run, verb)
        return None
    await record(tx, ETL_TASK.name, [str(task.id)], before.status, after.status, verb)
    tx.tell(_event(after))
    tx.send(_ended(after))
    tx.after_commit.append(partial(tools.meters.count_ended, after.status))
    return after


async def has_waited_too_long(tools: Deps, task: EtlTask) -> bool:
    """Whether a run that is put off now, at no cost, has made no progress for longer than anybody's patience.

    The row keeps since when, so neither a flushed Redis nor another worker begins the count anew: only progress does.
    """
    now, known = tools.db.clock.now(), task.metadata.get(WAITS)
    if known is not None and task.progress <= known["progress"]:
        since = datetime.fromisoformat(known["since"])
        return now - since > timedelta(seconds=tools.terms.most_patience_seconds)
    async with tools.db.tx() as tx:
        if await tasks.claim_under_way(tx, task.id, run=task.run):
            row = await tasks.find_task(tx, task.id)  # another worker may have kept more than is known here
            waits = {"since": now.isoformat(), "progress": task.progress}
            await tasks.move_pointers(tx, task, {**(row or task).metadata, WAITS: waits})
    return False


async def list_jobs(tx: Tx, some: Sequence[EtlTask]) -> Mapping[str, Job]:
    """The jobs of these runs, as one picture, by their ids."""
    ids = [runs.job_id(task, phase) for task in some for phase in KINDS]
    return {job.id: job for job in await queue.list_jobs(tx, ids)}


async def cancel_jobs(tools: Deps, tx: Tx, task: EtlTask) -> list[Job]:
    """Take back the jobs of a run that nobody has taken up; returns those that are being worked on."""
    running = []
    for known in (await list_jobs(tx, [task])).values():
        if known.state is JobState.WAITING:
            with suppress(WrongState, MovedAlready):  # a worker was first, and has it now
                await tools.queue.cancel(tx, known.id)
                continue
        if known.state in LIVE:
            running.append(known)
    return running


def failure_of(error: Exception, stage: str) -> Failure:
    """An error as a task tells of it. What cannot be named may say anything: secrets are blotted out."""
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


async def _remember(tx: Tx, task: EtlTask, phase: Phase, key: str | None) -> None:
    """Let later tasks find what this stage has made; nothing, where there is no telling what it was made of."""
    if key is None:
        return
    run = papers.run_of(task, phase)
    made = Remembered(user_id=task.user_id, key=key, stage=phase, task_id=task.id, run=run, made_at=tx.now)
    await memory.insert_memory(tx, made)


def _event(task: EtlTask) -> Event:
    """For those who watch the task."""
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

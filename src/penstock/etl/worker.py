"""Job handlers, periodic tasks and the outbox sink of the etl module: what opens its transactions besides the API."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from penstock.access.domain import Caller, Scope
from penstock.documents.postprocessor import ExtractionResult
from penstock.etl import (
    artifacts,
    dry_run,
    lifecycle,
    reconcile,
    remove,
    retry,
    review,
    review_answers,
    rule_files,
    rules,
    run_state,
    stages,
    upload,
)
from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask, Failure, Phase, Rule, Stage, Status
from penstock.etl.domain.review import (
    BadCorrections,
    CorrectionsFull,
    NewCorrection,
    ResultNotReviewable,
    ReviewBusy,
)
from penstock.etl.errors import DefaultRuleMissing, EtlTaskNotFound, EtlTaskRunning
from penstock.etl.retry import RetryOptions
from penstock.etl.review import ReviewChange, ReviewInput, ReviewState
from penstock.etl.rule_validation import validate_rule
from penstock.etl.run_state import TaskRun
from penstock.etl.store import tasks
from penstock.kernel.db import Tx
from penstock.kernel.errors import PenstockError
from penstock.kernel.job_dispatch import ArqFunction
from penstock.kernel.lease_renewer import Work
from penstock.kernel.maintenance import repeat_until_zero
from penstock.kernel.message import Message
from penstock.kernel.outbox import OutboxMessage
from penstock.kernel.queue import Job, JobState
from penstock.kernel.relay import MessageHandler, SinkResult
from penstock.kernel.retry import Backoff, retry_while_unavailable
from penstock.kernel.runstate import RunSnapshot
from penstock.kernel.scheduler import Condition, PeriodicTask
from penstock.kernel.stages.reconciler import Reconciler, ReconcileStep, StaleWatch
from penstock.kernel.workers import JobHandler, Settle
from penstock.messages import EtlTaskEnded, EtlTaskRemoved, EtlTaskSubmitted, ReviewAnswered

log = logging.getLogger(__name__)

MODULE = lifecycle.MODULE
RECONCILE_SECONDS = 5
REMOVE_SECONDS = 60
CLEAN_SECONDS = 3600
ANSWERED = "review"  # strategy of a result that a reviewer gave
RECONCILER = "reconciler"
ARQ_CALLER = "arq"  # the actor of a retry that an ARQ job of another program asks for
CLEANER = "timekeeper"  # both are stored in state transitions and the audit log, so the words stay


def handlers(deps: Deps) -> Mapping[str, JobHandler]:
    """The handler of each job kind."""
    return {
        lifecycle.KINDS[Phase.OCR]: partial(stages.ocr, deps),
        lifecycle.KINDS[Phase.POSTPROCESS]: partial(stages.postprocess, deps),
        review_answers.ANSWER_JOB: partial(apply_answer, deps),
        remove.REMOVE: partial(remove.remove_objects, deps),
    }


def message_handlers(deps: Deps) -> Mapping[type[Message], Sequence[MessageHandler]]:
    """The handlers of messages from other modules."""

    async def on_answered(tx: Tx, answered: ReviewAnswered) -> None:
        await review_answers.accept(tx, deps, answered)

    return {ReviewAnswered: [on_answered]}


def retries(deps: Deps) -> Mapping[str, Backoff]:
    """The retry backoff of each job kind."""
    config = deps.config
    return {
        lifecycle.KINDS[Phase.OCR]: config.ocr_backoff,
        lifecycle.KINDS[Phase.POSTPROCESS]: config.postprocess_backoff,
    }


def arq_functions(deps: Deps) -> Mapping[str, ArqFunction]:
    """The stages as functions of an ARQ queue: `etl_ocr_job(task_id)` and `etl_postprocess_job(task_id)`."""
    return {
        kind: ArqFunction(arguments=("task_id",), start=partial(start_stage, deps, phase))
        for phase, kind in lifecycle.KINDS.items()
    }


async def start_stage(deps: Deps, phase: Phase, *, task_id: int) -> str:
    """Run a stage because another program enqueued its ARQ function; returns the id of the job.

    A task that has ended is retried from the stage. A stage that waits already has its job.
    """
    async with deps.db.read() as tx:
        task = await tasks.find_task(tx, task_id)
        jobs = {} if task is None else await lifecycle.list_jobs(tx, [task])
    if task is None:
        raise EtlTaskNotFound(task_id=task_id)
    if not task.is_final:
        job = jobs.get(run_state.job_id(task, phase))
        if job is None or job.state is not JobState.WAITING:
            raise EtlTaskRunning(task_id=task_id, status=task.status.value)
        return job.id
    options = RetryOptions(from_stage=Stage(lifecycle.STAGES[phase]))
    first = await retry.find_first_phase(deps.blobs, task, options)
    owner = Caller(name=ARQ_CALLER, user_id=task.user_id, scope=Scope.WRITE, key_id=ARQ_CALLER)
    async with deps.db.tx(actor=owner.name) as tx:
        next_run = await retry.retry_task(tx, deps, owner, task, first, options)
    await run_state.show_now(deps, next_run)
    return run_state.job_id(next_run, first)


def periodic_tasks(deps: Deps) -> list[PeriodicTask]:
    """The module's periodic tasks."""
    reconciler = build_reconciler(deps)
    # Only a turn of the reconciler can tell whether run state outside the database needs one.
    needed: Condition | None = reconcile.is_any_active if deps.runs.in_rows else None
    return [
        PeriodicTask(name="reconcile-etl", every_seconds=RECONCILE_SECONDS, run=reconciler.run, needed=needed),
        PeriodicTask(name="forget-etl-tasks", every_seconds=REMOVE_SECONDS, run=partial(remove_expired, deps)),
        PeriodicTask(name="forget-etl-rules", every_seconds=CLEAN_SECONDS, run=partial(delete_unused_rules, deps)),
        PeriodicTask(name="sweep-etl-uploads", every_seconds=CLEAN_SECONDS, run=partial(sweep_uploads, deps)),
        PeriodicTask(name="sweep-etl-tries", every_seconds=CLEAN_SECONDS, run=partial(dry_run.delete_leftovers, deps)),
    ]


async def apply_answer(deps: Deps, job: Job) -> Settle | None:
    """Check the answer to a review request; it is written in the transaction that ends the job."""
    request, by, answer = (job.payload[name] for name in ("request", "by", "result"))
    async with deps.db.read() as tx:
        found = await review_answers.find_waiting(tx, job.payload["task_id"], request)
    if found is None:
        return None
    task, rule = found
    try:
        if task.status is Status.FAILED:
            return await _complete_failed(deps, task, rule, by, answer)
        return await _correct(deps, task, by, answer)
    except (BadCorrections, CorrectionsFull, ResultNotReviewable) as error:
        problems = error.problems if isinstance(error, BadCorrections) else ()
        errors = [f"{one.where}: {one.reason}" for one in problems] or [str(error)]

        async def refuse(tx: Tx) -> None:
            await review_answers.refuse(tx, task, rule, errors)

        return refuse


async def _correct(deps: Deps, task: EtlTask, by: str, answer: Any) -> Settle:
    """Keep the differences between the result and the answer as corrections of a completed task."""
    caller = review_answers.reviewer(task, by)
    async with deps.db.read() as tx:
        state = await review.load(tx, caller, task.id)
    result = msgspec.json.decode(await review.apply_active(deps, task, state.active))
    given = ReviewInput(corrections=review_answers.corrections_between(result, answer), reviewed=True)
    review.validate_input(given)
    change = review.plan_change(caller, state, given) or ReviewChange(new=(), superseded=set())
    checked = await review.check_change(deps, state, change)

    async def settle(tx: Tx) -> None:
        tx = replace(tx, actor=by)
        if (locked := await review_answers.claim_waiting(tx, task)) is None:
            return
        if await review.save(tx, caller, state, given, change, checked) is None:
            raise ReviewBusy(task_id=task.id)  # corrected by others in between: the job is retried
        await review_answers.finish(tx, locked, by=by)

    return settle


async def _complete_failed(deps: Deps, task: EtlTask, rule: Rule, by: str, answer: Any) -> Settle:
    """Make the answer the result of a failed task, which is completed with it."""
    caller, state = review_answers.reviewer(task, by), ReviewState(task=task, rule=rule, review=None, active=())
    whole = NewCorrection(pointer="", value=msgspec.json.encode(answer).decode())
    given, change = ReviewInput(corrections=[whole], reviewed=True), ReviewChange(new=[whole], superseded=set())
    checked = await review.check_answer(deps, state, whole)
    made = await artifacts.commit_result(deps.blobs, task, ExtractionResult(value=answer, strategy=ANSWERED))
    output_path = await stages.publish(deps, deps.db.read, task)
    result = {"output_path": output_path, "output_size": made.output_size, "strategy": ANSWERED}

    async def settle(tx: Tx) -> None:
        tx = replace(tx, actor=by)
        if (locked := await review_answers.claim_waiting(tx, task)) is None:
            return
        done = await review_answers.complete_failed(tx, deps, locked, result)
        await review.save(tx, caller, replace(state, task=done), given, change, checked)
        await review_answers.finish(tx, done, by=by)

    return settle


def build_reconciler(deps: Deps) -> Reconciler:
    """The reconciler of etl tasks."""
    watch = StaleWatch(timeout_seconds=deps.config.task_timeout)
    return Reconciler(deps.runs, ReconciledTasks(deps, watch), watch, statuses=reconcile.RUNNING)


async def remove_expired(deps: Deps) -> None:
    """Remove tasks and cache entries older than ETL_HISTORY_DAYS."""

    async def some_tasks() -> int:
        async with deps.db.tx(actor=CLEANER) as tx:
            return await remove.remove_expired_tasks(tx, deps)

    async def some_cache_entries() -> int:
        async with deps.db.tx(actor=CLEANER) as tx:
            return await remove.delete_expired_cache(tx, deps)

    await repeat_until_zero(some_tasks)
    await repeat_until_zero(some_cache_entries)


async def sweep_uploads(deps: Deps) -> None:
    """Delete uploaded documents that have had no task for hours."""

    async def some_documents() -> int:
        async with deps.db.tx(actor=CLEANER) as tx:
            old, unused = await upload.claim_orphans(tx)
        for key in unused:
            await deps.blobs.delete(key)
        async with deps.db.tx(actor=CLEANER) as tx:
            await tasks.delete_uploads(tx, old)
        if unused:
            log.info("deleted %d uploaded documents without a task", len(unused))
        return len(old)

    await repeat_until_zero(some_documents)


async def delete_unused_rules(deps: Deps) -> None:
    """Delete rules for good that were deleted and that no task uses any more."""

    async def some_rules() -> int:
        async with deps.db.tx() as tx:
            return await rules.delete_unused_rules(tx)

    await repeat_until_zero(some_rules)


async def load_rule_files(deps: Deps, folder: Path) -> int:
    """Load system rules from the files of a folder; returns how many are new or changed.

    An invalid file is logged and skipped. A deleted file leaves its rule in place.
    """
    found = await asyncio.to_thread(rule_files.list_files, folder)
    changed = 0
    for path in found:
        try:
            body = await asyncio.to_thread(rule_files.read_rule, path)
            await validate_rule(body, deps.sandbox)
            async with deps.db.tx() as tx:
                changed += await rules.load_rule(tx, body, file=path.name)
        except (PenstockError, OSError) as error:
            log.warning("skipping rule file %s: %s", path.name, error)
    async with deps.db.read() as tx:
        known = await rules.list_files(tx)
    if gone := sorted(set(known) - {path.name for path in found}):
        log.info("keeping rules whose files were deleted: %s", ", ".join(gone))
    return changed


async def check_default_rule(deps: Deps) -> None:
    """Log an error at start if the default rule does not exist, since tasks without a rule_id will be rejected."""
    async with deps.db.read() as tx:
        missing_id = await rules.find_missing_default(tx, deps)
    if missing_id is not None:
        log.error("%s", DefaultRuleMissing(rule_id=missing_id))


async def import_rules(deps: Deps) -> None:
    """Import the rules in files at start, or as soon as the database is available."""

    async def read_files() -> None:
        if deps.config.rules_folder is not None:
            await load_rule_files(deps, deps.config.rules_folder)
        await check_default_rule(deps)

    await retry_while_unavailable(deps.db.clock, read_files, warning="Rules in files are not imported yet")


class RunStateSink:
    """Copies task rows to run state. It reads the row each time, so late and duplicate messages are harmless."""

    channels: Collection[str] = frozenset(
        message.__name__ for message in (EtlTaskSubmitted, EtlTaskEnded, EtlTaskRemoved)
    )

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    async def deliver_many(self, messages: Sequence[OutboxMessage]) -> SinkResult:
        """Put the tasks' current rows, each once."""
        runs_by_task = {message.payload["task_id"]: message.payload["run"] for message in messages}
        async with self._deps.db.read() as tx:
            rows = {task_id: await tasks.find_task(tx, task_id) for task_id in runs_by_task}
        for task_id, row in rows.items():
            if row is None:
                await run_state.show_removed(self._deps, task_id, run=runs_by_task[task_id])
            else:
                await run_state.show(self._deps, row)
        return SinkResult()


class ReconciledTasks:
    """Etl tasks for the kernel's reconciler; what is checked is in `reconcile.py`."""

    def __init__(self, deps: Deps, watch: StaleWatch) -> None:
        self.key_prefix = run_state.key(deps, 0)[:-1]
        self._deps = deps
        self._watch = watch

    async def check_rows(self, *, after: int, limit: int) -> Sequence[ReconcileStep]:
        """A step for each active row: it has a job, and run state shows it."""
        async with self._deps.db.read() as tx:
            rows = await tasks.list_active(tx, after=after, limit=limit)
            jobs = await lifecycle.list_jobs(tx, rows)
        shown = await run_state.list_by_ids(self._deps, [row.id for row in rows])
        return [self._step(row.id, row.id, partial(self._check_row, row, shown.get(row.id), jobs)) for row in rows]

    async def check_snapshots(self, snapshots: Sequence[RunSnapshot]) -> Sequence[ReconcileStep]:
        """A step for each readable snapshot: its row is active, and its worker makes progress."""
        found = [(one, run) for one in snapshots if (run := run_state.decode(one)) is not None]
        async with self._deps.db.read() as tx:
            rows = {row.id: row for row in await tasks.list_by_ids(tx, [run.task.id for _, run in found])}
            jobs = await lifecycle.list_jobs(tx, list(rows.values()))
        return [
            self._step(run.task.id, one.key, partial(self._check_snapshot, one, run, rows.get(run.task.id), jobs))
            for one, run in found
        ]

    @staticmethod
    def _step(task_id: int, position: int | str, work: Work) -> ReconcileStep:
        return ReconcileStep(name=f"etl:{task_id}", position=position, work=work)

    async def _check_row(self, row: EtlTask, run: TaskRun | None, jobs: Mapping[str, Job]) -> None:
        mine = reconcile.jobs_of(row, jobs)
        if not any(job.state in lifecycle.LIVE_JOBS for job in mine.values()):
            await self._ensure_job(row)
        if run is None or run.task.run < row.run:
            await run_state.show(self._deps, row, phase=Phase.POSTPROCESS if Phase.POSTPROCESS in mine else None)

    async def _ensure_job(self, row: EtlTask) -> None:
        is_read = await artifacts.find_ocr(self._deps.blobs, row) is not None
        async with self._deps.db.tx(actor=RECONCILER) as tx:
            phase = Phase.POSTPROCESS if is_read else Phase.OCR
            failure = await reconcile.ensure_job(tx, self._deps, row, phase)
        if failure is not None:
            await self._fail(row, failure)

    async def _check_snapshot(
        self, snapshot: RunSnapshot, run: TaskRun, row: EtlTask | None, jobs: Mapping[str, Job]
    ) -> None:
        if row is None:
            await run_state.show_removed(self._deps, run.task.id, run=run.task.run)
        elif not run.task.is_same_task(row):
            log.warning("run state of etl:%d belongs to a task of another database", row.id)
        elif row.is_final or row.run > run.task.run:
            await run_state.show(self._deps, row)
        elif reconcile.is_stale(self._watch, snapshot, run, jobs, self._deps.db.clock.now()):
            await self._fail(row, reconcile.lost_failure())

    async def _fail(self, row: EtlTask, failure: Failure) -> None:
        run = await run_state.find(self._deps, row.id)
        async with self._deps.db.tx(actor=RECONCILER) as tx:
            await reconcile.fail_lost(tx, self._deps, row, run, failure)

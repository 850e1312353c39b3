"""Reconcile: every active task has a run state entry and a job, whatever was lost, and none stays running forever.

Each turn reads one page of active rows and one page of each running status in run state, and continues there on the
next turn. Another process starts from the beginning.

- A row without run state (a flushed Redis, an expired entry) is put again.
- A run without a job gets one, starting from its latest artifact. If its job has failed, the run fails too: its workers
  were killed each time, and another one would be as well.
- A run is stale, and fails, if nobody has updated it for ETL_TASK_TIMEOUT and half a minute, not even while it was
  watched, and its job does not wait for a worker.
- An entry that is still running although its row has ended is updated.

A task that cannot be reconciled does not block the others. After many failures in a row the turn ends, and the next one
continues behind them.
"""

import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, or_

from penstock.etl import lifecycle, papers, runs
from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask, Failure, Phase, Status
from penstock.etl.errors import StageStale
from penstock.etl.runs import Standing
from penstock.etl.store import tasks
from penstock.kernel.db import Tx
from penstock.kernel.queue import Job, JobState
from penstock.kernel.runstate import is_any_with
from penstock.kernel.scheduler import Condition

log = logging.getLogger(__name__)

PAGE = 200
MAX_FAILURES = 10  # per page: then something larger is wrong
STALE_MARGIN = timedelta(seconds=30)  # for the worker itself to report the timeout
# How long a stale run is watched before it fails. After an outage of Redis every running task looks old until its
# worker reports the next page.
WATCHED = timedelta(seconds=20)
RUNNING = (Status.PENDING, Status.MINERU_PARSING, Status.LLM_PROCESSING)
ACTOR = "reconciler"
STAGE = "stale"


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A run without progress: its order, since when, and in which walk through which status it was seen."""

    order: int
    since: datetime
    status: Status
    walk: int


def is_any_active(_since: ColumnElement[datetime], now: ColumnElement[datetime]) -> ColumnElement[bool]:
    """A condition: there is an active row, or an entry of a running status."""
    return or_(tasks.is_any_active(), *(is_any_with(status, now) for status in RUNNING))


class EtlReconciler:
    """Walks through active tasks."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._row = 0
        self._keys: dict[Status, str] = {}
        self._walks = dict.fromkeys(RUNNING, 0)
        self._suspects: dict[int, Suspect] = {}  # by task

    @property
    def needed(self) -> Condition | None:
        """A condition for having work; None if run state is not in the database, since only a turn can tell."""
        return is_any_active if self._deps.runs.in_rows else None

    async def run(self) -> None:
        """Run one turn."""
        await self._walk_rows()
        for status in RUNNING:
            await self._walk_entries(status)

    async def _walk_rows(self) -> None:
        async with self._deps.db.read() as tx:
            rows = await tasks.list_active(tx, after=self._row, limit=PAGE)
            jobs = await lifecycle.list_jobs(tx, rows)
        self._row = rows[-1].id if len(rows) == PAGE else 0
        shown = await runs.list_these(self._deps, [row.id for row in rows])
        failures = 0
        for row in rows:
            failures += not await _went_well(row.id, self._tend(row, shown.get(row.id), jobs))
            if failures == MAX_FAILURES:
                self._row = row.id
                return

    async def _tend(self, row: EtlTask, standing: Standing | None, jobs: Mapping[str, Job]) -> None:
        mine = {phase: jobs[job_id] for phase in lifecycle.KINDS if (job_id := runs.job_id(row, phase)) in jobs}
        if not any(job.state in lifecycle.LIVE_JOBS for job in mine.values()):
            await self._drive(row)
        if standing is None or standing.task.run < row.run:
            await runs.show(self._deps, row, phase=Phase.POSTPROCESS if Phase.POSTPROCESS in mine else None)

    async def _walk_entries(self, status: Status) -> None:
        entries = await self._deps.runs.list_by_status(status, after=self._keys.get(status, ""), limit=PAGE)
        self._keys[status] = entries[-1].key if len(entries) == PAGE else ""
        prefix = runs.key(self._deps, 0)[:-1]
        mine = [entry for entry in entries if entry.key.startswith(prefix)]
        standings = [standing for entry in mine if (standing := runs.standing_of(entry)) is not None]
        if standings and (stopped := await self._judge_all(standings)) is not None:
            self._keys[status] = runs.key(self._deps, stopped)
        elif not self._keys[status]:
            self._end_walk(status)

    async def _judge_all(self, standings: Sequence[Standing]) -> int | None:
        """Returns the id of the task at which it gave up, if it did."""
        async with self._deps.db.read() as tx:
            rows = {row.id: row for row in await tasks.list_by_ids(tx, [one.task.id for one in standings])}
            jobs = await lifecycle.list_jobs(tx, list(rows.values()))
            now = tx.now
        failures = 0
        for standing in standings:
            judged = self._judge(standing, rows.get(standing.task.id), jobs, now)
            failures += not await _went_well(standing.task.id, judged)
            if failures == MAX_FAILURES:
                return standing.task.id
        return None

    async def _judge(self, standing: Standing, row: EtlTask | None, jobs: Mapping[str, Job], now: datetime) -> None:
        if row is None:
            await runs.show_removed(self._deps, standing.task.id, run=standing.task.run)
        elif not standing.task.is_same_task(row):
            log.warning("run state of etl:%d belongs to a task of another database", row.id)
        elif row.is_final or row.run > standing.task.run:
            await runs.show(self._deps, row)
        elif standing.task.status is not Status.PENDING and self._is_stale(standing, jobs, now):
            await self._fail(row, _lost())

    def _is_stale(self, standing: Standing, jobs: Mapping[str, Job], now: datetime) -> bool:
        """Whether a run makes no progress while its job is leased. Waiting for a worker or a retry is not stale."""
        silence = now - standing.task.updated_at - timedelta(seconds=self._deps.config.task_timeout)
        mine = [jobs.get(runs.job_id(standing.task, phase)) for phase in lifecycle.KINDS]
        waits = any(job is not None and job.state is JobState.WAITING for job in mine)
        if waits or silence <= timedelta():
            self._suspects.pop(standing.task.id, None)
            return False
        known, status = self._suspects.get(standing.task.id), standing.task.status
        since = known.since if known is not None and known.order == standing.order else now
        met = Suspect(order=standing.order, since=since, status=status, walk=self._walks[status])
        self._suspects[standing.task.id] = met
        return silence > STALE_MARGIN and now - since >= WATCHED

    def _end_walk(self, status: Status) -> None:
        """Drop suspects that were not seen on the whole walk: they have ended or progressed."""
        walk = self._walks[status]
        kept = {task: one for task, one in self._suspects.items() if one.status is not status or one.walk == walk}
        self._suspects, self._walks[status] = kept, walk + 1

    async def _drive(self, row: EtlTask) -> None:
        """Enqueue a job for a run that has none, or fail the run if its job has ended without ending it."""
        read = await papers.find_reading(self._deps.blobs, row) is not None
        phase = Phase.POSTPROCESS if read else Phase.OCR
        async with self._deps.db.tx(actor=ACTOR) as tx:
            jobs = await lifecycle.list_jobs(tx, [row])
            if any(job.state in lifecycle.LIVE_JOBS for job in jobs.values()):
                return
            job = jobs.get(runs.job_id(row, phase))
            if job is None or job.state is JobState.CANCELLED:
                await self._give_job(tx, row, phase, job)
                return
        await self._fail(row, _lost(job))

    async def _give_job(self, tx: Tx, row: EtlTask, phase: Phase, cancelled: Job | None) -> None:
        if not await tasks.claim_active(tx, row.id, run=row.run):
            return
        if cancelled is None:
            await self._deps.queue.enqueue(tx, lifecycle.stage_job(self._deps, row, phase))
        else:
            await self._deps.queue.revive(tx, cancelled.id)

    async def _fail(self, row: EtlTask, failure: Failure) -> None:
        shown = await runs.look(self._deps, row.id)
        if shown is not None and shown.task.run == row.run and shown.task.is_same_task(row) and not shown.task.is_final:
            row = replace(row, progress=shown.task.progress, metadata={**row.metadata, **shown.task.metadata})
        async with self._deps.db.tx(actor=ACTOR) as tx:
            await lifecycle.fail(self._deps, row, failure, tx)


async def _went_well(task_id: int, work: Awaitable[None]) -> bool:
    try:
        await work
    except Exception as error:  # noqa: BLE001  (an error of one task must not block the others)
        log.warning("cannot reconcile etl:%d: %r", task_id, error)
        return False
    return True


def _lost(job: Job | None = None) -> Failure:
    """Why a run failed: the error of its job, or that its worker stopped responding."""
    error = StageStale()
    if job is not None and job.error:
        return Failure(code=job.error_code or error.code, message=job.error, stage=STAGE, hint=error.hint)
    return lifecycle.failure_from(error, STAGE)

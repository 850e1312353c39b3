"""Reconcile: every task that is not over is shown and has a job, whatever was lost; nothing stays running for ever.

Each turn looks at one page of rows that are under way and at one page of every running status in run state, and
remembers how far it came, so that any process can take over from the beginning.

- A row without run state (a flushed Redis, an entry whose time was over) is put again.
- A run without a job gets one, from the furthest paper that is found. When its job has failed, the run has too: its
  workers died each time, and one more would die as well.
- A run that nobody has moved for ETL_TASK_TIMEOUT and half a minute, not even while it was watched, and whose job does
  not wait, is stale.
- An entry that still runs while its row is over learns the end.

One task that cannot be looked at does not keep the others from it; when many fail in a row, the turn is over, and the
next goes on behind them.
"""

import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, or_

from penstock.etl import moves, papers, runs
from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask, Failure, Phase, Status
from penstock.etl.errors import StageLost
from penstock.etl.runs import Standing
from penstock.etl.store import tasks
from penstock.kernel.db import Tx
from penstock.kernel.queue import Job, JobState
from penstock.kernel.runstate import is_any_with
from penstock.kernel.scheduler import Condition

log = logging.getLogger(__name__)

PAGE = 200
MOST_FAILURES = 10  # of one page: then something larger is wrong
STALE_MARGIN = timedelta(seconds=30)  # for the worker itself to say that it timed out
# How long one is watched before it is given up. After an outage of Redis everything looks old that still runs, until
# each worker has shown its next page.
WATCHED = timedelta(seconds=20)
RUNNING = (Status.PENDING, Status.MINERU_PARSING, Status.LLM_PROCESSING)
ACTOR = "reconciler"
STAGE = "stale"


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A run that stands still: at which order since when, and in which walk through which status it was met."""

    order: int
    since: datetime
    status: Status
    walk: int


def is_any_under_way(_since: ColumnElement[datetime], now: ColumnElement[datetime]) -> ColumnElement[bool]:
    """Whether a row is under way, or an entry of a running status is there."""
    return or_(tasks.is_any_under_way(), *(is_any_with(status, now) for status in RUNNING))


class Reconciler:
    """Walks through what is under way."""

    def __init__(self, tools: Deps) -> None:
        self._tools = tools
        self._row = 0
        self._keys: dict[Status, str] = {}
        self._walks = dict.fromkeys(RUNNING, 0)
        self._suspects: dict[int, Suspect] = {}  # by task

    @property
    def needed(self) -> Condition | None:
        """Whether there is anything to do. Where run state lies elsewhere than the rows, only a turn can tell."""
        return is_any_under_way if self._tools.runs.in_rows else None

    async def run(self) -> None:
        """Take one turn."""
        await self._walk_rows()
        for status in RUNNING:
            await self._walk_entries(status)

    async def _walk_rows(self) -> None:
        async with self._tools.db.read() as tx:
            rows = await tasks.list_under_way(tx, after=self._row, limit=PAGE)
            jobs = await moves.list_jobs(tx, rows)
        self._row = rows[-1].id if len(rows) == PAGE else 0
        shown = await runs.list_these(self._tools, [row.id for row in rows])
        failures = 0
        for row in rows:
            failures += not await _went_well(row.id, self._tend(row, shown.get(row.id), jobs))
            if failures == MOST_FAILURES:
                self._row = row.id
                return

    async def _tend(self, row: EtlTask, standing: Standing | None, jobs: Mapping[str, Job]) -> None:
        mine = {phase: jobs[job_id] for phase in moves.KINDS if (job_id := runs.job_id(row, phase)) in jobs}
        if not any(job.state in moves.LIVE for job in mine.values()):
            await self._drive(row)
        if standing is None or standing.task.run < row.run:
            await runs.show(self._tools, row, phase=Phase.POSTPROCESS if Phase.POSTPROCESS in mine else None)

    async def _walk_entries(self, status: Status) -> None:
        entries = await self._tools.runs.list_by_status(status, after=self._keys.get(status, ""), limit=PAGE)
        self._keys[status] = entries[-1].key if len(entries) == PAGE else ""
        prefix = runs.key(self._tools, 0)[:-1]
        mine = [entry for entry in entries if entry.key.startswith(prefix)]
        standings = [standing for entry in mine if (standing := runs.standing_of(entry)) is not None]
        if standings and (stopped := await self._judge_all(standings)) is not None:
            self._keys[status] = runs.key(self._tools, stopped)
        elif not self._keys[status]:
            self._end_walk(status)

    async def _judge_all(self, standings: Sequence[Standing]) -> int | None:
        """Returns the task at which it was given up, if it was."""
        async with self._tools.db.read() as tx:
            rows = {row.id: row for row in await tasks.list_these(tx, [one.task.id for one in standings])}
            jobs = await moves.list_jobs(tx, list(rows.values()))
            now = tx.now
        failures = 0
        for standing in standings:
            judged = self._judge(standing, rows.get(standing.task.id), jobs, now)
            failures += not await _went_well(standing.task.id, judged)
            if failures == MOST_FAILURES:
                return standing.task.id
        return None

    async def _judge(self, standing: Standing, row: EtlTask | None, jobs: Mapping[str, Job], now: datetime) -> None:
        if row is None:
            await runs.show_removed(self._tools, standing.task.id, run=standing.task.run)
        elif not standing.task.is_same(row):
            log.warning("run state of etl:%d is that of another database's task", row.id)
        elif row.is_over or row.run > standing.task.run:
            await runs.show(self._tools, row)
        elif standing.task.status is not Status.PENDING and self._is_stale(standing, jobs, now):
            await self._fail(row, _lost())

    def _is_stale(self, standing: Standing, jobs: Mapping[str, Job], now: datetime) -> bool:
        """Whether it stands still. One that waits for its turn, or for its next attempt, may take its time."""
        silence = now - standing.task.updated_at - timedelta(seconds=self._tools.terms.task_timeout)
        mine = [jobs.get(runs.job_id(standing.task, phase)) for phase in moves.KINDS]
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
        """Forget suspects that were not met on the whole walk, however long it took: they have ended or gone on."""
        walk = self._walks[status]
        kept = {task: one for task, one in self._suspects.items() if one.status is not status or one.walk == walk}
        self._suspects, self._walks[status] = kept, walk + 1

    async def _drive(self, row: EtlTask) -> None:
        """Give a run a job that has none, or end it when its job is over without having ended it."""
        read = await papers.find_reading(self._tools.blobs, row) is not None
        phase = Phase.POSTPROCESS if read else Phase.OCR
        async with self._tools.db.tx(actor=ACTOR) as tx:
            jobs = await moves.list_jobs(tx, [row])
            if any(job.state in moves.LIVE for job in jobs.values()):
                return
            job = jobs.get(runs.job_id(row, phase))
            if job is None or job.state is JobState.CANCELLED:
                await self._give_job(tx, row, phase, job)
                return
        await self._fail(row, _lost(job))

    async def _give_job(self, tx: Tx, row: EtlTask, phase: Phase, cancelled: Job | None) -> None:
        if not await tasks.claim_under_way(tx, row.id, run=row.run):
            return
        if cancelled is None:
            await self._tools.queue.enqueue(tx, moves.stage_job(self._tools, row, phase))
        else:
            await self._tools.queue.revive(tx, cancelled.id)

    async def _fail(self, row: EtlTask, failure: Failure) -> None:
        shown = await runs.look(self._tools, row.id)
        if shown is not None and shown.task.run == row.run and shown.task.is_same(row) and not shown.task.is_over:
            row = replace(row, progress=shown.task.progress, metadata={**row.metadata, **shown.task.metadata})
        async with self._tools.db.tx(actor=ACTOR) as tx:
            await moves.fail(self._tools, row, failure, tx)


async def _went_well(task_id: int, work: Awaitable[None]) -> bool:
    try:
        await work
    except Exception as error:  # noqa: BLE001  (whatever is wrong with one task is no reason to leave the others)
        log.warning("etl:%d cannot be looked at: %r", task_id, error)
        return False
    return True


def _lost(job: Job | None = None) -> Failure:
    """Why a run is given up: as its job says, or because nobody says anything."""
    error = StageLost()
    if job is not None and job.error:
        return Failure(code=job.error_code or error.code, message=job.error, stage=STAGE, hint=error.hint)
    return moves.failure_of(error, STAGE)

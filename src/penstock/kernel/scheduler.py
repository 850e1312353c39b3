"""The scheduler: periodic tasks that run once in the cluster, in whichever process claims them first.

Every process runs a scheduler. A periodic task is a row: it is claimed when due, its lease is renewed while it runs,
and then it is rescheduled. If a process dies, the lease expires and another process runs the task.

Due times are whole multiples of the interval, so that tasks come due together, and tasks that end together are
rescheduled in one transaction. A frequent task declares a condition, served by an index, that says whether it is
needed: twice a second one SELECT evaluates it for all due tasks, and a task that is not needed is skipped until its
next time. So an idle process mostly reads. After a failure, or when an operator requests a run (`request_run`), a task
runs whether it is needed or not.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    CheckConstraint,
    Column,
    ColumnElement,
    Row,
    Select,
    String,
    Table,
    and_,
    bindparam,
    case,
    literal_column,
    or_,
    select,
    true,
    update,
)

from penstock.kernel.coalescer import Coalescer
from penstock.kernel.columns import Id, UtcTime
from penstock.kernel.db import Db, Tx, metadata
from penstock.kernel.dialect.bulk import insert_new
from penstock.kernel.dialect.compiled_statement import CompiledStatement, LeasedRow
from penstock.kernel.dialect.sql import any_of_param
from penstock.kernel.errors import NotFound, error_text
from penstock.kernel.lease_renewer import LeaseRenewer
from penstock.kernel.lease_sql import LeaseStates, lease_columns, lease_constraints, lease_indexes
from penstock.kernel.leases import POLL_SECONDS, Leases, LookbackWindow, next_multiple
from penstock.kernel.machine import Machine
from penstock.kernel.retry import retry_while_unavailable

log = logging.getLogger(__name__)

RETRY_SECONDS = 5  # after a failure
REGISTER_SECONDS = 60  # how often to check that every task has a row with a plausible due time


class PeriodicTaskState(StrEnum):
    """The states of a periodic task; `PERIODIC_TASK` describes each."""

    RESTING = "resting"
    RUNNING = "running"


PERIODIC_TASK = Machine(
    "periodic task",
    {
        "claim": ({PeriodicTaskState.RESTING}, PeriodicTaskState.RUNNING),
        "reschedule": ({PeriodicTaskState.RUNNING}, PeriodicTaskState.RESTING),
        "expire": ({PeriodicTaskState.RUNNING}, PeriodicTaskState.RESTING),
    },
    start=PeriodicTaskState.RESTING,
    words={
        PeriodicTaskState.RESTING: "Waits for its next due time.",
        PeriodicTaskState.RUNNING: "One process of the cluster runs it, under a lease.",
    },
)
LEASE_STATES = LeaseStates(column="state", waiting=PeriodicTaskState.RESTING, held=PeriodicTaskState.RUNNING)

periodic_task = Table(
    "duty",
    metadata,
    Column("id", Id, primary_key=True),  # its name
    Column("state", String, nullable=False, server_default=PeriodicTaskState.RESTING),
    *lease_columns(),
    Column("finished_at", UtcTime),
    Column("error", String),
    Column("requested_at", UtcTime),  # an operator asked for a run that has not ended yet
    CheckConstraint("state IN ('resting', 'running')", name="state"),
    *lease_constraints(LEASE_STATES),
)
lease_indexes(periodic_task, LEASE_STATES)


# SQL condition (since, now): whether there is anything to do at `now`, given that there was nothing at `since`. It may
# be wider than the work, never narrower: where rows can appear that were due before `since`, it must ignore `since`.
Condition = Callable[[ColumnElement[datetime], ColumnElement[datetime]], ColumnElement[bool]]


@dataclass(frozen=True, kw_only=True)
class PeriodicTask:
    """A function to run at an interval, by one process at a time; with `needed`, only when that is true."""

    name: str
    every_seconds: float
    run: Callable[[], Awaitable[None]]
    needed: Condition | None = None


@dataclass(frozen=True, kw_only=True)
class PeriodicTaskReport:
    """A periodic task and its last run. A task that is not needed may not have run for long."""

    name: str
    state: PeriodicTaskState
    due_at: datetime
    requested_at: datetime | None
    worker: str | None  # the process that runs it, or ran it last
    finished_at: datetime | None
    error: str | None


class NoSuchPeriodicTask(NotFound):
    """No periodic task has that name."""

    code = "NO_SUCH_PERIODIC_TASK"
    message = "There is no periodic task {name}."
    message_zh = "没有名为 {name} 的定期任务。"
    hint = "GET /api/v1/ops/periodic-tasks lists them."
    hint_zh = "可用 GET /api/v1/ops/periodic-tasks 查看。"
    terminal_hint = "`penstock periodic list` lists them."


class Scheduler:
    """The periodic tasks of one process."""

    def __init__(
        self, db: Db, periodic_tasks: Sequence[PeriodicTask], *, owner: str, lease_seconds: float = 30
    ) -> None:
        self._db = db
        self._tasks = {task.name: task for task in periodic_tasks}
        self._poll_seconds = min([POLL_SECONDS, *(task.every_seconds for task in periodic_tasks)])
        self._lookbacks = {task.name: LookbackWindow() for task in periodic_tasks if task.needed is not None}
        self._skipped: dict[str, datetime] = {}  # the next due time of tasks that are not needed before it
        self._due = CompiledStatement(self._select_due())
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._leases = Leases(periodic_task, LEASE_STATES)
        self._renewer = LeaseRenewer(db, self._leases, lease_seconds=lease_seconds)
        self._running: set[asyncio.Task[bool]] = set()
        self._coalescer = Coalescer()

    async def run(self) -> None:
        """Run due tasks, until cancelled."""
        renewing = asyncio.create_task(self._renewer.run())
        try:
            while True:
                await retry_while_unavailable(
                    self._db.clock, self._register_and_poll, warning="scheduler: cannot run periodic tasks"
                )
        finally:
            for task in (*self._running, renewing):
                task.cancel()
            await asyncio.gather(*self._running, renewing, return_exceptions=True)
            await self._coalescer.drain()

    @property
    def names(self) -> frozenset[str]:
        """The names of the tasks registered in this process."""
        return frozenset(self._tasks)

    @property
    def intervals(self) -> Mapping[str, float]:
        """The interval in seconds of each task registered in this process."""
        return {name: task.every_seconds for name, task in self._tasks.items()}

    async def register(self) -> None:
        """Insert a row for every task; a new task is due at once. So is one that is due later than its interval allows:
        its due time was written with a wrong clock, and nobody would run it until then."""
        t = periodic_task.c
        async with self._db.tx(actor=self._owner) as tx:
            await insert_new(tx, periodic_task, ("id", "scheduled_at"), [(name, tx.now) for name in self._tasks])
            resting = t.state == PeriodicTaskState.RESTING
            found = await tx.conn.execute(select(t.id, t.scheduled_at).where(resting))
            if misdated := [row.id for row in found if self._is_too_late(row.id, row.scheduled_at, tx.now)]:
                due_now = update(periodic_task).where(t.id.in_(misdated), resting).values(scheduled_at=tx.now)
                await tx.conn.execute(due_now)

    def _is_too_late(self, name: str, due_at: datetime, now: datetime) -> bool:
        task = self._tasks.get(name)  # the clocks of a cluster differ by less than the time added here
        return task is not None and due_at > now + timedelta(seconds=task.every_seconds + REGISTER_SECONDS)

    async def tick(self) -> int:
        """Run all tasks that are due now; returns how many succeeded."""
        return sum(await asyncio.gather(*await self._start_due()))

    async def _start_due(self) -> list[asyncio.Task[bool]]:
        """Claim what is due and start each in its own asyncio task, so that a long one does not delay the others."""
        names = await self._list_due()
        if not names:
            return []
        async with self._db.tx(actor=self._owner) as tx:
            await self._leases.expire(tx)
            held = await self._leases.claim_ids(tx, names, owner=self._owner, seconds=self._lease_seconds)
        started = [asyncio.create_task(self._run(row), name=row.id) for row in held]
        for task in started:
            self._running.add(task)
            task.add_done_callback(self._ended)
        return started

    async def _list_due(self) -> list[str]:
        """The tasks that are due and needed. Due tasks that are not needed are skipped until their next time."""
        now = self._db.clock.now()
        times = {name: next_multiple(now, task.every_seconds) for name, task in self._tasks.items()}
        candidates = [name for name, time in times.items() if self._skipped.get(name) != time]
        if not candidates:
            return []
        values = {f"since_{name}": lookback.since(now) for name, lookback in self._lookbacks.items()}
        async with self._db.read() as tx:
            rows = await self._due.rows(tx, values | {"now": now, "candidates": candidates, "known": [*self._tasks]})
        for row in rows:
            if not row.needed:
                self._skipped[row.id] = times[row.id]
                self._lookbacks[row.id].scanned(now)
        return [row.id for row in rows if row.needed]

    def _select_due(self) -> Select[Any]:
        """Tasks that are due, or whose lease has expired, and whether they are needed. CASE evaluates the conditions of
        due tasks only. A task that failed is needed, so that a success clears its error. One that was requested is
        found although it was skipped."""
        t, now = periodic_task.c, bindparam("now", type_=UtcTime)
        resting, running = (t.state == literal_column(f"'{state}'") for state in PeriodicTaskState)
        conditions = [
            (t.id == name, task.needed(bindparam(f"since_{name}", type_=UtcTime), now))
            for name, task in self._tasks.items()
            if task.needed is not None
        ]
        requested = t.requested_at.is_not(None)
        needed = case((or_(running, t.error.is_not(None), requested), true()), *conditions, else_=true())
        due = or_(and_(resting, t.scheduled_at <= now), and_(running, t.leased_until <= now))
        chosen = or_(any_of_param(t.id, "candidates"), requested)
        return select(t.id, needed.label("needed")).where(any_of_param(t.id, "known"), chosen, due)

    def _ended(self, task: asyncio.Task[bool]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.warning("periodic task %s could not be rescheduled: %s", task.get_name(), error)

    async def _register_and_poll(self) -> None:
        """Register, then poll until it is time to register again, or the clock was set forward or back."""
        await self.register()
        since = self._db.clock.now()
        while abs(self._db.clock.now() - since) < timedelta(seconds=REGISTER_SECONDS):
            await self._start_due()
            now = self._db.clock.now()
            soonest = (next_multiple(now, self._poll_seconds) - now).total_seconds()
            await self._db.clock.sleep(max(0.05, soonest))

    async def _run(self, row: LeasedRow) -> bool:
        task = self._tasks[row.id]
        try:
            async with self._renewer.renewing(row.id, row.lease_token):
                await task.run()
        except asyncio.CancelledError:
            if self._renewer.was_lost(row.id, row.lease_token):
                return False  # another process runs it now
            await self._release(row)  # we are stopping: another process need not wait for the lease to expire
            raise
        except Exception as error:  # noqa: BLE001  (one task's failure must not stop the others)
            log.warning("periodic task %s failed: %r", row.id, error)
            await self._reschedule(row, min(RETRY_SECONDS, task.every_seconds), error_text(error))
            return False
        await self._reschedule(row, task.every_seconds, None)
        return True

    async def _release(self, row: LeasedRow) -> None:
        """Return a task unfinished, for another process."""
        async with self._db.tx(actor=self._owner) as tx:
            await self._leases.release(tx, [row.id], row.lease_token, uncounted=1)

    async def _reschedule(self, row: LeasedRow, seconds: float, error: str | None) -> None:
        """Release a task until its next due time; tasks that end together share one transaction."""
        await self._coalescer.submit("reschedule", (row.id, (row.lease_token, seconds, error)), self._reschedule_all)

    async def _reschedule_all(self, ended: Sequence[tuple[str, tuple[str, float, str | None]]]) -> Sequence[None]:
        groups: dict[tuple[str, float, str | None], list[str]] = defaultdict(list)
        for name, group in ended:
            groups[group].append(name)
        async with self._db.tx(actor=self._owner) as tx:
            for (token, seconds, error), ids in groups.items():
                report = {"finished_at": tx.now, "error": error, "requested_at": None}
                await self._leases.release(tx, ids, token, due_at=next_multiple(tx.now, seconds), uncounted=1, **report)
        return [None] * len(ended)


async def list_periodic_tasks(db: Db) -> list[PeriodicTaskReport]:
    """Every periodic task, by name."""
    async with db.read() as tx:
        return [_report(row) for row in await tx.conn.execute(select(periodic_task).order_by(periodic_task.c.id))]


async def request_run(tx: Tx, name: str) -> PeriodicTaskReport:
    """Make a periodic task due now, needed or not; one that runs already is left as it is. Returns it as it is then."""
    t = periodic_task.c
    resting = update(periodic_task).where(t.id == name, t.state == PeriodicTaskState.RESTING)
    await tx.conn.execute(resting.values(scheduled_at=tx.now, requested_at=tx.now))
    row = (await tx.conn.execute(select(periodic_task).where(t.id == name))).one_or_none()
    if row is None:
        raise NoSuchPeriodicTask(name=name)
    return _report(row)


def _report(row: Row[Any]) -> PeriodicTaskReport:
    return PeriodicTaskReport(
        name=row.id,
        state=PeriodicTaskState(row.state),
        due_at=row.scheduled_at,
        requested_at=row.requested_at,
        worker=row.lease_owner,
        finished_at=row.finished_at,
        error=row.error,
    )

"""The timekeeper: periodic periodic_tasks that run once in the cluster, whichever process gets to them first.

Every process runs one. A duty is a row: it is claimed when due, kept renewed while it runs, and put back for its next
time. A process that dies in the middle of a duty leaves a lease that runs out, and the next one goes on.

Next times are whole multiples of a duty's interval, so that tasks come due together, and those that end together
are put back together. A duty can say whether it is needed: all that are due are asked in one SELECT, and one that has
nothing to do is left resting until its next time. So a house at rest mostly reads, twice a second.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    CheckConstraint,
    Column,
    ColumnElement,
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

from penstock.kernel.bulk import among_given, as_given, insert_new
from penstock.kernel.coalescer import Coalescer
from penstock.kernel.columns import Id, UtcTime
from penstock.kernel.db import Db, metadata
from penstock.kernel.errors import in_words
from penstock.kernel.hot import HotStatement, LeasedRow
from penstock.kernel.lease_renewer import LeaseRenewer
from penstock.kernel.lease_sql import LeaseWords, lease_columns, lease_indexes, lease_rules
from penstock.kernel.leases import LOOK_AGAIN_SECONDS, Leases, Lookback, next_time
from penstock.kernel.machine import Machine
from penstock.kernel.patience import until_there

log = logging.getLogger(__name__)

RETRY_SECONDS = 5  # after a duty failed
ENROL_SECONDS = 60  # between two looks at whether every duty has a row, and one that can be right


class PeriodicTaskState(StrEnum):
    """Where a duty is."""

    RESTING = "resting"
    RUNNING = "running"


DUTY = Machine(
    "duty",
    {
        "claim": ({PeriodicTaskState.RESTING}, PeriodicTaskState.RUNNING),
        "rest": ({PeriodicTaskState.RUNNING}, PeriodicTaskState.RESTING),
        "expire": ({PeriodicTaskState.RUNNING}, PeriodicTaskState.RESTING),
    },
    start=PeriodicTaskState.RESTING,
    words={
        PeriodicTaskState.RESTING: "Waits for its next time.",
        PeriodicTaskState.RUNNING: "One process of the cluster does it, under a lease.",
    },
)
WORDS = LeaseWords(state="state", waiting=PeriodicTaskState.RESTING, held=PeriodicTaskState.RUNNING)

duty = Table(
    "duty",
    metadata,
    Column("id", Id, primary_key=True),  # its name
    Column("state", String, nullable=False, server_default=PeriodicTaskState.RESTING),
    *lease_columns(),
    Column("finished_at", UtcTime),
    Column("error", String),
    CheckConstraint("state IN ('resting', 'running')", name="state"),
    *lease_rules(WORDS),
)
lease_indexes(duty, WORDS)


# Whether there is anything to do at the second moment, when at the first there was nothing. It may be wider than what
# the duty does, never narrower: where something new can have been due for long, the first moment is left aside.
Need = Callable[[ColumnElement[datetime], ColumnElement[datetime]], ColumnElement[bool]]


@dataclass(frozen=True, kw_only=True)
class PeriodicTask:
    """Something to be done every so often, by one process at a time; always, or when it is needed."""

    name: str
    every_seconds: float
    run: Callable[[], Awaitable[None]]
    needed: Need | None = None


@dataclass(frozen=True, kw_only=True)
class PeriodicTaskReport:
    """How a duty fared when it was done last; one that is not needed may rest for long."""

    name: str
    finished_at: datetime | None
    error: str | None


@dataclass(frozen=True, kw_only=True)
class _Rest:
    """How a duty ended, and for how long it rests."""

    row: LeasedRow
    seconds: float
    error: str | None = None


class Scheduler:
    """The periodic tasks of one process."""

    def __init__(
        self, db: Db, periodic_tasks: Sequence[PeriodicTask], *, owner: str, lease_seconds: float = 30
    ) -> None:
        self._db = db
        self._duties = {known.name: known for known in periodic_tasks}
        self._look_seconds = min([LOOK_AGAIN_SECONDS, *(known.every_seconds for known in periodic_tasks)])
        self._lookbacks = {known.name: Lookback() for known in periodic_tasks if known.needed is not None}
        self._spared: dict[str, datetime] = {}  # periodic_tasks that are not needed before then
        self._due = HotStatement(self._select_due(on_postgres=db.on_postgres))
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._leases = Leases(duty, WORDS)
        self._keeper = LeaseRenewer(db, self._leases, lease_seconds=lease_seconds)
        self._doing: set[asyncio.Task[bool]] = set()
        self._trips = Coalescer()

    async def run(self) -> None:
        """Do what is due, until cancelled."""
        keeping = asyncio.create_task(self._keeper.run())
        try:
            while True:
                await until_there(self._db.clock, self._keep_time, away="periodic tasks are put off")
        finally:
            for task in (*self._doing, keeping):
                task.cancel()
            await asyncio.gather(*self._doing, keeping, return_exceptions=True)
            await self._trips.home()

    @property
    def names(self) -> frozenset[str]:
        """The periodic_tasks that are known here."""
        return frozenset(self._duties)

    async def enrol(self) -> None:
        """Make sure that every known duty has its row; a new one is due at once. So is one that is put off for longer
        than it ever rests: a clock was wrong when that was written, and nobody would do it until then."""
        async with self._db.tx(actor=self._owner) as tx:
            await insert_new(tx, duty, ("id", "scheduled_at"), [(name, tx.now) for name in self._duties])
            rests = duty.c.state == PeriodicTaskState.RESTING
            found = await tx.conn.execute(select(duty.c.id, duty.c.scheduled_at).where(rests))
            if astray := [row.id for row in found if self._is_astray(row.id, row.scheduled_at, tx.now)]:
                await tx.conn.execute(update(duty).where(duty.c.id.in_(astray), rests).values(scheduled_at=tx.now))

    def _is_astray(self, name: str, due_at: datetime, now: datetime) -> bool:
        known = self._duties.get(name)  # clocks of ours differ by less than the time that is added
        return known is not None and due_at > now + timedelta(seconds=known.every_seconds + ENROL_SECONDS)

    async def tick(self) -> int:
        """Do everything that is due now; returns how many periodic_tasks were done."""
        return sum(await asyncio.gather(*await self._begin()))

    async def _begin(self) -> list[asyncio.Task[bool]]:
        """Take up what is due, each duty by a task of its own: a long one must not keep the short ones waiting."""
        names = await self._list_due()
        if not names:
            return []
        async with self._db.tx(actor=self._owner) as tx:
            await self._leases.expire(tx)
            held = await self._leases.claim_these(tx, names, owner=self._owner, seconds=self._lease_seconds)
        begun = [asyncio.create_task(self._do(row), name=row.id) for row in held]
        for task in begun:
            self._doing.add(task)
            task.add_done_callback(self._ended)
        return begun

    async def _list_due(self) -> list[str]:
        """The tasks that are due and needed. The others that are due are not asked about again before their time."""
        now = self._db.clock.now()
        times = {name: next_time(now, known.every_seconds) for name, known in self._duties.items()}
        asked = [name for name, time in times.items() if self._spared.get(name) != time]
        if not asked:
            return []
        values = {f"since_{name}": lookback.since(now) for name, lookback in self._lookbacks.items()}
        async with self._db.read() as tx:
            rows = await self._due.rows(tx, values | {"now": now, "asked": as_given(tx, asked)})
        for row in rows:
            if not row.needed:
                self._spared[row.id] = times[row.id]
                self._lookbacks[row.id].looked(now)
        return [row.id for row in rows if row.needed]

    def _select_due(self, *, on_postgres: bool) -> Select[Any]:
        """The tasks that rest and are due, or whose process fell silent, and whether they are needed. CASE goes no
        further than it must: only of what is due it is asked. What failed is needed, so that its error goes away."""
        d, now = duty.c, bindparam("now", type_=UtcTime)
        resting, running = (d.state == literal_column(f"'{state}'") for state in PeriodicTaskState)
        needs = [
            (d.id == name, known.needed(bindparam(f"since_{name}", type_=UtcTime), now))
            for name, known in self._duties.items()
            if known.needed is not None
        ]
        needed = case((or_(running, d.error.is_not(None)), true()), *needs, else_=true())
        due = or_(and_(resting, d.scheduled_at <= now), and_(running, d.leased_until <= now))
        asked = among_given(d.id, "asked", on_postgres=on_postgres)
        return select(d.id, needed.label("needed")).where(asked, due)

    def _ended(self, task: asyncio.Task[bool]) -> None:
        self._doing.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.warning("duty %s could not be put back: %s", task.get_name(), error)

    async def _keep_time(self) -> None:
        """Until it is time to enrol again, or the clock was put forward or back."""
        await self.enrol()
        since = self._db.clock.now()
        while abs(self._db.clock.now() - since) < timedelta(seconds=ENROL_SECONDS):
            await self._begin()
            now = self._db.clock.now()
            soonest = (next_time(now, self._look_seconds) - now).total_seconds()
            await self._db.clock.sleep(max(0.05, soonest))

    async def _do(self, row: LeasedRow) -> bool:
        known = self._duties[row.id]
        try:
            async with self._keeper.keeping(row.id, row.lease_token):
                await known.run()
        except asyncio.CancelledError:
            if self._keeper.was_lost(row.id, row.lease_token):
                return False  # another process does it now
            await self._leave(row)  # we are stopping: the next process need not wait for the lease
            raise
        except Exception as error:  # noqa: BLE001  (one duty's failure must not stop the others)
            log.warning("duty %s failed: %r", row.id, error)
            await self._rest(_Rest(row=row, seconds=min(RETRY_SECONDS, known.every_seconds), error=in_words(error)))
            return False
        await self._rest(_Rest(row=row, seconds=known.every_seconds))
        return True

    async def _leave(self, row: LeasedRow) -> None:
        """Put a duty back as it was, for another process."""
        async with self._db.tx(actor=self._owner) as tx:
            await self._leases.release(tx, [row.id], row.lease_token, uncounted=1)

    async def _rest(self, rest: _Rest) -> None:
        await self._trips.ask("rest", rest, self._rest_all)

    async def _rest_all(self, rests: Sequence[_Rest]) -> Sequence[None]:
        alike: dict[tuple[str, float, str | None], list[str]] = defaultdict(list)
        for rest in rests:
            alike[rest.row.lease_token, rest.seconds, rest.error].append(rest.row.id)
        async with self._db.tx(actor=self._owner) as tx:
            for (token, seconds, error), ids in alike.items():
                report = {"finished_at": tx.now, "error": error}
                await self._leases.release(tx, ids, token, due_at=next_time(tx.now, seconds), uncounted=1, **report)
        return [None] * len(rests)


async def list_periodic_tasks(db: Db) -> list[PeriodicTaskReport]:
    """How every duty fared last."""
    async with db.read() as tx:
        rows = await tx.conn.execute(select(duty.c.id, duty.c.finished_at, duty.c.error).order_by(duty.c.id))
        return [PeriodicTaskReport(name=row.id, finished_at=row.finished_at, error=row.error) for row in rows]

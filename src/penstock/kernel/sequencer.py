"""The sequencer: gives committed events their ids, on PostgreSQL.

Transactions insert events into `event_inbox` without an id. Whoever is about to read events first runs a pass: one
statement, under a try-lock, moves committed events into `event`, where they get the next ids. So ids are drawn by one
transaction at a time in the whole cluster, and become visible in order. It follows that

- writers never wait for each other,
- a transaction that stays open delays its own events only: they are not visible, and get later ids when it commits,
- nobody waits for a pass: it is one statement that commits by itself, and a process that finds the lock taken retries
  soon. Behind a pooler it is a transaction of one statement, which the server ends if the client freezes before COMMIT.

Events of transactions that depend on each other keep their order. If T2 read what T1 wrote or waited for its lock, T1
committed before T2 inserted its events, since that insert is the last statement of T2. So T1's events have smaller
`seq` values, and a snapshot that shows T2's events shows T1's, too. A pass takes visible events in the order of `seq`.

A pass that took everything remembers its snapshot. What is visible later comes from transactions that were running in
that snapshot or began after it, so the next pass reads only those, by transaction id. Otherwise it would read the dead
index entries of all moved events again, as long as some open transaction keeps vacuum from removing them.

SQLite has a single writer, which draws ids in commit order, and needs no sequencer.
"""

import asyncio

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Integer,
    Select,
    Text,
    any_,
    bindparam,
    cast,
    delete,
    func,
    insert,
    literal_column,
    select,
    union_all,
)

from penstock.kernel.db import Db
from penstock.kernel.dialect.sql import has_single_writer
from penstock.kernel.events import COLUMNS, event, event_inbox

BATCH = 2000  # events per pass, so that it stays short
LOCK = 0x65766E74  # "evnt"; writers of earlier versions hold it until their commit, so both can run side by side
MAX_PASSES = 1000  # two million events in a minute's maintenance, more than the database takes in
IDLE_MILLISECONDS = 5000  # between the statement and its COMMIT, behind a pooler
RETRY_SECONDS = 0.01  # while another process runs a pass, which takes milliseconds


def _pass() -> Select[tuple[bool, int, str]]:
    """Move a batch of events. Rows are deleted by their place in the table, which no plan can get wrong. Those that
    another process moved after the snapshot of this statement are skipped, so the batch counts, not what was moved."""
    idle = func.set_config("idle_in_transaction_session_timeout", str(IDLE_MILLISECONDS), literal_column("true"))
    lock = select(func.pg_try_advisory_xact_lock(LOCK).label("held"), idle).cte("lock").prefix_with("MATERIALIZED")
    held = select(lock.c.held).scalar_subquery()
    place: ColumnElement[object] = literal_column("event_inbox.ctid")
    since = event_inbox.c.xid >= bindparam("xmax", type_=BigInteger)
    was_running = event_inbox.c.xid == any_(bindparam("running", type_=ARRAY(BigInteger)))
    rows = [select(place.label("place"), event_inbox.c.seq).where(held, xids) for xids in (since, was_running)]
    visible = union_all(*rows).subquery("visible")
    first = select(visible).order_by(visible.c.seq).limit(bindparam("batch", type_=Integer))
    batch = first.cte("batch").prefix_with("MATERIALIZED")
    taken = delete(event_inbox).where(place == any_(func.array(select(batch.c.place).scalar_subquery())))
    moved = taken.returning(event_inbox).cte("moved")
    values = select(*(moved.c[name] for name in COLUMNS)).order_by(moved.c.seq)
    sequenced = insert(event).from_select(list(COLUMNS), values).returning(event.c.id).cte("sequenced")
    found, count = (select(func.count()).select_from(rows).scalar_subquery() for rows in (batch, sequenced))
    snapshot = cast(func.pg_current_snapshot(), Text)
    return select(lock.c.held, found.label("found"), count.label("moved"), snapshot.label("snapshot"))


PASS = _pass()


class Sequencer:
    """The sequencer of one process. Any number of processes may have one."""

    def __init__(self, db: Db, *, batch: int = BATCH) -> None:
        self._db = db
        self._batch = batch
        self._turn = asyncio.Lock()
        self._begun = 0  # passes
        self._last_complete = 0
        self._xmax = 0  # all visible events of transactions below, other than these, have been moved
        self._running: list[int] = []

    async def run_pass(self) -> bool:
        """Give ids to a batch of events; returns whether no event is left that was committed before the call.

        Concurrent callers share a pass that begins after their call.
        """
        if has_single_writer(self._db):
            return True
        before = self._begun
        async with self._turn:
            if self._last_complete <= before:
                self._begun += 1
                if not await self._move_batch():
                    return False
                self._last_complete = self._begun
        return True

    async def catch_up(self, *, max_passes: int = MAX_PASSES) -> None:
        """Run passes until none is left that was committed before the last one began, at most so many."""
        for _ in range(max_passes):
            if await self.run_pass():
                return
            await self._db.clock.sleep(RETRY_SECONDS)

    async def _move_batch(self) -> bool:
        """Whether the batch was everything. False also while another process runs a pass, which may have begun before
        our caller's events were committed."""
        async with self._db.autocommit() as tx:
            values = {"xmax": self._xmax, "running": self._running, "batch": self._batch}
            row = (await tx.conn.execute(PASS, values)).one()
        _, xmax, running = row.snapshot.split(":")
        if int(xmax) < self._xmax:  # the database was replaced by another, so our snapshot means nothing there
            self._xmax, self._running = 0, []
            return False
        if not row.held or row.found >= self._batch:
            return False
        self._xmax, self._running = int(xmax), [int(xid) for xid in running.split(",") if xid]
        return True

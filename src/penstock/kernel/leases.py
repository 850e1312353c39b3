"""Leases: who holds which row, and until when. One implementation for the tables that are processed like queues.

`job`, `outbox` and `duty` share this lease implementation. A table takes part with `lease_columns()`,
`lease_constraints()` and `lease_indexes()`, and with two states: one for rows that wait and one for rows that are held.

    claim → (renew)* → settle      the holder finished; the row gets a state of the table's own
                     → release     the holder returns it, due now or later
                     → expire      the holder stopped renewing; the row waits again

A claim takes due rows by priority, due time and id, and gives all of them one token. Every later operation is guarded
by the token: it settles a row once, and a late worker, which has lost its lease, is refused. Three things keep a claim
as fast at a million rows as at ten:

- Rows due in the future are `deferred`: outside the claim index until `promote`.
- Held rows are outside it too; expired leases are found by an index of their own.
- On PostgreSQL a claim starts where the last one began (`ClaimCursor`), so that dead index entries, which stay while
  some snapshot blocks vacuum, are not scanned again each time.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import attrgetter

from sqlalchemy import ColumnElement, Table

from penstock.kernel.db import Db, Tx
from penstock.kernel.dialect.compiled_statement import LeasedRow, any_rows
from penstock.kernel.dialect.sql import keeps_dead_index_entries
from penstock.kernel.errors import Conflict
from penstock.kernel.ids import new_token
from penstock.kernel.lease_sql import LeaseSql, LeaseStates
from penstock.kernel.partitions import lock_partition

POLL_SECONDS = 1.0  # how late at most we notice rows that another process deferred or inserted before our cursor
LOOKBACK_SECONDS = 3  # longer than our transactions stay open
FULL_SCAN_SECONDS = 60
PROMOTE_BATCH = 1000
EXPIRE_BATCH = 1000


class LeaseLost(Conflict):
    """The token no longer matches: the lease expired, or was never held."""

    code = "LEASE_LOST"
    message = "The lease on {ids} is no longer held; its result is rejected."
    message_zh = "{ids} 的租约已失效；其结果不被接受。"
    hint = "Claim again. Renew leases in time, or request longer ones."
    hint_zh = "请重新领取。请及时续租，或申请更长的租约。"


@dataclass(frozen=True)
class ClaimCursor:
    """Where the last claim began: as far as this process knows, no row before it waits."""

    priority: int
    scheduled_at: datetime
    id: str


@dataclass(frozen=True, kw_only=True)
class LeaseRequest:
    """The arguments of a claim."""

    owner: str
    seconds: float
    limit: int
    partition: str


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = ClaimCursor(-32768, EPOCH, "")
_ORDER = attrgetter("priority", "scheduled_at", "id")


def next_multiple(now: datetime, seconds: float) -> datetime:
    """The next whole multiple of an interval, counted from 1970. Polls at such times coincide and cost an idle process
    little more than one, since most of the cost is waking up."""
    return EPOCH + timedelta(seconds=(math.floor((now - EPOCH).total_seconds() / seconds) + 1) * seconds)


class LookbackWindow:
    """The start of a scan for rows that have come due: rows due before the last scan have been handled.

    Each scan starts a little before the last one, to find what slow transactions commit late, and once a minute it
    covers everything. Without this, each scan would read all dead index entries while vacuum is blocked.
    """

    def __init__(self) -> None:
        self._since = EPOCH
        self._full_scan_at = EPOCH

    def since(self, now: datetime) -> datetime:
        """Where the next scan starts."""
        clock_set_back = now < self._since
        return EPOCH if clock_set_back or self._needs_full_scan(now) else self._since

    def scanned(self, now: datetime) -> None:
        """Record that everything due by now has been handled."""
        if self._needs_full_scan(now):
            self._full_scan_at = now + timedelta(seconds=FULL_SCAN_SECONDS)
        self._since = now - timedelta(seconds=LOOKBACK_SECONDS)

    def _needs_full_scan(self, now: datetime) -> bool:
        """Also when the next full scan is further off than it is ever set: then the clock was set back."""
        return not timedelta() < self._full_scan_at - now <= timedelta(seconds=FULL_SCAN_SECONDS)


class Leases:
    """The leases on one table. It keeps no lease in memory, only hints of this process that make claims fast."""

    def __init__(self, table: Table, states: LeaseStates) -> None:
        self.table = table
        self.states = states
        self._sql = LeaseSql(table, states)
        self._cursors: dict[str, tuple[ClaimCursor, datetime]] = {}
        self._next_poll_at = EPOCH
        self._expired = LookbackWindow()
        self._due = LookbackWindow()

    @property
    def channel(self) -> str:
        """The wake-up channel of this table."""
        return self.table.name

    async def claim(
        self, tx: Tx, *, owner: str, seconds: float, limit: int, partition: str = ""
    ) -> Sequence[LeasedRow]:
        """Hold up to `limit` due rows of a partition for `seconds`; they share one token.

        It returns fewer rows when no more are due, or the partition is paused, cooling down or at its limit.
        """
        if limit < 1:
            return []
        await self._promote_when_due(tx)
        request = LeaseRequest(owner=owner, seconds=seconds, limit=limit, partition=partition)
        rows = await self._claim_open(tx, request)
        if not rows and self._cursors.pop(partition, None) is not None:  # rows may wait before the cursor
            rows = await self._claim_open(tx, request)
        return rows or await self._claim_restricted(tx, request)

    async def claim_autocommit(
        self, db: Db, *, owner: str, seconds: float, limit: int, partition: str = ""
    ) -> Sequence[LeasedRow]:
        """Claim in a transaction of its own: usually one round trip when rows are due."""
        if limit < 1 or not await self.may_have_due(db, [partition]):
            return []
        request = LeaseRequest(owner=owner, seconds=seconds, limit=limit, partition=partition)
        async with db.autocommit(actor=owner) as tx:
            await self._promote_when_due(tx)
            rows = await self._claim_open(tx, request)
        if rows:
            return rows
        async with db.tx(actor=owner) as tx:
            return await self.claim(tx, owner=owner, seconds=seconds, limit=limit, partition=partition)

    async def may_have_due(self, db: Db, partitions: Collection[str]) -> bool:
        """Whether a claim may find rows in these partitions. Checked before a claim, so an idle process only reads.

        It queries the database when a poll is due; a caller that was woken before that gets True.
        """
        now = db.clock.now()
        if self._is_before_poll(now):
            return True
        self._next_poll_at = next_multiple(now, POLL_SECONDS)  # earlier if something is noted meanwhile
        values: dict[str, object] = {"since": self._due.since(now), "now": now}
        async with db.read() as tx:
            values |= {"in_partitions": list(partitions)}
            [polled] = await self._sql.poll.rows(tx, values)
        if not polled.found:
            self._due.scanned(now)
        self._poll_by(now if polled.found else polled.next_due)
        return bool(polled.found)

    async def claim_ids(
        self, tx: Tx, ids: Collection[str], *, owner: str, seconds: float, partition: str = ""
    ) -> Sequence[LeasedRow]:
        """Hold those of these rows that wait in the partition, are due and may be claimed; skip the others."""
        if not ids:
            return []
        request = LeaseRequest(owner=owner, seconds=seconds, limit=len(ids), partition=partition)
        if rows := await self._execute_ids(tx, request, ids, gated=True):
            return rows
        free = await self._lock_free_slots(tx, request)
        return await self._execute_ids(tx, replace(request, limit=free), ids, gated=False) if free > 0 else []

    async def is_restricted(self, tx: Tx, partition: str) -> bool:
        """Whether a partition is paused, cooling down or has a concurrency limit, so that a claim may skip due rows."""
        return bool(await tx.conn.scalar(self._sql.restricted, {"in_partition": partition, "now": tx.now}))

    async def renew(self, tx: Tx, ids: Collection[str], token: str, *, seconds: float) -> set[str]:
        """Extend leases to `seconds` from now. Returns the ids still held; the others are lost."""
        values = {"row_ids": list(ids), "held_token": token, "until": tx.now + timedelta(seconds=seconds)}
        return await self._sql.renew.ids(tx, values)

    async def is_held(self, tx: Tx, row_id: str, token: str) -> bool:
        """Whether this token still holds the row: one read by primary key."""
        return await tx.conn.scalar(self._sql.is_held, {"row_id": row_id, "held_token": token}) is not None

    async def settle(self, tx: Tx, ids: Collection[str], token: str, *, state: str, **values: object) -> None:
        """End leases with a final state of the table. Settles all rows, or none and raises `LeaseLost`.

        A lease that has expired can still be settled until `expire` has run: nobody else has claimed the row.
        """
        settled = await self.try_settle(tx, ids, token, state=state, **values)
        if lost := sorted(set(ids) - settled):
            raise LeaseLost(ids=", ".join(lost[:5]) + (" …" if len(lost) > 5 else ""))

    async def try_settle(self, tx: Tx, ids: Collection[str], token: str, *, state: str, **values: object) -> set[str]:
        """Settle those rows that are still held, and return their ids."""
        statement = self._sql.settle(tuple(values))
        sets = {f"set_{name}": value for name, value in values.items()}
        sets |= {"row_ids": list(ids), "held_token": token, "to_state": state}
        return await statement.ids(tx, sets)

    async def release(
        self,
        tx: Tx,
        ids: Collection[str],
        token: str,
        *,
        due_at: datetime | None = None,
        uncounted: int = 0,
        **values: object,
    ) -> set[str]:
        """Return rows, due now or at `due_at`; returns the ids that were still held.

        `uncounted` is subtracted from `lease_count`: 1 means that this lease was no attempt. A due time in the past
        would put the row before other processes' cursors, so it counts as now.
        """
        due_at = max(due_at or tx.now, tx.now)
        tx.after_commit.append(partial(self._poll_by, due_at))
        self.note_requeued(tx)
        sets = {f"set_{name}": value for name, value in values.items()}
        sets |= {"row_ids": list(ids), "held_token": token, "uncounted": uncounted}
        sets |= {"due_at": due_at, "is_deferred": due_at > tx.now}
        statement = self._sql.release(tuple(values))
        return await statement.ids(tx, sets)

    async def expire(self, tx: Tx, *, limit: int = EXPIRE_BATCH) -> Sequence[LeasedRow]:
        """Make rows with expired leases wait again; returns them."""
        values = {"since": self._expired.since(tx.now), "now": tx.now, "most": limit}
        rows = await self._sql.expire.rows(tx, values)
        if len(rows) < limit:
            tx.after_commit.append(partial(self._expired.scanned, tx.now))
        if rows:
            self.note_requeued(tx)
        return rows

    def has_expired(self, since: ColumnElement[datetime], now: ColumnElement[datetime]) -> ColumnElement[bool]:
        """SQL condition: whether `expire` has anything to do."""
        return any_rows(self._sql.expired(since, now))

    async def promote(self, tx: Tx) -> int:
        """Make deferred rows that are due claimable; returns how many."""
        values = {"since": self._due.since(tx.now), "now": tx.now, "most": PROMOTE_BATCH}
        promoted = len(await self._sql.promote.ids(tx, values))
        if promoted < PROMOTE_BATCH:
            tx.after_commit.append(partial(self._due.scanned, tx.now))
        if promoted:
            self._cursors.clear()
        return promoted

    async def next_due_at(self, tx: Tx) -> datetime | None:
        """When the next deferred row will be due."""
        due_at: datetime | None = await tx.conn.scalar(self._sql.next_due, {"now": tx.now})
        return due_at

    def seconds_until_poll(self, now: datetime) -> float:
        """How long a waiter may sleep before it has to poll."""
        return max(0.0, min(POLL_SECONDS, (self._next_poll_at - now).total_seconds()))

    def note_inserted(self, tx: Tx, *, partition: str, priority: int, due_at: datetime) -> None:
        """Note an inserted row, so that the next claim does not skip it, and wake waiting workers."""
        tx.wake(self.channel)
        if due_at > tx.now:
            tx.after_commit.append(partial(self._poll_by, due_at))
            return
        cursor, _ = self._cursors.get(partition, (START, due_at))
        if (priority, due_at) < (cursor.priority, cursor.scheduled_at):
            del self._cursors[partition]

    def note_requeued(self, tx: Tx) -> None:
        """Note that rows wait again that may sort before the cursors, and wake waiting workers."""
        self._cursors.clear()
        tx.wake(self.channel)

    async def _promote_when_due(self, tx: Tx) -> None:
        if self._is_before_poll(tx.now):
            return
        self._next_poll_at = next_multiple(tx.now, POLL_SECONDS)  # earlier if something is noted meanwhile
        promoted = await self.promote(tx)
        self._poll_by(await self.next_due_at(tx) if promoted < PROMOTE_BATCH else tx.now)

    def _is_before_poll(self, now: datetime) -> bool:
        """Whether the next poll is not due yet. If it is far off, the clock was set back, and a poll is due."""
        return timedelta() < self._next_poll_at - now <= timedelta(seconds=POLL_SECONDS)

    def _poll_by(self, due_at: datetime | None) -> None:
        """Poll no later than then."""
        if due_at is not None:
            self._next_poll_at = min(self._next_poll_at, due_at)

    async def _claim_open(self, tx: Tx, request: LeaseRequest) -> Sequence[LeasedRow]:
        """Claim with one statement in a partition without restrictions; in any other it finds nothing."""
        cursor = self._cursor(tx, request.partition)
        rows = await self._execute(tx, request, cursor, gated=True)
        self._move_cursor(tx, request, cursor, rows)
        return rows

    async def _claim_restricted(self, tx: Tx, request: LeaseRequest) -> Sequence[LeasedRow]:
        """Claim in a partition with a concurrency limit."""
        free = await self._lock_free_slots(tx, request)
        return await self._execute(tx, replace(request, limit=free), START, gated=False) if free > 0 else []

    async def _lock_free_slots(self, tx: Tx, request: LeaseRequest) -> int:
        """How many rows may be claimed under the partition's ceiling, counted while its row is locked, so that
        concurrent claims count one after another. Zero without a ceiling: the first statement took all."""
        partition = await lock_partition(tx, self.table.name, request.partition)
        if partition is None or partition.ceiling is None or not partition.open_at(tx.now):
            return 0
        held = await tx.conn.scalar(self._sql.count_held, {"in_partition": request.partition}) or 0
        return min(request.limit, partition.ceiling - held)

    async def _execute(self, tx: Tx, request: LeaseRequest, cursor: ClaimCursor, *, gated: bool) -> Sequence[LeasedRow]:
        values = _parameters(tx, request)
        if gated:
            values |= {"now": tx.now}
        values |= {"from_priority": cursor.priority, "from_due": cursor.scheduled_at, "from_id": cursor.id}
        rows = await self._sql.claim(gated=gated).rows(tx, values)
        return sorted(rows, key=_ORDER)

    async def _execute_ids(
        self, tx: Tx, request: LeaseRequest, ids: Collection[str], *, gated: bool
    ) -> Sequence[LeasedRow]:
        values = _parameters(tx, request) | {"row_ids": list(ids), "now": tx.now}
        return sorted(await self._sql.claim_ids(gated=gated).rows(tx, values), key=_ORDER)

    def _cursor(self, tx: Tx, partition: str) -> ClaimCursor:
        cursor, since = self._cursors.get(partition, (START, tx.now))
        return cursor if tx.now - since < timedelta(seconds=POLL_SECONDS) else START

    def _move_cursor(self, tx: Tx, request: LeaseRequest, used: ClaimCursor, rows: Sequence[LeasedRow]) -> None:
        """A full batch moves the cursor to its first row; a short one drops it, since rows may wait before it."""
        if not rows or not keeps_dead_index_entries(tx):
            return
        if len(rows) < request.limit:
            self._cursors.pop(request.partition, None)
            return
        since = tx.now if used is START else self._cursors.get(request.partition, (used, tx.now))[1]
        first = rows[0]
        self._cursors[request.partition] = (ClaimCursor(first.priority, first.scheduled_at, first.id), since)


def _parameters(tx: Tx, request: LeaseRequest) -> dict[str, object]:
    values: dict[str, object] = {"owner": request.owner, "token": new_token(), "in_partition": request.partition}
    return values | {"until": tx.now + timedelta(seconds=request.seconds), "most": request.limit}

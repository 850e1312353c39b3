"""Leases: who holds which row, until when. One implementation for every table that is worked through like a queue.

A table takes part by having `lease_columns()` and `lease_indexes()` and two words in its own state column: one for
rows that wait and one for rows that are held. `Leases` then hands rows out and takes them back:

    claim → (renew)* → settle      the holder finished; the row goes to a state of the table's own
                     → release     the holder gives it back, now or for later
                     → expire      the holder fell silent; the row waits again

A claim takes the rows that are due, by priority, due time and id, and gives all of them one token. Every later verb
names that token, so whoever lost a lease is refused. Three things keep a claim as quick at a million rows as at ten:

- Rows that are not due yet are `deferred`: outside the claim's index until `promote` lets them in.
- Rows that are held are outside it too; lapsed leases are found by an index of their own.
- On PostgreSQL a claim starts where the last one began (the mark), so that index entries of rows long gone, which
  stay while some other snapshot blocks vacuum, are not walked again each time.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import attrgetter

from sqlalchemy import ColumnElement, Table

from penstock.kernel.bulk import as_given
from penstock.kernel.db import Db, Tx
from penstock.kernel.errors import Conflict
from penstock.kernel.hot import LeasedRow, is_any
from penstock.kernel.ids import new_token
from penstock.kernel.lease_sql import LeaseSql, LeaseWords
from penstock.kernel.partitions import lock_partition

LOOK_AGAIN_SECONDS = 1.0  # how late at most we notice what another process deferred, or put before our mark
LOOK_BACK_SECONDS = 3  # longer than our transactions stay open
WHOLE_LOOK_SECONDS = 60
PROMOTE_AT_ONCE = 1000
EXPIRE_AT_ONCE = 1000


class LeaseLost(Conflict):
    """The lease ran out and was taken back, or was never held."""

    code = "LEASE_LOST"
    message = "The lease on {ids} is no longer held; what was done under it is not taken."
    message_zh = "{ids} 的租约已不在手中；在其下完成的工作不被接受。"
    hint = "Claim again. Renew a lease in time, or ask for a longer one."
    hint_zh = "请重新领取。请及时续租，或申请更长的租约。"


@dataclass(frozen=True)
class Mark:
    """Where the last claim began: nothing waiting lies before it, as far as this process knows."""

    priority: int
    scheduled_at: datetime
    id: str


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What a claim asks for."""

    owner: str
    seconds: float
    limit: int
    partition: str


LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
START = Mark(-32768, LONG_AGO, "")
_ORDER = attrgetter("priority", "scheduled_at", "id")


def next_time(now: datetime, seconds: float) -> datetime:
    """The next whole multiple of an interval, counted from 1970. Looks that a process takes at such times come together
    and cost it little more than one: most of what a look costs a process at rest is to wake up."""
    return LONG_AGO + timedelta(seconds=(math.floor((now - LONG_AGO).total_seconds() / seconds) + 1) * seconds)


class Lookback:
    """From when on a look for what has come due must look: what was due before the last look is long taken care of.

    What a slow transaction commits late is found by looking back a little further each time, and everything is looked
    at again once a minute. Without this, each look would walk over all that ever was due while vacuum is blocked.
    """

    def __init__(self) -> None:
        self._since = LONG_AGO
        self._whole_at = LONG_AGO

    def since(self, now: datetime) -> datetime:
        """The moment to look back to."""
        put_back = now < self._since  # the clock was: what it says of the past no longer fits
        return LONG_AGO if put_back or self._is_time_for_all(now) else self._since

    def looked(self, now: datetime) -> None:
        """Everything that was due by now has been seen."""
        if self._is_time_for_all(now):
            self._whole_at = now + timedelta(seconds=WHOLE_LOOK_SECONDS)
        self._since = now - timedelta(seconds=LOOK_BACK_SECONDS)

    def _is_time_for_all(self, now: datetime) -> bool:
        """A time that is further off than it is ever set is from before the clock was put back."""
        return not timedelta() < self._whole_at - now <= timedelta(seconds=WHOLE_LOOK_SECONDS)


class Leases:
    """The leases on one table, as one process sees them. Holds no lease itself: only hints that make claims quick."""

    def __init__(self, table: Table, words: LeaseWords) -> None:
        self.table = table
        self.words = words
        self._sql = LeaseSql(table, words)
        self._marks: dict[str, tuple[Mark, datetime]] = {}
        self._look_again_at = LONG_AGO
        self._lapsed = Lookback()
        self._due = Lookback()

    @property
    def channel(self) -> str:
        """The wake-up channel of this table."""
        return self.table.name

    async def claim(
        self, tx: Tx, *, owner: str, seconds: float, limit: int, partition: str = ""
    ) -> Sequence[LeasedRow]:
        """Hold up to `limit` due rows of a partition until `seconds` from now; they share one token.

        Fewer rows than asked for mean there were no more, or the partition is paused, cooling or at its ceiling.
        """
        if limit < 1:
            return []
        await self._promote_when_due(tx)
        ask = Ask(owner=owner, seconds=seconds, limit=limit, partition=partition)
        rows = await self._claim_open(tx, ask)
        if not rows and self._marks.pop(partition, None) is not None:  # something may wait before the mark
            rows = await self._claim_open(tx, ask)
        return rows or await self._claim_restricted(tx, ask)

    async def claim_alone(
        self, db: Db, *, owner: str, seconds: float, limit: int, partition: str = ""
    ) -> Sequence[LeasedRow]:
        """A claim that is a transaction of its own: as a rule one round trip when there are rows."""
        if limit < 1 or not await self.may_find(db, [partition]):
            return []
        ask = Ask(owner=owner, seconds=seconds, limit=limit, partition=partition)
        async with db.once(actor=owner) as tx:
            await self._promote_when_due(tx)
            rows = await self._claim_open(tx, ask)
        if rows:
            return rows
        async with db.tx(actor=owner) as tx:
            return await self.claim(tx, owner=owner, seconds=seconds, limit=limit, partition=partition)

    async def may_find(self, db: Db, partitions: Collection[str]) -> bool:
        """Whether a claim may find anything in these partitions: asked before it, so that a house at rest only reads.

        The database is asked when it is time to look without having been woken; to who was woken the answer is yes.
        """
        now = db.clock.now()
        if self._is_early(now):
            return True
        self._look_again_at = next_time(now, LOOK_AGAIN_SECONDS)  # sooner if something is noted meanwhile
        values = {"since": self._due.since(now), "now": now}
        async with db.read() as tx:
            given = {"in_partitions": as_given(tx, partitions)}
            [seen] = await self._sql.look(tx.on_postgres).rows(tx, values | given)
        if not seen.found:
            self._due.looked(now)
        self._look_by(now if seen.found else seen.next_due)
        return bool(seen.found)

    async def claim_these(
        self, tx: Tx, ids: Collection[str], *, owner: str, seconds: float, partition: str = ""
    ) -> Sequence[LeasedRow]:
        """Hold those of these rows of a partition that wait, are due and may be handed out; the others are left."""
        if not ids:
            return []
        ask = Ask(owner=owner, seconds=seconds, limit=len(ids), partition=partition)
        if rows := await self._execute_these(tx, ask, ids, gated=True):
            return rows
        places = await self._lock_places(tx, ask)
        return await self._execute_these(tx, replace(ask, limit=places), ids, gated=False) if places > 0 else []

    async def is_restricted(self, tx: Tx, partition: str) -> bool:
        """Whether a partition is paused, cooling or has a ceiling, so that rows that are due may still be refused."""
        return bool(await tx.conn.scalar(self._sql.restricted, {"in_partition": partition, "now": tx.now}))

    async def renew(self, tx: Tx, ids: Collection[str], token: str, *, seconds: float) -> set[str]:
        """Hold on for `seconds` from now. Returns the ids still held; the others are lost."""
        values = {"asked_ids": list(ids), "held_token": token, "until": tx.now + timedelta(seconds=seconds)}
        return await self._sql.renew(tx.on_postgres).ids(tx, values)

    async def settle(self, tx: Tx, ids: Collection[str], token: str, *, state: str, **values: object) -> None:
        """End the lease with the table's own word for how it ended. All are settled, or `LeaseLost` and none are."""
        settled = await self.try_settle(tx, ids, token, state=state, **values)
        if lost := sorted(set(ids) - settled):
            raise LeaseLost(ids=", ".join(lost[:5]) + (" …" if len(lost) > 5 else ""))

    async def try_settle(self, tx: Tx, ids: Collection[str], token: str, *, state: str, **values: object) -> set[str]:
        """Like `settle`, but the lost ones are left out and the ids that were settled are returned."""
        statement = self._sql.settle(tx.on_postgres, tuple(values))
        sets = {f"set_{name}": value for name, value in values.items()}
        sets |= {"asked_ids": list(ids), "held_token": token, "to_state": state}
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
        """Give rows back, due now or at `due_at`; returns the ids that were still held.

        `uncounted` is taken off `lease_count`: 1 says that this hold was no attempt. A due time in the past would put
        the row before other claimers' marks, so it counts as now.
        """
        due_at = max(due_at or tx.now, tx.now)
        tx.after.append(partial(self._look_by, due_at))
        self.note_back(tx)
        sets = {f"set_{name}": value for name, value in values.items()}
        sets |= {"asked_ids": list(ids), "held_token": token, "uncounted": uncounted}
        sets |= {"due_at": due_at, "is_deferred": due_at > tx.now}
        statement = self._sql.release(tx.on_postgres, tuple(values))
        return await statement.ids(tx, sets)

    async def expire(self, tx: Tx, *, limit: int = EXPIRE_AT_ONCE) -> Sequence[LeasedRow]:
        """Let rows wait again whose holder fell silent; returns them."""
        values = {"since": self._lapsed.since(tx.now), "now": tx.now, "most": limit}
        rows = await self._sql.expire(tx.on_postgres).rows(tx, values)
        if len(rows) < limit:
            tx.after.append(partial(self._lapsed.looked, tx.now))
        if rows:
            self.note_back(tx)
        return rows

    def lapsed(self, since: ColumnElement[datetime], now: ColumnElement[datetime]) -> ColumnElement[bool]:
        """Whether `expire` has anything to do."""
        return is_any(self._sql.lapsed(since, now))

    async def promote(self, tx: Tx) -> int:
        """Let in the deferred rows that are due now; returns how many."""
        values = {"since": self._due.since(tx.now), "now": tx.now, "most": PROMOTE_AT_ONCE}
        promoted = len(await self._sql.promote(tx.on_postgres).ids(tx, values))
        if promoted < PROMOTE_AT_ONCE:
            tx.after.append(partial(self._due.looked, tx.now))
        if promoted:
            self._marks.clear()
        return promoted

    async def next_due_at(self, tx: Tx) -> datetime | None:
        """When the next row that is not due yet will be."""
        due_at: datetime | None = await tx.conn.scalar(self._sql.next_due, {"now": tx.now})
        return due_at

    def seconds_to_look(self, now: datetime) -> float:
        """How long a waiter may sleep before it should look for work again by itself."""
        return max(0.0, min(LOOK_AGAIN_SECONDS, (self._look_again_at - now).total_seconds()))

    def note_new(self, tx: Tx, *, partition: str, priority: int, due_at: datetime) -> None:
        """Remember that a row was added here, so that the next claim does not overlook it; wake who waits for it."""
        tx.wake(self.channel)
        if due_at > tx.now:
            tx.after.append(partial(self._look_by, due_at))
            return
        mark, _ = self._marks.get(partition, (START, due_at))
        if (priority, due_at) < (mark.priority, mark.scheduled_at):
            del self._marks[partition]

    def note_back(self, tx: Tx) -> None:
        """Remember that rows wait again that may sort before the marks; wake who waits for them."""
        self._marks.clear()
        tx.wake(self.channel)

    async def _promote_when_due(self, tx: Tx) -> None:
        if self._is_early(tx.now):
            return
        self._look_again_at = next_time(tx.now, LOOK_AGAIN_SECONDS)  # sooner if something is noted meanwhile
        promoted = await self.promote(tx)
        self._look_by(await self.next_due_at(tx) if promoted < PROMOTE_AT_ONCE else tx.now)

    def _is_early(self, now: datetime) -> bool:
        """Whether it is not time yet to look by oneself. A time far off is from before the clock was put back."""
        return timedelta() < self._look_again_at - now <= timedelta(seconds=LOOK_AGAIN_SECONDS)

    def _look_by(self, due_at: datetime | None) -> None:
        """Look for work no later than then."""
        if due_at is not None:
            self._look_again_at = min(self._look_again_at, due_at)

    async def _claim_open(self, tx: Tx, ask: Ask) -> Sequence[LeasedRow]:
        """The one statement of a claim in a partition without restrictions; in any other it finds nothing."""
        mark = self._mark(tx, ask.partition)
        rows = await self._execute(tx, ask, mark, gated=True)
        self._keep_mark(tx, ask, mark, rows)
        return rows

    async def _claim_restricted(self, tx: Tx, ask: Ask) -> Sequence[LeasedRow]:
        """A claim in a partition with a ceiling."""
        places = await self._lock_places(tx, ask)
        return await self._execute(tx, replace(ask, limit=places), START, gated=False) if places > 0 else []

    async def _lock_places(self, tx: Tx, ask: Ask) -> int:
        """How many rows may still be taken under the ceiling of a partition, counted under the lock of the partition's
        row, so that rivals count one after another. Zero without a ceiling: what could be taken then was taken."""
        gate = await lock_partition(tx, self.table.name, ask.partition)
        if gate is None or gate.ceiling is None or not gate.open_at(tx.now):
            return 0
        held = await tx.conn.scalar(self._sql.count_held, {"in_partition": ask.partition}) or 0
        return min(ask.limit, gate.ceiling - held)

    async def _execute(self, tx: Tx, ask: Ask, mark: Mark, *, gated: bool) -> Sequence[LeasedRow]:
        values = _asked(tx, ask)
        if gated:
            values |= {"now": tx.now}
        if tx.on_postgres:
            values |= {"from_priority": mark.priority, "from_due": mark.scheduled_at, "from_id": mark.id}
        rows = await self._sql.claim(tx.on_postgres, gated=gated).rows(tx, values)
        return sorted(rows, key=_ORDER)

    async def _execute_these(self, tx: Tx, ask: Ask, ids: Collection[str], *, gated: bool) -> Sequence[LeasedRow]:
        values = _asked(tx, ask) | {"asked_ids": list(ids), "now": tx.now}
        return sorted(await self._sql.claim_these(tx.on_postgres, gated=gated).rows(tx, values), key=_ORDER)

    def _mark(self, tx: Tx, partition: str) -> Mark:
        mark, since = self._marks.get(partition, (START, tx.now))
        return mark if tx.now - since < timedelta(seconds=LOOK_AGAIN_SECONDS) else START

    def _keep_mark(self, tx: Tx, ask: Ask, used: Mark, rows: Sequence[LeasedRow]) -> None:
        """A full batch moves the mark to its first row; a short one may have been the mark's fault and drops it."""
        if not rows or not tx.on_postgres:
            return
        if len(rows) < ask.limit:
            self._marks.pop(ask.partition, None)
            return
        since = tx.now if used is START else self._marks.get(ask.partition, (used, tx.now))[1]
        first = rows[0]
        self._marks[ask.partition] = (Mark(first.priority, first.scheduled_at, first.id), since)


def _asked(tx: Tx, ask: Ask) -> dict[str, object]:
    values: dict[str, object] = {"owner": ask.owner, "token": new_token(), "in_partition": ask.partition}
    return values | {"until": tx.now + timedelta(seconds=ask.seconds), "most": ask.limit}

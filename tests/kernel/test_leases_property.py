"""Random lives of leased rows, beside a small model: whatever happens, no row is held by two and none is lost."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, select

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.leases import POLL_SECONDS, LeaseLost
from penstock.kernel.partitions import cool, lease_partition, pause, resume, set_ceiling
from penstock.kernel.queue import JobQueue, NewJob, job
from tests.conftest import rolled_back

MODULES = ("a", "b")
PROCESSES = 3
LEASE_SECONDS = 30

modules = st.sampled_from(MODULES)
processes = st.integers(0, PROCESSES - 1)
limits = st.integers(1, 4)
some_hold = st.integers(0, 5)  # the latest is 0
delays = st.sampled_from([0, 0.5, 5, 30])
claims = st.one_of(
    st.tuples(st.just("claim"), processes, modules, limits),
    st.tuples(st.just("claim after a while"), processes, modules, limits),
    st.tuples(st.just("claim autocommit"), processes, modules, limits),
    st.tuples(st.just("claim and roll back"), processes, modules, limits),
)
later_verbs = st.one_of(
    st.tuples(st.just("renew"), processes, some_hold),
    st.tuples(st.just("settle"), processes, some_hold),
    st.tuples(st.just("settle some"), processes, some_hold),
    st.tuples(st.just("release"), processes, some_hold, delays),
    st.tuples(st.just("expire"), processes),
)
gates = st.one_of(
    st.tuples(st.just("pause"), modules),
    st.tuples(st.just("resume"), modules),
    st.tuples(st.just("cool"), modules),
    st.tuples(st.just("ceiling"), modules, st.sampled_from([None, 0, 1, 3])),
)
adds = st.tuples(st.just("add"), processes, modules, st.integers(1, 3), delays, st.integers(1, 4))
advances = st.tuples(st.just("advance"), st.sampled_from([0.3, 1, 10, LEASE_SECONDS]))
# Claims come often and gates seldom, or most runs would meet closed and empty partitions.
steps = st.one_of(adds, claims, claims, later_verbs, claims, later_verbs, advances, gates)
walks = st.lists(steps, min_size=20, max_size=50)
few, many = (
    settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    for count in (30, 60)
)


@dataclass
class ModelRow:
    """What we believe about a row."""

    id: str
    module: str
    priority: int
    due_at: datetime
    state: str = "waiting"
    token: str | None = None
    until: datetime | None = None
    count: int = 0

    @property
    def place(self) -> tuple[int, datetime, str]:
        return self.priority, self.due_at, self.id


@dataclass
class ModelPartition:
    """What is set for a partition."""

    paused: bool = False
    cooling_until: datetime | None = None
    ceiling: int | None = None


@dataclass
class Walk:
    """Several processes on one database, and the model that says what each of them must see."""

    db: Db
    clock: ManualClock
    queues: list[JobQueue] = field(default_factory=lambda: [JobQueue() for _ in range(PROCESSES)])
    rows: dict[str, ModelRow] = field(default_factory=dict)
    modules: dict[str, ModelPartition] = field(default_factory=lambda: {module: ModelPartition() for module in MODULES})
    holds: list[tuple[list[str], str]] = field(default_factory=list)
    names: Iterator[int] = field(default_factory=itertools.count)

    def due(self, module: str) -> list[ModelRow]:
        """The rows that may be handed out now, in their order."""
        found = [row for row in self.rows.values() if (row.module, row.state) == (module, "waiting")]
        return sorted((row for row in found if row.due_at <= self.clock.now()), key=lambda row: row.place)

    def space(self, module: str) -> int:
        """How many more rows of a module may be held now."""
        gate = self.modules[module]
        cooling = gate.cooling_until is not None and gate.cooling_until > self.clock.now()
        held = sum(row.state == "running" and row.module == module for row in self.rows.values())
        most = 1000 if gate.ceiling is None else gate.ceiling
        return 0 if gate.paused or cooling else max(0, most - held)

    async def add(self, process: int, module: str, priority: int, delay: float, count: int) -> None:
        new = [
            NewJob(kind="k", id=f"{next(self.names):04}", module=module, priority=priority, delay_seconds=delay)
            for _ in range(count)
        ]
        async with self.db.tx() as tx:
            await self.queues[process].enqueue(tx, *new)
            for one in new:
                due_at = tx.now + timedelta(seconds=delay)
                self.rows[str(one.id)] = ModelRow(id=str(one.id), module=module, priority=priority, due_at=due_at)

    async def claim(self, process: int, module: str, limit: int) -> None:
        async with self.db.tx() as tx:
            claimed = await self.queues[process].leases.claim(
                tx, owner="me", seconds=LEASE_SECONDS, limit=limit, partition=module
            )
        self._take(claimed, module, limit)

    async def claim_after_a_while(self, process: int, module: str, limit: int) -> None:
        """What others did a moment ago may be overlooked for a second, but not longer."""
        self.clock.advance(seconds=POLL_SECONDS)
        expected = [row.id for row in self.due(module)][: min(limit, self.space(module))]
        async with self.db.tx() as tx:
            claimed = await self.queues[process].leases.claim(
                tx, owner="me", seconds=LEASE_SECONDS, limit=limit, partition=module
            )
        assert [row.id for row in claimed] == expected
        self._take(claimed, module, limit)

    async def claim_autocommit(self, process: int, module: str, limit: int) -> None:
        claimed = await self.queues[process].leases.claim_autocommit(
            self.db, owner="me", seconds=LEASE_SECONDS, limit=limit, partition=module
        )
        self._take(claimed, module, limit)

    async def claim_and_roll_back(self, process: int, module: str, limit: int) -> None:
        async with rolled_back(self.db) as tx:
            await self.queues[process].leases.claim(tx, owner="me", seconds=60, limit=limit, partition=module)

    def _take(self, claimed: Sequence[Any], module: str, limit: int) -> None:
        """Whatever was handed out was free, due, in order and within bounds."""
        taken = [self.rows[row.id] for row in claimed]
        free = self.due(module)
        assert all(row in free for row in taken)
        assert taken == sorted(taken, key=lambda row: row.place)
        assert len(taken) <= min(limit, self.space(module))
        assert len({row.lease_token for row in claimed} - {old for _, old in self.holds}) == min(1, len(taken))
        for row, found in zip(taken, claimed, strict=True):
            row.state, row.token, row.count = "running", found.lease_token, row.count + 1
            row.until = self.clock.now() + timedelta(seconds=LEASE_SECONDS)
        if taken:
            self.holds.append(([row.id for row in taken], claimed[0].lease_token))

    def _hold(self, number: int) -> tuple[list[str], str, list[ModelRow]]:
        """Some hold, perhaps long lost; and the rows that are still held under it."""
        ids, token = self.holds[-1 - number % len(self.holds)] if self.holds else (["nothing"], "no token")
        return ids, token, [row for row in self.rows.values() if row.token == token]

    async def renew(self, process: int, number: int) -> None:
        ids, token, held = self._hold(number)
        async with self.db.tx() as tx:
            kept = await self.queues[process].leases.renew(tx, ids, token, seconds=LEASE_SECONDS)
        assert kept == {row.id for row in held}
        for row in held:
            row.until = self.clock.now() + timedelta(seconds=LEASE_SECONDS)

    async def settle(self, process: int, number: int) -> None:
        ids, token, held = self._hold(number)
        try:
            async with self.db.tx() as tx:
                await self.queues[process].leases.settle(tx, ids, token, state="done")
        except LeaseLost:
            assert len(held) < len(ids)
            return
        assert len(held) == len(ids)
        self._end(held)

    async def settle_some(self, process: int, number: int) -> None:
        ids, token, held = self._hold(number)
        async with self.db.tx() as tx:
            settled = await self.queues[process].leases.try_settle(tx, ids[:2], token, state="done")
        mine = [row for row in held if row.id in ids[:2]]
        assert settled == {row.id for row in mine}
        self._end(mine)

    def _end(self, rows: list[ModelRow]) -> None:
        for row in rows:
            row.state, row.token, row.until = "done", None, None

    async def release(self, process: int, number: int, delay: float) -> None:
        ids, token, held = self._hold(number)
        due_at = self.clock.now() + timedelta(seconds=delay)
        async with self.db.tx() as tx:
            released = await self.queues[process].leases.release(tx, ids, token, due_at=due_at, uncounted=1)
        assert released == {row.id for row in held}
        for row in held:
            row.state, row.token, row.until, row.due_at, row.count = "waiting", None, None, due_at, row.count - 1

    async def expire(self, process: int) -> None:
        now = self.clock.now()
        lapsed = [row for row in self.rows.values() if row.until is not None and row.until <= now]
        async with self.db.tx() as tx:
            expired = await self.queues[process].leases.expire(tx)
        assert {row.id for row in expired} == {row.id for row in lapsed}
        for row in lapsed:
            row.state, row.token, row.until, row.due_at = "waiting", None, None, now

    async def pause(self, module: str) -> None:
        async with self.db.tx() as tx:
            await pause(tx, "job", module)
        self.modules[module].paused = True

    async def resume(self, module: str) -> None:
        async with self.db.tx() as tx:
            await resume(tx, "job", module)
        self.modules[module].paused, self.modules[module].cooling_until = False, None

    async def cool(self, module: str) -> None:
        until = self.clock.now() + timedelta(seconds=10)
        async with self.db.tx() as tx:
            await cool(tx, "job", module, until=until)
        self.modules[module].cooling_until = until

    async def ceiling(self, module: str, most: int | None) -> None:
        async with self.db.tx() as tx:
            await set_ceiling(tx, "job", module, most)
        self.modules[module].ceiling = most

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)

    async def drain(self) -> None:
        """In the end every row that is left can be had, whoever asks."""
        self.clock.advance(seconds=3600)
        await self.expire(0)
        for module in MODULES:
            await self.resume(module)
            await self.ceiling(module, None)
            await self.claim_after_a_while(1, module, 1000)
        assert all(row.state != "waiting" for row in self.rows.values())

    async def compare(self) -> None:
        """The table says what the model says."""
        j = job.c
        columns = (j.id, j.state, j.lease_token, j.leased_until, j.scheduled_at, j.lease_count)
        async with self.db.read() as tx:
            found = sorted(tuple(row) for row in await tx.conn.execute(select(*columns)))
        believed = [(r.id, r.state, r.token, r.until, r.due_at, r.count) for r in self.rows.values()]
        assert found == sorted(believed)


async def walk(db: Db, clock: ManualClock, life: Sequence[tuple[Any, ...]]) -> None:
    async with db.tx() as tx:
        await tx.conn.execute(delete(job))
        await tx.conn.execute(delete(lease_partition))
    world = Walk(db, clock)
    for module, priority in itertools.product(MODULES, (1, 2)):
        await world.add(0, module, priority, 0, 4)
    for word, *more in life:
        await getattr(world, word.replace(" ", "_"))(*more)
    await world.compare()
    await world.drain()
    await world.compare()


@pytest.mark.parametrize("db_url", ["sqlite"], indirect=True)
@many
@given(life=walks)
async def test_whatever_happens_no_row_is_held_by_two_and_none_is_lost(db: Db, clock: ManualClock, life):
    await walk(db, clock, life)


@pytest.mark.parametrize("db_url", ["postgres"], indirect=True)
@few
@given(life=walks)
async def test_the_same_holds_on_postgresql(db: Db, clock: ManualClock, life):
    await walk(db, clock, life)

"""The stage runtime on a leased table that is not the job table: progress, cancel, stall, takeover and drain."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from sqlalchemy import Column, Integer, MetaData, String, Table, insert, select, update

from penstock.kernel.clock import ManualClock
from penstock.kernel.columns import Id
from penstock.kernel.db import Db
from penstock.kernel.errors import Conflict, PenstockError, Unavailable
from penstock.kernel.lease_renewer import LeasedTasks
from penstock.kernel.lease_sql import LeaseStates, lease_columns, lease_constraints, lease_indexes
from penstock.kernel.leases import Leases
from penstock.kernel.runstate import RunSnapshot, RunState, SqlRunState
from penstock.kernel.stages.run_handle import HeldLease, RunHandle
from penstock.kernel.stages.stage_run import StageRun

STATES = LeaseStates(column="state", waiting="waiting", held="counting")
LEASE_SECONDS, STALL_SECONDS = 60, 300

toy_slice = Table(
    "toy_slice",
    MetaData(),
    Column("id", Id, primary_key=True),
    Column("state", String, nullable=False, server_default="waiting"),
    Column("counted", Integer),
    *lease_columns(),
    *lease_constraints(STATES),
)
lease_indexes(toy_slice, STATES)


class SliceLost(Conflict):
    """A worker of the toy stage lost its lease."""

    code = "TOY_SLICE_LOST"
    message = "The slice is lost."


class SliceStalled(Unavailable):
    """The toy stage reports nothing."""

    code = "TOY_SLICE_STALLED"
    message = "The slice stands still."


@dataclass(frozen=True)
class SliceCodec:
    """Run state of a slice: how many records are counted."""

    key: str
    run: int = 1

    def encode(self, state: int) -> RunSnapshot:
        return RunSnapshot(key=self.key, run=self.run, order=0, status="counting", fields={"counted": state})

    def resume(self, found: RunSnapshot | None) -> int:
        return 0 if found is None else int(found.fields["counted"])

    def merge(self, state: int, found: RunSnapshot) -> int:
        return max(state, int(found.fields["counted"]))


class ToyModule:
    """A module whose stage counts records of a slice."""

    def __init__(self, db: Db, runs: RunState) -> None:
        self.db = db
        self.runs = runs
        self.leases = Leases(toy_slice, STATES)

    async def add(self, name: str) -> None:
        async with self.db.tx() as tx:
            await tx.conn.execute(insert(toy_slice).values(id=name, scheduled_at=tx.now))

    async def claim(self) -> HeldLease:
        async with self.db.tx() as tx:
            [row] = await self.leases.claim(tx, owner="worker", seconds=LEASE_SECONDS, limit=1)
        return HeldLease(db=self.db, leases=self.leases, row_id=row.id, token=row.lease_token)

    async def open(self, lease: HeldLease) -> StageRun[int]:
        handle = await RunHandle.take_over(self.runs, lease, SliceCodec(lease.row_id))
        errors: dict[str, type[PenstockError]] = {"lost": SliceLost, "stalled": SliceStalled}
        return StageRun(handle, advance=lambda _, done, _of: done, stall_seconds=STALL_SECONDS, **errors)

    async def expire(self) -> None:
        async with self.db.tx() as tx:
            await self.leases.expire(tx)

    async def cancel(self, name: str) -> None:
        async with self.db.tx() as tx:
            ended = {"state": "cancelled", "lease_token": None, "leased_until": None}
            await tx.conn.execute(update(toy_slice).where(toy_slice.c.id == name).values(ended))

    async def settle(self, lease: HeldLease, counted: int) -> None:
        async with self.db.tx() as tx:
            await self.leases.settle(tx, [lease.row_id], lease.token, state="done", counted=counted)

    async def release(self, lease: HeldLease) -> None:
        async with self.db.tx() as tx:
            await self.leases.release(tx, [lease.row_id], lease.token, uncounted=1)

    async def row(self, name: str) -> tuple[str, int | None, int]:
        c = toy_slice.c
        async with self.db.read() as tx:
            found = (await tx.conn.execute(select(c.state, c.counted, c.lease_count).where(c.id == name))).one()
        return found.state, found.counted, found.lease_count

    async def shown(self, name: str) -> RunSnapshot:
        found = await self.runs.get(name)
        assert found is not None
        return found


@pytest.fixture
async def toy(db: Db) -> AsyncIterator[ToyModule]:
    async with db.tx() as tx:
        await tx.conn.run_sync(toy_slice.metadata.create_all)
    yield ToyModule(db, SqlRunState(db, live_seconds=86400, final_seconds=60))
    async with db.tx() as tx:
        await tx.conn.run_sync(toy_slice.metadata.drop_all)


async def test_quick_progress_is_reported_together_and_silence_is_broken_by_a_heartbeat(
    toy: ToyModule, clock: ManualClock
):
    await toy.add("a")
    stage = await toy.open(await toy.claim())
    for done in range(100):
        await stage.progress(done, 100)
    assert (await toy.shown("a")).order == 1
    clock.advance(seconds=0.25)
    await stage.progress(100, 100)
    assert (await toy.shown("a")).fields == {"counted": 100}
    order = (await toy.shown("a")).order
    clock.advance(seconds=9)
    await stage.heartbeat()
    assert (await toy.shown("a")).order == order
    clock.advance(seconds=1)
    await stage.heartbeat()
    assert (await toy.shown("a")).order == order + 1


async def test_a_cancelled_slice_stops_its_worker_and_cannot_be_settled(toy: ToyModule, clock: ManualClock):
    await toy.add("a")
    lease = await toy.claim()
    stage = await toy.open(lease)
    await toy.cancel("a")
    clock.advance(seconds=1)
    await stage.progress(1, 10)  # run state alone does not know of the cancel
    with pytest.raises(SliceLost):
        await stage.check()
    assert stage.is_lost
    with pytest.raises(Conflict):
        await toy.settle(lease, 10)
    assert (await toy.row("a"))[:2] == ("cancelled", None)


async def test_work_that_reports_nothing_is_stopped(toy: ToyModule, clock: ManualClock):
    await toy.add("a")
    stage = await toy.open(await toy.claim())
    started, was_cancelled = asyncio.Event(), asyncio.Event()

    async def stand_still() -> None:
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()

    watched = asyncio.create_task(stage.watched(stand_still()))
    await started.wait()
    await asyncio.sleep(0)
    clock.advance(seconds=STALL_SECONDS)
    with pytest.raises(SliceStalled):
        await watched
    assert was_cancelled.is_set()
    assert not stage.is_lost


async def test_work_that_reports_is_not_stopped_for_being_long(toy: ToyModule, clock: ManualClock):
    await toy.add("a")
    stage = await toy.open(await toy.claim())

    async def count_slowly() -> int:
        for done in range(5):
            clock.advance(seconds=STALL_SECONDS - 1)
            await stage.progress(done, 5)
            await asyncio.sleep(0)
        return 5

    assert await stage.watched(count_slowly()) == 5


async def test_a_killed_worker_is_followed_by_one_that_continues_and_is_itself_refused(
    toy: ToyModule, clock: ManualClock
):
    await toy.add("a")
    former_lease = await toy.claim()
    former = await toy.open(former_lease)
    clock.advance(seconds=1)
    await former.progress(4, 10)
    clock.advance(seconds=LEASE_SECONDS)
    await toy.expire()
    lease = await toy.claim()
    stage = await toy.open(lease)
    assert stage.state == 4
    clock.advance(seconds=1)
    with pytest.raises(SliceLost):
        await former.progress(9, 10)
    await stage.progress(6, 10)
    assert ((await toy.shown("a")).fields, (await toy.shown("a")).token) == ({"counted": 6}, lease.token)
    await stage.check()
    await toy.settle(lease, 10)
    with pytest.raises(Conflict):
        await toy.settle(former_lease, 9)
    assert await toy.row("a") == ("done", 10, 2)


async def test_the_holder_takes_back_what_a_former_one_wrote_once_more(toy: ToyModule, clock: ManualClock):
    await toy.add("a")
    former_lease = await toy.claim()
    clock.advance(seconds=LEASE_SECONDS)
    await toy.expire()
    stage = await toy.open(await toy.claim())
    former = await toy.open(former_lease)  # its takeover was on the way
    clock.advance(seconds=1)
    await former.progress(7, 10)
    await stage.progress(2, 10)
    assert (stage.state, (await toy.shown("a")).fields) == (7, {"counted": 7})
    clock.advance(seconds=1)
    with pytest.raises(SliceLost):
        await former.progress(8, 10)
    await stage.progress(8, 10)
    assert (await toy.shown("a")).fields == {"counted": 8}


async def test_what_was_lost_comes_back_with_the_next_update(toy: ToyModule, clock: ManualClock):
    await toy.add("a")
    stage = await toy.open(await toy.claim())
    shown = await toy.shown("a")
    await toy.runs.put(replace(shown, order=shown.order + 1, token=None))  # shown from its row after a flush
    clock.advance(seconds=1)
    await stage.progress(3, 10)
    assert (await toy.shown("a")).fields == {"counted": 3}


class TestRenewalAndDrain:
    async def test_leases_are_renewed_and_work_in_progress_is_released_by_a_stop(
        self, toy: ToyModule, clock: ManualClock
    ):
        await toy.add("a")
        lease = await toy.claim()
        tasks = LeasedTasks(toy.db, toy.leases, lease_seconds=LEASE_SECONDS, grace_seconds=0)
        started = asyncio.Event()

        async def stand_still() -> None:
            started.set()
            await asyncio.Event().wait()

        async with tasks.renewing():
            tasks.start(lease.row_id, lease.token, stand_still, release=lambda: toy.release(lease))
            await started.wait()
            for _ in range(3):
                clock.advance(seconds=LEASE_SECONDS / 2)
                await tasks._renewer.renew_all()
                await toy.expire()
            await lease.check()
        assert not tasks.running
        assert await toy.row("a") == ("waiting", None, 0)

    async def test_work_that_lost_its_lease_is_cancelled_and_not_released(self, toy: ToyModule):
        await toy.add("a")
        lease = await toy.claim()
        tasks = LeasedTasks(toy.db, toy.leases, lease_seconds=LEASE_SECONDS, grace_seconds=0)
        released: list[str] = []
        started = asyncio.Event()

        async def stand_still() -> None:
            started.set()
            await asyncio.Event().wait()

        async def release() -> None:
            released.append(lease.row_id)

        async with tasks.renewing():
            task = tasks.start(lease.row_id, lease.token, stand_still, release=release)
            await started.wait()
            await toy.cancel("a")
            await tasks._renewer.renew_all()
            await task
        assert released == []
        assert (await toy.row("a"))[0] == "cancelled"

    async def test_work_that_ends_in_time_settles_itself(self, toy: ToyModule):
        await toy.add("a")
        lease = await toy.claim()
        tasks = LeasedTasks(toy.db, toy.leases, lease_seconds=LEASE_SECONDS, grace_seconds=20)

        async def count() -> None:
            await toy.settle(lease, 10)

        async with tasks.renewing():
            tasks.start(lease.row_id, lease.token, count, release=lambda: toy.release(lease))
        assert await toy.row("a") == ("done", 10, 1)

"""The room's periodic_tasks say that they are needed just when they have something to do."""

from sqlalchemy import literal, select

from penstock.kernel.columns import UtcTime
from penstock.kernel.leases import LONG_AGO
from penstock.kernel.scheduler import Scheduler
from penstock.tasks import worker
from tests.tasks.conftest import PROJECT, Room

SOON = "2026-01-01T00:10:00Z"
SOON_SECONDS = 600
TASK = f"{PROJECT}/tasks/a"


async def needed(room: Room) -> list[str]:
    """The periodic_tasks that say that they are needed, of those that do not always say so."""
    moments = literal(LONG_AGO, UtcTime), literal(room.clock.now(), UtcTime)
    async with room.db.read() as tx:
        known = {duty.name: duty.needed for duty in worker.periodic_tasks(room.tools) if duty.needed is not None}
        return [name for name, need in known.items() if await tx.conn.scalar(select(need(*moments)))]


async def test_nothing_is_needed_where_nothing_is(room: Room):
    assert await needed(room) == []
    await room.plan("a", "b", expires_at=SOON)
    await room.pull(client="one")
    assert await needed(room) == []


async def test_a_lease_that_ran_out_is_to_be_timed_out(room: Room):
    await room.plan("a")
    await room.pull(client="one")
    room.clock.advance(seconds=3599)
    assert await needed(room) == []
    room.clock.advance(seconds=1)
    assert await needed(room) == ["time-out-pulls"]
    await room.tidy("time-out-pulls")
    assert await needed(room) == []
    assert (await room.data("GET", TASK))["pull_state"] == "unpulled"


async def test_what_nobody_pulled_in_time_is_to_expire(room: Room):
    await room.plan("a", expires_at=SOON)
    room.clock.advance(seconds=SOON_SECONDS - 1)
    assert await needed(room) == []
    room.clock.advance(seconds=1)
    assert await needed(room) == ["expire-tasks"]
    await room.tidy("expire-tasks")
    assert await needed(room) == []
    assert (await room.data("GET", TASK))["expired_at"] is not None


async def test_what_has_expired_is_to_be_put_away_unless_it_is_kept(room: Room):
    archiving = room.with_rules(expired_action="archive")
    await room.plan("a", expires_at=SOON)
    room.clock.advance(seconds=SOON_SECONDS)
    await room.tidy("expire-tasks")
    assert await needed(room) == []
    assert await needed(archiving) == ["put-away-expired"]
    await archiving.tidy("put-away-expired")
    assert await needed(archiving) == []


async def test_what_is_of_a_deleted_project_is_left_alone(room: Room):
    await room.plan("a", "b", expires_at=SOON)
    await room.pull(client="one")
    await room.data("DELETE", PROJECT)
    room.clock.advance(seconds=3600)
    assert await needed(room) == []


async def test_a_silent_holder_loses_the_task_within_a_second_of_a_quiet_house(room: Room):
    keeper = Scheduler(room.db, worker.periodic_tasks(room.tools), owner="one")
    await keeper.enrol()
    await room.plan("a")
    await room.pull(client="one")
    for seconds in (3598, 1, 0.5):
        await keeper.tick()
        room.clock.advance(seconds=seconds)
    assert (await keeper.tick(), (await room.data("GET", TASK))["pull_state"]) == (0, "pulled_not_pushed")
    room.clock.advance(seconds=0.5)
    await keeper.tick()
    assert (await room.data("GET", TASK))["pull_state"] == "unpulled"

"""Periodic tasks are needed exactly when they have something to do."""

from sqlalchemy import literal, select

from penstock.kernel.columns import UtcTime
from penstock.kernel.leases import EPOCH
from penstock.kernel.scheduler import Scheduler
from penstock.tasks import worker
from tests.tasks.conftest import PROJECT, TasksApi

SOON = "2026-01-01T00:10:00Z"
SOON_SECONDS = 600
TASK = f"{PROJECT}/tasks/a"


async def needed(api: TasksApi) -> list[str]:
    """The periodic tasks that are needed, of those with a condition."""
    moments = literal(EPOCH, UtcTime), literal(api.clock.now(), UtcTime)
    async with api.db.read() as tx:
        known = {task.name: task.needed for task in worker.periodic_tasks(api.deps) if task.needed is not None}
        return [name for name, need in known.items() if await tx.conn.scalar(select(need(*moments)))]


async def test_nothing_is_needed_in_an_empty_project(api: TasksApi):
    assert await needed(api) == []
    await api.plan("a", "b", expires_at=SOON)
    await api.pull(client="one")
    assert await needed(api) == []


async def test_an_expired_lease_needs_expiry(api: TasksApi):
    await api.plan("a")
    await api.pull(client="one")
    api.clock.advance(seconds=3599)
    assert await needed(api) == []
    api.clock.advance(seconds=1)
    assert await needed(api) == ["time-out-pulls"]
    await api.run_periodic_tasks("time-out-pulls")
    assert await needed(api) == []
    assert (await api.data("GET", TASK))["pull_state"] == "unpulled"


async def test_an_offer_past_its_expiry_needs_expiry(api: TasksApi):
    await api.plan("a", expires_at=SOON)
    api.clock.advance(seconds=SOON_SECONDS - 1)
    assert await needed(api) == []
    api.clock.advance(seconds=1)
    assert await needed(api) == ["expire-tasks"]
    await api.run_periodic_tasks("expire-tasks")
    assert await needed(api) == []
    assert (await api.data("GET", TASK))["expired_at"] is not None


async def test_an_expired_task_needs_archiving_unless_it_is_kept(api: TasksApi):
    archiving = api.with_config(expired_action="archive")
    await api.plan("a", expires_at=SOON)
    api.clock.advance(seconds=SOON_SECONDS)
    await api.run_periodic_tasks("expire-tasks")
    assert await needed(api) == []
    assert await needed(archiving) == ["put-away-expired"]
    await archiving.run_periodic_tasks("put-away-expired")
    assert await needed(archiving) == []


async def test_a_deleted_project_needs_nothing(api: TasksApi):
    await api.plan("a", "b", expires_at=SOON)
    await api.pull(client="one")
    await api.data("DELETE", PROJECT)
    api.clock.advance(seconds=3600)
    assert await needed(api) == []


async def test_an_expired_lease_is_found_within_a_second_on_an_idle_system(api: TasksApi):
    scheduler = Scheduler(api.db, worker.periodic_tasks(api.deps), owner="one")
    await scheduler.register()
    await api.plan("a")
    await api.pull(client="one")
    for seconds in (3598, 1, 0.5):
        await scheduler.tick()
        api.clock.advance(seconds=seconds)
    assert (await scheduler.tick(), (await api.data("GET", TASK))["pull_state"]) == (0, "pulled_not_pushed")
    api.clock.advance(seconds=0.5)
    await scheduler.tick()
    assert (await api.data("GET", TASK))["pull_state"] == "unpulled"

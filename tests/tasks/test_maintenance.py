"""Lease expiry, the limit of attempts, and retention of history."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import func, select, text

from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.tasks import worker
from penstock.tasks.deps import Deps
from penstock.tasks.store import expiry, projects
from penstock.tasks.store.tables import task_change, task_pull
from tests.conftest import open_db
from tests.tasks.conftest import PROJECT, Profile, TasksApi, on_sqlite

HAND = f"{PROJECT}/tasks/a/pull"


async def hold(api: TasksApi, client: str = "one") -> dict[str, Any]:
    """Pull task `a` as a client."""
    [task] = await api.pull(client=client)
    shown: dict[str, Any] = task
    return shown


async def let_leases_expire(api: TasksApi, seconds: float = 3600) -> None:
    api.clock.advance(seconds=seconds)
    await api.run_periodic_tasks("time-out-pulls")


async def blocked(db: Db) -> int:
    """How many of this database's connections wait for a lock."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with db.read() as tx:
        return int(await tx.conn.scalar(text(waiting)) or 0)


class TestLeaseExpiry:
    async def test_the_lifecycle_of_a_task_whose_first_lease_expires(self, api: TasksApi):
        await api.plan("a", tags=["x"])
        first = await hold(api)
        await let_leases_expire(api)
        task = await api.data("GET", f"{PROJECT}/tasks/a")
        assert (task["pull_state"], task["pulled_by"], task["status"]) == ("unpulled", None, "pending")
        [second] = await api.pull("tags=x", client="two")
        assert (second["task_id"], second["pull_attempts"]) == ("a", 2)
        for verb in ("confirm", "renew", "release"):
            path = f"{HAND}/{verb}"
            for said in ({"x_lease_token": first["lease_token"]}, {"x_client_id": "one"}):
                status, error = await api.error("POST", path, key="anna", **said)
                assert (status, error["details"]["reason"]) == (409, "its lease expired; two holds it now")
        still = await api.data("GET", f"{PROJECT}/tasks/a")
        assert (still["pulled_by"], still["leased_until"]) == ("two", second["leased_until"])

    async def test_history_and_feed_record_it(self, api: TasksApi):
        await api.plan("a")
        await hold(api)
        await let_leases_expire(api)
        line = (await api.data("GET", f"{PROJECT}/changes"))["changes"][-1]
        assert (line["kind"], line["holder"], line["by"]) == ("timed_out", "one", "system-timeout")
        async with api.db.read() as tx:
            row = (await tx.conn.execute(select(task_pull))).one()
        assert (row.outcome, row.ended_by, row.seconds) == ("timed_out", "system-timeout", 3600.0)

    async def test_a_renewed_lease_is_kept(self, api: TasksApi):
        await api.plan("a")
        held = await hold(api)
        await let_leases_expire(api, 3599)
        await api.data("POST", f"{HAND}/renew", x_lease_token=held["lease_token"])
        await let_leases_expire(api, 3599)
        task = await api.data("GET", f"{PROJECT}/tasks/a")
        assert (task["pull_state"], task["pulled_by"]) == ("pulled_not_pushed", "one")

    async def test_a_renewal_in_the_last_moment_keeps_the_lease(
        self, postgres_url: str, deps: Deps, clock: ManualClock, profile: Profile
    ):
        """The periodic task has found the expired lease and waits for the project's lock; the holder renews."""
        db = open_db(postgres_url, clock)
        api = TasksApi(replace(deps, db=db), clock, profile)
        try:
            await api.make_project("p1")
            await api.plan("a")
            held = await hold(api)
            clock.advance(seconds=3600)
            async with db.tx() as tx:
                await projects.claim_project(tx, "p1")
                running = asyncio.create_task(api.run_periodic_tasks("time-out-pulls"))
                async with asyncio.timeout(20):
                    while not await blocked(db):  # noqa: ASYNC110  (the server alone knows who waits)
                        await asyncio.sleep(0.01)
                await api.data("POST", f"{HAND}/renew", x_lease_token=held["lease_token"])
            await asyncio.wait_for(running, timeout=20)
            assert (await api.data("GET", f"{PROJECT}/tasks/a"))["pulled_by"] == "one"
        finally:
            await db.close()

    async def test_what_was_running_is_pending_again_and_counted_so(self, api: TasksApi):
        await api.plan("a", queue="q1")
        held = await hold(api)
        running = {"status": "running"}
        await api.data("PATCH", "/tasks/p1/q1/a/status", running, x_lease_token=held["lease_token"])
        await let_leases_expire(api)
        queue = await api.data("GET", f"{PROJECT}/queues/q1")
        assert (queue["task_stats"]["pending"], queue["task_stats"]["running"]) == (1, 0)
        assert (await api.data("GET", f"{PROJECT}/tasks/a"))["status"] == "pending"

    async def test_a_waiting_pull_gets_the_task(self, api: TasksApi):
        await api.plan("a")
        await hold(api)
        api.clock.advance(seconds=3600)
        waiting = asyncio.create_task(api.pull("wait=30", client="two"))
        await api.run_periodic_tasks("time-out-pulls")
        [task] = await asyncio.wait_for(waiting, timeout=20)
        assert task["pulled_by"] == "two"

    async def test_more_than_one_batch_is_done_at_once_in_every_project(
        self, api: TasksApi, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(expiry, "BATCH_SIZE", 100)
        generous = api.with_config(batch_size=1000)
        for project_id, count in (("p1", 100), ("p2", 60)):
            tasks = [{"taskId": f"t{number}", "name": "n", "prompt": "p"} for number in range(count)]
            if project_id == "p2":
                await generous.data("POST", "/projects", {"project_id": "p2", "name": "P2"})
            await generous.data("POST", f"/projects/{project_id}/tasks/batch", {"tasks": tasks})
            await generous.data("GET", f"/projects/{project_id}/tasks/pull?limit=1000", x_client_id="one")
        await let_leases_expire(generous)
        for project_id in ("p1", "p2"):
            stats = await generous.data("GET", f"/projects/{project_id}/tasks/pull/pending?timeout=0")
            assert stats["total"] == 0

    async def test_tasks_of_a_deleted_project_are_ignored(self, api: TasksApi):
        await api.plan("a")
        await hold(api)
        await api.data("DELETE", PROJECT)
        await asyncio.wait_for(let_leases_expire(api), timeout=20)

    @on_sqlite
    async def test_expired_leases_are_checked_often_enough_to_be_pulled_again_within_a_second(self, api: TasksApi):
        every = {running.name: running.every_seconds for running in worker.periodic_tasks(api.deps)}
        assert every["time-out-pulls"] <= 0.5
        assert {"expire-tasks", "put-away-expired", "forget-pulls"} <= set(every)


class TestAttempts:
    async def test_ten_pulls_without_a_push_put_a_task_into_error(self, api: TasksApi):
        await api.plan("a")
        for number in range(1, 11):
            assert (await hold(api, f"client-{number}"))["pull_attempts"] == number
            await let_leases_expire(api)
        assert await api.pull() == []
        task = await api.data("GET", f"{PROJECT}/tasks/a")
        assert (task["status"], task["pull_state"], task["pulled_by"]) == ("error", "unpulled", None)
        assert task["error_reason"] == "Pulled 10 times without a push, last by client-10."
        project = await api.data("GET", PROJECT)
        assert (project["unqueued_count"], project["task_stats"]["total"]) == (1, 0)
        line = (await api.data("GET", f"{PROJECT}/changes"))["changes"][-1]
        assert (line["kind"], line["status"], line["holder"]) == ("timed_out", "error", "client-10")

    @on_sqlite
    async def test_a_reset_restarts_the_count(self, api: TasksApi):
        hasty = api.with_config(max_attempts=1)
        await hasty.plan("a")
        await hold(hasty)
        await hasty.data("POST", f"{HAND}/reset")
        assert (await hold(hasty))["pull_attempts"] == 1
        await let_leases_expire(hasty)
        await hasty.data("POST", f"{PROJECT}/tasks/a/re-run")
        assert (await hold(hasty))["pull_attempts"] == 1


class TestRetention:
    async def test_old_pulls_and_feed_entries_are_deleted_and_open_pulls_stay(self, api: TasksApi):
        await api.plan("a", "b")
        await api.data("GET", f"{PROJECT}/tasks/pull?limit=1", x_client_id="one")
        await api.data("POST", f"{HAND}/release", x_client_id="one")
        [open_one] = await api.pull("limit=1")
        api.clock.advance(seconds=86400 * 2)
        await api.run_periodic_tasks("forget-pulls")
        assert await self.kept(api) == {"task_pull": 2, "task_change": 3}
        api.clock.advance(seconds=86400 * 364)
        await api.plan("c")
        await api.run_periodic_tasks("forget-pulls")
        assert await self.kept(api) == {"task_pull": 1, "task_change": 1}
        history = await api.data("GET", f"{PROJECT}/tasks/{open_one['task_id']}/pull/history")
        assert history["pull_history"][0]["released_at"] is None

    async def kept(self, api: TasksApi) -> dict[str, int]:
        async with api.db.read() as tx:
            tables = (task_pull, task_change)
            return {one.name: await tx.conn.scalar(select(func.count()).select_from(one)) or 0 for one in tables}

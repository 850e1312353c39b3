"""Removing a project or a queue with everything in it."""

import asyncio
from datetime import timedelta

from sqlalchemy import Table, func, select, update

from penstock.kernel import queue
from penstock.tasks import remove
from penstock.tasks.deps import Config
from penstock.tasks.domain import PullOutcome
from penstock.tasks.lifecycle import offer_channel
from penstock.tasks.store import tables
from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite
from tests.tasks.records import audited
from tests.tasks.stored_state import events_of, project_of

MANY = 2_100  # more than one batch of 2,000
OF_TASKS = (tables.task, tables.task_message, tables.task_log, tables.task_pull, tables.task_offer_tag)


async def rows(api: TasksApi, table: Table) -> int:
    async with api.db.read() as tx:
        return await tx.conn.scalar(select(func.count()).select_from(table)) or 0


async def fill(api: TasksApi, place: str, tag: str = "x") -> None:
    """A queue with a pushed task with messages, an offered task, and one that worker-1 holds."""
    said = {"messages": [{"role": "user", "content": "c"}], "logs": [{"content": "c"}]}
    await api.submit({"id": "mine", **said}, queue=place)
    await api.plan("held", queue=place, tags=[tag], priority=10)
    assert [task["task_id"] for task in await api.pull("limit=1", queue=place)] == ["held"]
    await api.plan("offered", queue=place, tags=[tag])


async def test_a_deleted_queue_is_found_nowhere_at_once(api: TasksApi):
    await fill(api, "q2")
    data = await api.data("DELETE", f"{PROJECT}/queues/q2")
    assert data == {"project_id": "p1", "queue_id": "q2", "deleted": True}
    for path in ("", "/tasks", "/tasks/mine", "/tasks/check?since=0"):
        status, error = await api.error("GET", f"{PROJECT}/queues/q2{path}")
        assert (status, error["details"]["code"]) == (404, "QUEUE_NOT_FOUND"), path
    for task in ("mine", "held", "offered"):
        status, error = await api.error("GET", f"{PROJECT}/tasks/{task}")
        assert (status, error["details"]["code"]) == (404, "TASK_NOT_FOUND"), task
    assert [item["id"] for item in (await api.data("GET", f"{PROJECT}/queues"))["items"]] == ["q1"]
    assert (await api.data("GET", f"{PROJECT}/tasks?queue=any"))["items"] == []
    assert (await api.data("GET", f"{PROJECT}/tasks?queue=any&search=e"))["pagination"]["total"] == 0


async def test_a_task_of_a_deleted_queue_can_be_neither_changed_nor_restored(api: TasksApi):
    await fill(api, "q2")
    await api.data("DELETE", f"{PROJECT}/queues/q2")
    for task in ("mine", "held", "offered"):
        for method, path, body in (("PUT", "", {"name": "n"}), ("DELETE", "", None), ("POST", "/restore", None)):
            status, error = await api.error(method, f"{PROJECT}/tasks/{task}{path}", body)
            assert (status, error["details"]["code"]) == (404, "TASK_NOT_FOUND"), (task, path)
    assert (await api.data("GET", PROJECT))["task_count"] == 0


async def test_periodic_tasks_skip_deleted_queues_and_projects(api: TasksApi):
    await fill(api, "q2")
    await api.plan("late", queue="q2", expires_at="2026-01-01T00:00:30Z")
    await api.submit({"id": "kept"})
    api.clock.advance(seconds=60)
    archiving = api.with_config(expired_action="archive")
    await api.run_periodic_tasks()
    await api.data("DELETE", f"{PROJECT}/queues/q2")
    before = await api.data("GET", PROJECT)
    assert before["task_count"] == 1
    api.clock.advance(seconds=2 * 86_400)
    await archiving.run_periodic_tasks()
    assert await api.data("GET", PROJECT) == before
    await api.data("DELETE", PROJECT)
    await archiving.run_periodic_tasks()
    await api.run_jobs()
    assert await rows(api, tables.task) == 0


async def test_counts_stay_right_when_a_queue_is_deleted(api: TasksApi):
    await fill(api, "q2")
    await api.submit({"id": "a"}, {"id": "b", "status": "done"})
    before = await api.data("GET", PROJECT)
    assert (before["queue_count"], before["task_count"]) == (2, 5)
    await api.data("DELETE", f"{PROJECT}/queues/q2")
    after = await api.data("GET", PROJECT)
    assert (after["queue_count"], after["task_count"]) == (1, 2)
    assert after["task_stats"] == {"total": 2, "pending": 1, "running": 0, "done": 1, "error": 0, "cancelled": 0}
    assert after["version"] == before["version"] + 1
    await api.run_jobs()
    assert await api.data("GET", PROJECT) == after


async def test_tasks_of_a_deleted_queue_can_be_neither_pulled_nor_renewed(api: TasksApi):
    await fill(api, "q2", tag="x")
    await api.data("DELETE", f"{PROJECT}/queues/q2")
    assert await api.pull() == []
    assert await api.pull("tags=x") == []
    for path in ("tasks/held", "queues/q2/tasks/held"):
        status, _ = await api.error("POST", f"{PROJECT}/{path}/pull/renew", x_client_id="worker-1")
        assert status == 404, path
    status, _ = await api.error("PATCH", "/tasks/p1/q2/held/status", {"status": "done"}, x_client_id="worker-1")
    assert status == 404


async def test_open_pulls_end_as_revoked_when_their_queue_is_deleted(api: TasksApi):
    await fill(api, "q2")
    await fill(api, "q1")
    api.clock.advance(seconds=7)
    await api.data("DELETE", f"{PROJECT}/queues/q2")
    p = tables.task_pull.c
    async with api.db.read() as tx:
        ended = select(p.outcome, p.ended_by, p.seconds).order_by(p.id)
        found = [tuple(row) for row in await tx.conn.execute(ended)]
    assert found == [(PullOutcome.REVOKED, "root", 7.0), (None, None, None)]


async def test_a_job_deletes_the_rows_of_a_deleted_queue_and_no_others(api: TasksApi):
    await fill(api, "q1")
    await fill(api, "q2")
    await api.plan("beside")
    await api.data("DELETE", f"{PROJECT}/queues/q2")
    await api.run_jobs()
    assert [await rows(api, table) for table in OF_TASKS] == [4, 1, 1, 1, 1]
    kept = await api.data("GET", f"{PROJECT}/tasks?queue=any")
    assert [task["task_id"] for task in kept["items"]] == ["mine", "held", "offered", "beside"]
    assert [task["task_id"] for task in await api.pull()] == ["offered", "beside"]


async def test_a_deleted_project_is_found_nowhere_at_once(api: TasksApi):
    await fill(api, "q2")
    assert await api.data("DELETE", PROJECT) == {"project_id": "p1", "deleted": True}
    for path in ("", "/metadata", "/queues", "/queues/q2", "/tasks", "/tasks/mine", "/tasks/pull"):
        status, error = await api.error("GET", f"{PROJECT}{path}")
        assert (status, error["details"]["code"]) == (404, "PROJECT_NOT_FOUND"), path
    assert (await api.data("GET", "/projects"))["items"] == []
    status, _ = await api.error("POST", f"{PROJECT}/tasks/held/pull/renew", x_client_id="worker-1")
    assert status == 404
    status, _ = await api.error("DELETE", PROJECT)
    assert status == 404


async def test_everything_in_a_deleted_project_is_deleted_and_the_audit_log_stays(api: TasksApi):
    await fill(api, "q2")
    await api.data("PUT", f"{PROJECT}/metadata", {"customTitle": "secret", "notes": "secret", "tags": ["secret"]})
    await api.make_project("p2")
    await api.data("DELETE", PROJECT)
    await api.run_jobs()
    empty = (*OF_TASKS, tables.task_change, tables.queue, tables.project_tag)
    assert [await rows(api, table) for table in empty] == [0] * len(empty)
    assert (await api.data("GET", "/projects/tags"))["tags"] == []
    async with api.db.read() as tx:
        left = (await tx.conn.execute(select(tables.project).where(tables.p.project_id == "p1"))).one()
    assert "secret" not in str(tuple(left))
    [line] = await audited(api, "tasks.delete_project")
    assert (line.actor, line.target, line.detail["tasks"]) == ("key:k-root", "project:p1", 3)
    assert (await api.data("GET", "/projects/p2"))["id"] == "p2"


async def test_an_id_can_be_reused_at_once_and_the_job_keeps_the_new_project(api: TasksApi):
    await fill(api, "q2")
    await api.data("DELETE", f"{PROJECT}/queues/q2")
    await fill(api, "q2")
    assert (await api.data("GET", f"{PROJECT}/queues/q2"))["task_count"] == 3
    await api.data("DELETE", PROJECT)
    await api.submit({"id": "mine"}, queue="q2")
    shown = await api.data("GET", PROJECT)
    assert (shown["queue_count"], shown["task_count"], shown["metadata"]) == (1, 1, None)
    await api.run_jobs()
    assert await api.data("GET", PROJECT) == shown
    assert (await api.data("GET", f"{PROJECT}/tasks/mine"))["queue_id"] == "q2"
    assert await rows(api, tables.task) == 1


async def test_many_tasks_are_removed_in_batches_and_a_second_run_is_harmless(api: TasksApi):
    await api.submit(*({"id": f"t{number}"} for number in range(MANY)))
    await api.submit({"id": "kept"}, queue="q2")
    assert await rows(api, tables.task) == MANY + 1
    await api.data("DELETE", f"{PROJECT}/queues/q1")
    assert (await api.data("GET", f"{PROJECT}/tasks?queue=any"))["pagination"]["total"] == 1
    await api.run_jobs()
    assert await rows(api, tables.task) == 1
    await rerun_removal(api)
    assert await rows(api, tables.task) == 1
    assert (await api.data("GET", f"{PROJECT}/tasks?queue=any"))["items"][0]["id"] == "kept"


async def rerun_removal(api: TasksApi) -> None:
    """Run every removal job again, as after a worker that crashed."""
    j = queue.job.c
    async with api.db.tx() as tx:
        ids = (await tx.conn.scalars(select(j.id).where(j.kind == remove.REMOVE_JOB))).all()
        assert ids
        again = update(queue.job).where(j.id.in_(ids))
        await tx.conn.execute(again.values(state=queue.JobState.WAITING, finished_at=None, scheduled_at=tx.now))
        api.deps.queue.leases.note_requeued(tx)
    await api.run_jobs()


@on_sqlite
async def test_a_key_bound_to_a_project_may_delete_it_and_no_other(api: TasksApi):
    await api.make_project("p2")
    status, error = await api.error("DELETE", PROJECT, key="elsewhere")
    assert (status, error["details"]["code"]) == (403, "OTHER_PROJECT")
    await api.data("DELETE", "/projects/p2", key="elsewhere")
    assert (await api.data("GET", "/projects"))["pagination"]["total"] == 1


async def test_tombstones_are_deleted_after_the_history_retention(api: TasksApi):
    await api.make_project("p2")
    await api.data("DELETE", "/projects/p2")
    await api.data("DELETE", f"{PROJECT}/queues/q1")
    await api.run_jobs()
    await api.run_periodic_tasks("forget-removed")
    assert (await rows(api, tables.project), await rows(api, tables.queue)) == (2, 1)
    api.clock.advance(seconds=timedelta(days=Config().history_days + 1).total_seconds())
    await api.run_periodic_tasks("forget-removed")
    assert (await rows(api, tables.project), await rows(api, tables.queue)) == (1, 0)
    assert (await api.data("GET", PROJECT))["queue_count"] == 0


async def test_waiting_requests_are_notified_of_a_removal(api: TasksApi):
    for path in (f"{PROJECT}/queues/q1", PROJECT):
        project = await project_of(api)
        ear = api.db.wakeups.listen([offer_channel(project.id)])
        await api.data("DELETE", path)
        await asyncio.wait_for(ear.wait(seconds=60), timeout=20)
        api.db.wakeups.unlisten(ear)
        assert (await events_of(api))[-1].data == {"version": project.version + 1, "changed": 0}

"""What the audit log tells of pushes and projects."""

from collections.abc import Sequence

from penstock.access import audit
from penstock.access.audit import AuditLine
from tests.tasks.conftest import PROJECT, TasksApi


async def lines(api: TasksApi) -> Sequence[AuditLine]:
    async with api.db.read() as tx:
        return list(reversed(await audit.list_lines(tx, limit=100)))


async def test_a_push_and_the_project_it_makes_are_recorded(api: TasksApi):
    await api.submit({"id": "t1"}, {"id": "t2"}, key="anna", project_id="new")
    await api.submit({"id": "t2", "status": "done"}, key="bert", project_id="new")
    found = [line for line in await lines(api) if line.target == "project:new"]
    assert [(line.actor, line.action) for line in found] == [
        ("key:k-anna", "tasks.create_project"),
        ("key:k-anna", "tasks.push"),
        ("key:k-bert", "tasks.push"),
    ]
    _, first, second = found
    assert first.detail == {"by": "anna", "queue": "q1", "tasks": 2, "changed": 2, "dropped": 0}
    assert second.detail == {"by": "bert", "queue": "q1", "tasks": 1, "changed": 2, "dropped": 1}


async def test_a_refused_push_leaves_no_line(api: TasksApi):
    await api.submit({"id": "t1"})
    before = await lines(api)
    body = {"project_id": "p1", "project_name": "P", "queue_id": "q1", "queue_name": "Q", "tasks": []}
    assert (await api.call("POST", "/submit", body)).status == 400
    assert await lines(api) == before


async def test_a_project_or_queue_that_is_emptied_is_recorded_with_its_count(api: TasksApi):
    await api.submit({"id": "t1"}, {"id": "t2"})
    await api.data("POST", f"{PROJECT}/queues/q1/reset")
    await api.data("DELETE", f"{PROJECT}/queues/q1")
    await api.data("DELETE", PROJECT)
    told = {line.action: line.detail for line in await lines(api)}
    assert told["tasks.delete_queue"]["tasks"] == 2
    assert {"tasks.reset", "tasks.delete_project"} <= set(told)

"""Verbs take the caller's transaction: a message handler can call several, and they commit or roll back together."""

from typing import Any

import pytest

from penstock.access.domain import Caller, Scope
from penstock.kernel.db import Tx
from penstock.tasks import edit, manage_projects
from penstock.tasks.deps import Deps
from penstock.tasks.domain import Task
from penstock.tasks.edit import QueuePath, TaskSpec
from penstock.tasks.manage_projects import NewQueue
from tests.tasks.conftest import PROJECT, TasksApi

SYSTEM = Caller(name="etl", user_id=0, scope=Scope.ADMIN)
SCHEMA = {"type": "object", "required": ["total"]}


class HandlerFailed(Exception):
    """The handler fails after it called its verbs."""


async def ask_for_review(tx: Tx, deps: Deps) -> Task:
    """What a message handler may do: a queue, and a task in it."""
    await manage_projects.create_queue(tx, SYSTEM, "p1", NewQueue(queue_id="reviews", name="Reviews"))
    spec = TaskSpec(task_id="etl:42", name="Review", prompt="Check the total.", result_schema=SCHEMA)
    [task] = await edit.create(tx, deps, SYSTEM, QueuePath(project_id="p1", queue_id="reviews"), [spec])
    return task


async def fail_after_the_verbs(api: TasksApi) -> None:
    async with api.db.tx(actor=SYSTEM.name) as tx:
        await ask_for_review(tx, api.deps)
        raise HandlerFailed


async def stored(api: TasksApi) -> dict[str, Any]:
    """Everything that the verbs write: the project with its counters, the queues, the feed and the offers."""
    project = await api.data("GET", PROJECT)
    queues = await api.data("GET", f"{PROJECT}/queues")
    feed = await api.data("GET", f"{PROJECT}/changes")
    return {"project": project, "queues": queues, "feed": feed, "offered": await api.pull()}


async def test_two_verbs_in_one_transaction_commit_together(api: TasksApi):
    async with api.db.tx(actor=SYSTEM.name) as tx:
        await ask_for_review(tx, api.deps)
    [task] = await api.pull(queue="reviews")
    assert (task["task_id"], task["result_schema"], task["created_by"]) == ("etl:42", SCHEMA, "etl")


async def test_two_verbs_in_one_transaction_roll_back_together(api: TasksApi):
    before = await stored(api)
    with pytest.raises(HandlerFailed):
        await fail_after_the_verbs(api)
    assert await stored(api) == before


async def test_two_verbs_may_change_the_same_task_in_one_transaction(api: TasksApi):
    async with api.db.tx(actor=SYSTEM.name) as tx:
        task = await ask_for_review(tx, api.deps)
        result = await edit.delete(tx, api.deps, SYSTEM, QueuePath(project_id="p1"), [task.task_id])
    assert result.one().deleted_at is not None
    assert await api.pull() == []
    kinds = [entry["kind"] for entry in (await api.data("GET", f"{PROJECT}/changes"))["changes"]]
    assert kinds == ["created", "deleted"]
    assert (await api.data("GET", PROJECT))["task_stats"]["total"] == 0

"""Stored state, read from the tables instead of the routes."""

from collections.abc import Sequence
from dataclasses import replace

from penstock.kernel import events
from penstock.kernel.events import Interest
from penstock.tasks.domain import Policy, Project, Task, TaskQueue
from penstock.tasks.lifecycle import find_task, open_unit_of_work
from penstock.tasks.store import feed, projects, pulls, queues, task_messages
from penstock.tasks.store.feed import FeedEntry
from penstock.tasks.store.pulls import PullRecord
from tests.conftest import sequence
from tests.tasks.conftest import TasksApi


async def project_of(api: TasksApi, project_id: str = "p1") -> Project:
    async with api.db.read() as tx:
        return await projects.get_project(tx, project_id)


async def queue_of(api: TasksApi, queue_id: str = "q1") -> TaskQueue:
    project = await project_of(api)
    async with api.db.read() as tx:
        return await queues.get_queue(tx, project.id, queue_id, project_id="p1")


async def task_of(api: TasksApi, task_id: str, queue_id: str | None = None) -> Task:
    project = await project_of(api)
    async with api.db.read() as tx:
        queue = None if queue_id is None else await queues.find_queue(tx, project.id, queue_id)
        return await find_task(tx, project, task_id, queue)


async def pulls_of(api: TasksApi, task_id: str) -> Sequence[PullRecord]:
    task = await task_of(api, task_id)
    async with api.db.read() as tx:
        return await pulls.list_pulls(tx, task.id, offset=0, limit=100)


async def messages_of(api: TasksApi, task_id: str) -> list[tuple[int, str, str, str | None]]:
    task = await task_of(api, task_id)
    async with api.db.read() as tx:
        said = await task_messages.list_messages(tx, task.id)
    assert task.message_count == (said[-1].number + 1 if said else 0)
    return [(one.number, one.role, one.content, one.session_id) for one in said]


async def log_of(api: TasksApi, task_id: str) -> list[tuple[int, str]]:
    task = await task_of(api, task_id)
    async with api.db.read() as tx:
        lines = await task_messages.list_log(tx, task.id)
    assert task.log_count == (lines[-1].number + 1 if lines else 0)
    return [(one.number, one.content) for one in lines]


async def changes_after(api: TasksApi, version: int) -> list[FeedEntry]:
    project = await project_of(api)
    async with api.db.read() as tx:
        return await feed.list_changes(tx, project.id, after=version, upto=project.version, limit=100)


async def set_policy(api: TasksApi, policy: Policy) -> None:
    async with api.db.tx() as tx:
        uow = await open_unit_of_work(tx, "p1")
        uow.project = replace(uow.project, conflict_policy=policy)
        await uow.close(by="test")


async def events_of(api: TasksApi) -> list[events.StoredEvent]:
    """The events of the project."""
    await sequence(api.db)
    async with api.db.read() as tx:
        return await events.list_events(tx, Interest(topic="project:p1"))

"""Looking at what is kept, past the routes."""

from collections.abc import Sequence
from dataclasses import replace

from penstock.kernel import events
from penstock.kernel.events import Interest
from penstock.tasks.domain import Policy, Project, Queue, Task
from penstock.tasks.lifecycle import find_task, open_book
from penstock.tasks.store import feed, projects, pulls, queues, task_messages
from penstock.tasks.store.feed import Line
from penstock.tasks.store.pulls import Pull
from tests.tasks.conftest import Room


async def project_of(room: Room, project_id: str = "p1") -> Project:
    async with room.db.read() as tx:
        return await projects.get_project(tx, project_id)


async def queue_of(room: Room, queue_id: str = "q1") -> Queue:
    project = await project_of(room)
    async with room.db.read() as tx:
        return await queues.get_queue(tx, project.id, queue_id, project_id="p1")


async def task_of(room: Room, task_id: str, queue_id: str | None = None) -> Task:
    project = await project_of(room)
    async with room.db.read() as tx:
        queue = None if queue_id is None else await queues.find_queue(tx, project.id, queue_id)
        return await find_task(tx, project, task_id, queue)


async def pulls_of(room: Room, task_id: str) -> Sequence[Pull]:
    task = await task_of(room, task_id)
    async with room.db.read() as tx:
        return await pulls.list_pulls(tx, task.id, offset=0, limit=100)


async def messages_of(room: Room, task_id: str) -> list[tuple[int, str, str, str | None]]:
    task = await task_of(room, task_id)
    async with room.db.read() as tx:
        said = await talk.list_messages(tx, task.id)
    assert task.message_count == (said[-1].number + 1 if said else 0)
    return [(one.number, one.role, one.content, one.session_id) for one in said]


async def log_of(room: Room, task_id: str) -> list[tuple[int, str]]:
    task = await task_of(room, task_id)
    async with room.db.read() as tx:
        lines = await talk.list_log(tx, task.id)
    assert task.log_count == (lines[-1].number + 1 if lines else 0)
    return [(one.number, one.content) for one in lines]


async def changes_after(room: Room, version: int) -> list[Line]:
    project = await project_of(room)
    async with room.db.read() as tx:
        return await feed.list_changes(tx, project.id, after=version, upto=project.version, limit=100)


async def set_policy(room: Room, policy: Policy) -> None:
    async with room.db.tx() as tx:
        book = await open_book(tx, "p1")
        book.project = replace(book.project, conflict_policy=policy)
        await book.close(by="test")


async def events_of(room: Room) -> list[events.Told]:
    """What those who watch the project were told."""
    async with room.db.read() as tx:
        return await events.list_events(tx, Interest(topic="project:p1"))

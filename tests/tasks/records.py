"""Reads from the tables for tests, where no response shows it as a whole."""

from sqlalchemy import select

from penstock.access import audit
from penstock.access.audit import AuditLine
from penstock.kernel.events import event
from penstock.tasks.domain import Counts, Task
from penstock.tasks.store import projects, pulls, queues, tasks
from penstock.tasks.store.tables import task_change
from tests.conftest import sequence
from tests.tasks.conftest import TasksApi


async def stored(api: TasksApi, task_id: str, queue_id: str = "") -> Task:
    """A task of p1 in a queue, or without a queue."""
    async with api.db.read() as tx:
        project = await projects.get_project(tx, "p1")
        found = await tasks.list_by_task_id(tx, project.id, [task_id])
    (one,) = (task for task in found if task.queue_id == queue_id)
    return one


async def counted(api: TasksApi, queue_id: str | None = None) -> Counts:
    """The task counters of a queue of p1, or of p1."""
    async with api.db.read() as tx:
        project = await projects.get_project(tx, "p1")
        if queue_id is None:
            return project.counts
        return (await queues.get_queue(tx, project.id, queue_id, project_id="p1")).counts


async def changes(api: TasksApi) -> list[tuple[str, str, int]]:
    """The change feed of p1: task id, kind and version."""
    async with api.db.read() as tx:
        project = await projects.get_project(tx, "p1")
        c = task_change.c
        mine = select(c.task_id, c.kind, c.version).where(c.project_pk == project.id).order_by(c.version)
        return [(row.task_id, row.kind, row.version) for row in await tx.conn.execute(mine)]


async def pulled(api: TasksApi, task_id: str, queue_id: str = "") -> list[tuple[str, str | None, str | None]]:
    """Who pulled a task, who ended the pull, and the outcome; oldest first."""
    task = await stored(api, task_id, queue_id)
    async with api.db.read() as tx:
        found = await pulls.list_pulls(tx, task.id, offset=0, limit=100)
    return [(one.pulled_by, one.ended_by, one.outcome) for one in found]


async def audited(api: TasksApi, action: str) -> list[AuditLine]:
    """The audit log lines of an action, newest first."""
    async with api.db.read() as tx:
        return list(await audit.list_lines(tx, action=action, limit=100))


async def event_counts(api: TasksApi) -> list[int]:
    """The number of changes in each event of p1, in order."""
    await sequence(api.db)
    async with api.db.read() as tx:
        mine = select(event.c.data).where(event.c.topic == "project:p1", event.c.kind == "tasks_changed")
        return [data["changed"] for data in await tx.conn.scalars(mine.order_by(event.c.id))]

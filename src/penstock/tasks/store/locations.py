"""The location of a pull: a project, or one of its queues, resolved from client ids to primary keys."""

from dataclasses import dataclass

from sqlalchemy import Select, bindparam, select

from penstock.kernel.columns import Id
from penstock.kernel.db import Tx
from penstock.kernel.dialect.compiled_statement import CompiledStatement
from penstock.tasks.errors import ProjectNotFound, QueueNotFound
from penstock.tasks.store.tables import project, queue

p, q = project.c, queue.c


@dataclass(frozen=True, kw_only=True)
class Location:
    """A project, and a queue of it if one is named."""

    project_id: str
    project_pk: str
    queue_pk: str | None = None


def _in_project() -> Select[tuple[str]]:
    return select(p.id).where(p.project_id == bindparam("project", type_=Id), p.deleted_at.is_(None))


_PROJECT = CompiledStatement(_in_project())
_QUEUE = CompiledStatement(
    select(q.id).where(
        q.project_pk == bindparam("project", type_=Id),
        q.queue_id == bindparam("queue", type_=Id),
        q.deleted_at.is_(None),
    )
)


async def get_location(tx: Tx, project_id: str, queue_id: str | None) -> Location:
    """Resolve a project and a queue. Raises `ProjectNotFound` or `QueueNotFound`."""
    found = await _PROJECT.ids(tx, {"project": project_id})
    if not found:
        raise ProjectNotFound(project_id=project_id)
    [project_pk] = found
    if queue_id is None:
        return Location(project_id=project_id, project_pk=project_pk)
    queues = await _QUEUE.ids(tx, {"project": project_pk, "queue": queue_id})
    if not queues:
        raise QueueNotFound(project_id=project_id, queue_id=queue_id)
    [queue_pk] = queues
    return Location(project_id=project_id, project_pk=project_pk, queue_pk=queue_pk)

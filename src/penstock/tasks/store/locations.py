"""Where a pull looks: a project, or one queue of it, found by its name in one read."""

from collections import OrderedDict
from dataclasses import dataclass

from sqlalchemy import Select, bindparam, select

from penstock.kernel.columns import Id
from penstock.kernel.db import Tx
from penstock.kernel.hot import HotStatement
from penstock.tasks.errors import ProjectNotFound, QueueNotFound
from penstock.tasks.store.tables import project, queue

p, q = project.c, queue.c
MOST_PLACES = 10_000


@dataclass(frozen=True, kw_only=True)
class Place:
    """A project, and a queue of it when one is meant."""

    project_id: str
    project_pk: str
    queue_pk: str | None = None


def _in_project() -> Select[tuple[str]]:
    return select(p.id).where(p.project_id == bindparam("project", type_=Id), p.deleted_at.is_(None))


_PROJECT = HotStatement(_in_project())
_QUEUE = HotStatement(
    select(q.id).where(
        q.project_pk == bindparam("project", type_=Id),
        q.queue_id == bindparam("queue", type_=Id),
        q.deleted_at.is_(None),
    )
)


async def get_place(tx: Tx, project_id: str, queue_id: str | None) -> Place:
    """The place of those names, or `ProjectNotFound` or `QueueNotFound`."""
    found = await _PROJECT.ids(tx, {"project": project_id})
    if not found:
        raise ProjectNotFound(project_id=project_id)
    [project_pk] = found
    if queue_id is None:
        return Place(project_id=project_id, project_pk=project_pk)
    queues = await _QUEUE.ids(tx, {"project": project_pk, "queue": queue_id})
    if not queues:
        raise QueueNotFound(project_id=project_id, queue_id=queue_id)
    [queue_pk] = queues
    return Place(project_id=project_id, project_pk=project_pk, queue_pk=queue_pk)


class Atlas:
    """Places as they were last found. A place that is gone has nothing to hand out, so whoever finds something by a
    remembered place was right, and whoever finds nothing has to look again."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str | None], Place] = OrderedDict()

    def find(self, project_id: str, queue_id: str | None) -> Place | None:
        """A place, if it is remembered."""
        return self._known.get((project_id, queue_id))

    async def look_up(self, tx: Tx, project_id: str, queue_id: str | None) -> Place:
        """A place as it is now, remembered from now on."""
        self._known.pop((project_id, queue_id), None)
        place = self._known[project_id, queue_id] = await get_place(tx, project_id, queue_id)
        if len(self._known) > MOST_PLACES:
            self._known.popitem(last=False)
        return place

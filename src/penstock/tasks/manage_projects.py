"""Create and change projects and queues: names, project metadata, conflict policy.

Tasks are not touched. A push creates and renames projects and queues too; these are the verbs without a push.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypedDict

from penstock.access import audit
from penstock.access.domain import Caller
from penstock.kernel.db import Tx
from penstock.tasks.domain import Policy, Project, TaskQueue
from penstock.tasks.errors import OwnerRefused, ProjectExists, QueueExists
from penstock.tasks.lifecycle import open_unit_of_work
from penstock.tasks.store import projects


class ProjectChanges(TypedDict, total=False):
    """Project fields to change; absent fields keep their value."""

    name: str
    conflict_policy: Policy
    merchant_id: int | None


class MetadataChanges(TypedDict, total=False):
    """Metadata fields to change; absent fields keep their value."""

    custom_title: str | None
    notes: str | None
    tags: tuple[str, ...]


class QueueChanges(TypedDict, total=False):
    """Queue fields to change; absent fields keep their value."""

    name: str
    meta: Any


@dataclass(frozen=True, kw_only=True)
class NewQueue:
    """A queue to create."""

    queue_id: str
    name: str
    meta: Any = None


async def create_project(
    tx: Tx, caller: Caller, *, project_id: str, name: str, conflict_policy: Policy, merchant_id: int | None
) -> Project:
    """Create an empty project, of the caller's merchant unless another is given. Raises `ProjectExists`."""
    if merchant_id is not None and not caller.is_admin:
        raise OwnerRefused
    new = Project(
        id=tx.new_id("project"),
        project_id=project_id,
        name=name,
        conflict_policy=conflict_policy,
        merchant_id=merchant_id or caller.merchant_id,
        created_at=tx.now,
        updated_at=tx.now,
    )
    if not await projects.insert_missing(tx, new):
        raise ProjectExists(project_id=project_id)
    await _audit(tx, caller, "tasks.create_project", project_id, conflict_policy=conflict_policy)
    return new


async def change_project(tx: Tx, caller: Caller, project_id: str, changes: ProjectChanges) -> Project:
    """Change the name or the conflict policy of a project."""
    uow = await open_unit_of_work(tx, project_id)
    if "merchant_id" in changes and not caller.is_admin:
        raise OwnerRefused
    uow.project = replace(uow.project, **changes, updated_at=tx.now)
    await _audit(tx, caller, "tasks.change_project", project_id, changed=sorted(changes))
    await uow.close(by=caller.name)
    return uow.project


async def put_metadata(tx: Tx, caller: Caller, project_id: str, changes: MetadataChanges) -> Project:
    """Set metadata of a project."""
    uow = await open_unit_of_work(tx, project_id)
    first = uow.project.metadata_created_at or tx.now
    uow.project = _with_metadata(uow.project, changes, since=first, now=tx.now)
    await projects.replace_tags(tx, uow.project.id, uow.project.tags)
    await _audit(tx, caller, "tasks.put_metadata", project_id, changed=sorted(changes))
    await uow.close(by=caller.name)
    return uow.project


async def delete_metadata(tx: Tx, caller: Caller, project_id: str) -> Project:
    """Delete the metadata of a project, if there is any."""
    uow = await open_unit_of_work(tx, project_id)
    if uow.project.metadata_created_at is None:
        return uow.project
    cleared: MetadataChanges = {"custom_title": None, "notes": None, "tags": ()}
    uow.project = _with_metadata(uow.project, cleared, since=None, now=tx.now)
    await projects.replace_tags(tx, uow.project.id, ())
    await _audit(tx, caller, "tasks.delete_metadata", project_id)
    await uow.close(by=caller.name)
    return uow.project


async def create_queue(tx: Tx, caller: Caller, project_id: str, new: NewQueue) -> TaskQueue:
    """Create an empty queue. Raises `QueueExists`."""
    uow = await open_unit_of_work(tx, project_id)
    if await uow.find_queue(new.queue_id) is not None:
        raise QueueExists(project_id=project_id, queue_id=new.queue_id)
    queue = TaskQueue(
        id=tx.new_id("queue"),
        project_pk=uow.project.id,
        queue_id=new.queue_id,
        name=new.name,
        meta=new.meta,
        created_at=tx.now,
        updated_at=tx.now,
    )
    uow.put_queue(queue)
    uow.project = replace(uow.project, queue_count=uow.project.queue_count + 1, updated_at=tx.now)
    await _audit(tx, caller, "tasks.create_queue", project_id, queue=new.queue_id)
    await uow.close(by=caller.name)
    return queue


async def change_queue(tx: Tx, caller: Caller, project_id: str, queue_id: str, changes: QueueChanges) -> TaskQueue:
    """Change the name or the meta of a queue."""
    uow = await open_unit_of_work(tx, project_id)
    changed = replace(await uow.get_queue(queue_id), **changes, updated_at=tx.now)
    uow.put_queue(changed)
    await _audit(tx, caller, "tasks.change_queue", project_id, queue=queue_id, changed=sorted(changes))
    await uow.close(by=caller.name)
    return changed


def _with_metadata(known: Project, changes: MetadataChanges, *, since: datetime | None, now: datetime) -> Project:
    at = now if since is not None else None
    return replace(known, **changes, metadata_created_at=since, metadata_updated_at=at, updated_at=now)


async def _audit(tx: Tx, caller: Caller, action: str, project_id: str, **detail: object) -> None:
    await audit.record(tx, caller, action, f"project:{project_id}", **detail)

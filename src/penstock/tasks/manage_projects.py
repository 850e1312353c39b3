"""Projects and queues as people arrange them: making and renaming them, what is noted about a project, its policy.

Nothing here touches a task. A push makes and renames projects and queues too; these are the ways without one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypedDict

from penstock.access import audit
from penstock.access.domain import Caller
from penstock.kernel.db import Tx
from penstock.tasks.deps import Deps
from penstock.tasks.domain import Policy, Project, Queue
from penstock.tasks.errors import ProjectExists, QueueExists
from penstock.tasks.lifecycle import open_book
from penstock.tasks.store import projects


class ProjectChanges(TypedDict, total=False):
    """What may be changed about a project; what is absent stays."""

    name: str
    conflict_policy: Policy


class MetadataChanges(TypedDict, total=False):
    """What people note about a project; what is absent stays."""

    custom_title: str | None
    notes: str | None
    tags: tuple[str, ...]


class QueueChanges(TypedDict, total=False):
    """What may be changed about a queue; what is absent stays."""

    name: str
    meta: Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class NewQueue:
    """A queue to be made."""

    queue_id: str
    name: str
    meta: Mapping[str, Any] | None = None


async def create_project(
    tools: Deps, caller: Caller, *, project_id: str, name: str, conflict_policy: Policy
) -> Project:
    """Make an empty project, or `ProjectExists`."""
    async with tools.db.tx(actor=caller.name) as tx:
        new = Project(
            id=tx.new_id("project"),
            project_id=project_id,
            name=name,
            conflict_policy=conflict_policy,
            created_at=tx.now,
            updated_at=tx.now,
        )
        if not await projects.insert_missing(tx, new):
            raise ProjectExists(project_id=project_id)
        await _note(tx, caller, "tasks.create_project", project_id, conflict_policy=conflict_policy)
    return new


async def change_project(tools: Deps, caller: Caller, project_id: str, changes: ProjectChanges) -> Project:
    """Give a project another name or policy."""
    async with tools.db.tx(actor=caller.name) as tx:
        book = await open_book(tx, project_id)
        book.project = replace(book.project, **changes, updated_at=tx.now)
        await _note(tx, caller, "tasks.change_project", project_id, changed=sorted(changes))
        await book.close(by=caller.name)
    return book.project


async def put_metadata(tools: Deps, caller: Caller, project_id: str, changes: MetadataChanges) -> Project:
    """Note something about a project."""
    async with tools.db.tx(actor=caller.name) as tx:
        book = await open_book(tx, project_id)
        first = book.project.metadata_created_at or tx.now
        book.project = _noted(book.project, changes, since=first, now=tx.now)
        await projects.replace_tags(tx, book.project.id, book.project.tags)
        await _note(tx, caller, "tasks.put_metadata", project_id, changed=sorted(changes))
        await book.close(by=caller.name)
    return book.project


async def delete_metadata(tools: Deps, caller: Caller, project_id: str) -> Project:
    """Forget what was noted about a project. Nothing happens where nothing was."""
    async with tools.db.tx(actor=caller.name) as tx:
        book = await open_book(tx, project_id)
        if book.project.metadata_created_at is None:
            return book.project
        nothing: MetadataChanges = {"custom_title": None, "notes": None, "tags": ()}
        book.project = _noted(book.project, nothing, since=None, now=tx.now)
        await projects.replace_tags(tx, book.project.id, ())
        await _note(tx, caller, "tasks.delete_metadata", project_id)
        await book.close(by=caller.name)
    return book.project


async def create_queue(tools: Deps, caller: Caller, project_id: str, new: NewQueue) -> Queue:
    """Make an empty queue, or `QueueExists`."""
    async with tools.db.tx(actor=caller.name) as tx:
        book = await open_book(tx, project_id)
        if await book.find_queue(new.queue_id) is not None:
            raise QueueExists(project_id=project_id, queue_id=new.queue_id)
        made = Queue(
            id=tx.new_id("queue"),
            project_pk=book.project.id,
            queue_id=new.queue_id,
            name=new.name,
            meta=new.meta,
            created_at=tx.now,
            updated_at=tx.now,
        )
        book.put_queue(made)
        book.project = replace(book.project, queue_count=book.project.queue_count + 1, updated_at=tx.now)
        await _note(tx, caller, "tasks.create_queue", project_id, queue=new.queue_id)
        await book.close(by=caller.name)
    return made


async def change_queue(tools: Deps, caller: Caller, project_id: str, queue_id: str, changes: QueueChanges) -> Queue:
    """Give a queue another name or another meta."""
    async with tools.db.tx(actor=caller.name) as tx:
        book = await open_book(tx, project_id)
        changed = replace(await book.get_queue(queue_id), **changes, updated_at=tx.now)
        book.put_queue(changed)
        await _note(tx, caller, "tasks.change_queue", project_id, queue=queue_id, changed=sorted(changes))
        await book.close(by=caller.name)
    return changed


def _noted(known: Project, changes: MetadataChanges, *, since: datetime | None, now: datetime) -> Project:
    at = now if since is not None else None
    return replace(known, **changes, metadata_created_at=since, metadata_updated_at=at, updated_at=now)


async def _note(tx: Tx, caller: Caller, action: str, project_id: str, **detail: object) -> None:
    await audit.note(tx, caller, action, f"project:{project_id}", **detail)

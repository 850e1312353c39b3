"""Projects: rows, metadata, and the row lock that serialises changes inside a project."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, bindparam, delete, func, insert, or_, select, union_all, update

from penstock.access.domain import ProjectAccess
from penstock.kernel.columns import Id
from penstock.kernel.db import Tx
from penstock.kernel.dialect.bulk import WriteBatch, insert_new, insert_rows
from penstock.kernel.dialect.compiled_statement import CompiledStatement, LeasedRow
from penstock.kernel.dialect.sql import any_selected
from penstock.tasks.domain import Counts, Policy, Project, StateCounts, Status
from penstock.tasks.errors import ProjectNotFound
from penstock.tasks.store.search import contains, folded
from penstock.tasks.store.tables import project, project_tag

p = project.c
IS_ACTIVE = p.deleted_at.is_(None)
COUNTS = tuple(status.value for status in Status)
UNQUEUED = {name: f"unqueued_{name}" for name in COUNTS}
NAMES = tuple(known.name for known in fields(Project) if known.name not in {"counts", "unqueued", "states"})
_CLAIM = CompiledStatement(
    select(project).where(p.project_id == bindparam("named", type_=Id), IS_ACTIVE).with_for_update()
)


def _states(row: Row[Any] | LeasedRow) -> StateCounts:
    return StateCounts(open_tasks=row.open_tasks, closed_tasks=row.closed_tasks, idle_tasks=row.idle_tasks)


def from_row(row: Row[Any] | LeasedRow) -> Project:
    """A project from its row."""
    known = {name: getattr(row, name) for name in NAMES}
    known |= {"tags": tuple(row.tags), "conflict_policy": Policy(row.conflict_policy)}
    counts = Counts(**{name: getattr(row, name) for name in COUNTS})
    unqueued = Counts(**{name: getattr(row, UNQUEUED[name]) for name in COUNTS})
    return Project(**known, counts=counts, unqueued=unqueued, states=_states(row))


def values_of(known: Project) -> dict[str, Any]:
    """The columns of a project's row."""
    values = {name: getattr(known, name) for name in NAMES} | vars(known.counts) | vars(known.states)
    values |= {UNQUEUED[name]: count for name, count in vars(known.unqueued).items()}
    values["tags"] = list(known.tags)
    values["search_text"] = folded(known.name, known.custom_title)
    values["active_at"] = known.active_at
    return values


async def find_project(tx: Tx, project_id: str) -> Project | None:
    """A project by its `project_id`, or None."""
    row = (await tx.conn.execute(select(project).where(p.project_id == project_id, IS_ACTIVE))).one_or_none()
    return None if row is None else from_row(row)


async def get_project(tx: Tx, project_id: str) -> Project:
    """A project by its `project_id`. Raises `ProjectNotFound`."""
    found = await find_project(tx, project_id)
    if found is None:
        raise ProjectNotFound(project_id=project_id)
    return found


async def find_merchant(tx: Tx, project_id: str) -> int | None:
    """The merchant that owns a project; None if there is no such project or it has no owner."""
    merchant_id: int | None = await tx.conn.scalar(select(p.merchant_id).where(p.project_id == project_id, IS_ACTIVE))
    return merchant_id


async def claim_project(tx: Tx, project_id: str) -> Project:
    """Like `get_project`, and lock its row until this transaction ends."""
    found = await _CLAIM.rows(tx, {"named": project_id})
    if not found:
        raise ProjectNotFound(project_id=project_id)
    return from_row(found[0])


async def claim_project_by_pk(tx: Tx, project_pk: str) -> Project | None:
    """Lock a project by primary key; None if it was deleted in the meantime."""
    mine = select(project).where(p.id == project_pk, IS_ACTIVE).with_for_update()
    row = (await tx.conn.execute(mine)).one_or_none()
    return None if row is None else from_row(row)


async def insert_project(tx: Tx, new: Project) -> None:
    """Insert a project."""
    await tx.conn.execute(insert(project).values(values_of(new)))


async def insert_missing(tx: Tx, new: Project) -> bool:
    """Insert a project unless its id exists; waits for a concurrent insert. Returns whether it was inserted."""
    values = values_of(new)
    return bool(await insert_new(tx, project, list(values), [list(values.values())]))


def move_project(writes: WriteBatch, before: Project, after: Project) -> None:
    """Write the changed columns of a project that this transaction has locked."""
    old, new = values_of(before), values_of(after)
    changed = {name: value for name, value in new.items() if value != old[name]}
    if changed:
        writes.update(project, ("id", *changed), [(after.id, *changed.values())])


async def replace_tags(tx: Tx, project_pk: str, tags: Iterable[str]) -> None:
    """Replace the searchable tags of a project."""
    await tx.conn.execute(delete(project_tag).where(project_tag.c.project_pk == project_pk))
    await insert_rows(tx, project_tag, ("tag", "project_pk"), [(tag, project_pk) for tag in tags])


async def delete_project(tx: Tx, project_pk: str) -> None:
    """Turn a project into a tombstone: it is no longer found, and its texts are erased.

    The tombstone is kept for a while, so that clients that poll for changes see the deletion.
    """
    texts = ("custom_title", "notes", "username", "hostname", "project_path", "repository", "branch")
    erased: dict[str, Any] = {"deleted_at": tx.now, "updated_at": tx.now, "name": "", "search_text": "", "tags": []}
    await tx.conn.execute(update(project).where(p.id == project_pk).values(erased | dict.fromkeys(texts)))
    await replace_tags(tx, project_pk, ())


async def delete_project_tombstones(tx: Tx, *, before: datetime, limit: int = 1_000) -> int:
    """Delete tombstones older than `before`; returns how many."""
    old = select(p.id).where(p.deleted_at < before).order_by(p.deleted_at).limit(limit)
    return (await tx.conn.execute(delete(project).where(p.id.in_(old)))).rowcount


def _among(only: ProjectAccess) -> ColumnElement[bool]:
    """Whether a project is one of those that a caller may use. Two lookups by an index; SQLite would scan for an OR."""
    named = select(p.id).where(p.project_id.in_(sorted(only.ids)), IS_ACTIVE)
    if only.merchant_id is None:
        return any_selected(p.id, named)
    found = union_all(named, select(p.id).where(p.merchant_id == only.merchant_id)).subquery()
    return any_selected(p.id, select(found.c.id))


def _filtered(statement: Select[Any], *, search: str, tags: Sequence[str], only: ProjectAccess | None) -> Select[Any]:
    statement = statement.where(IS_ACTIVE)
    if only is not None:
        statement = statement.where(_among(only))
    if search:
        statement = statement.where(contains(p.search_text, search))
    for tag in tags:
        tagged = select(project_tag.c.project_pk).where(project_tag.c.tag == tag, project_tag.c.project_pk == p.id)
        statement = statement.where(tagged.exists())
    return statement


async def list_projects(
    tx: Tx, *, search: str = "", tags: Sequence[str] = (), only: ProjectAccess | None = None, offset: int, limit: int
) -> list[Project]:
    """Projects, ordered by their newest task; `only` are those that the caller may use."""
    filtered = _filtered(select(project), search=search, tags=tags, only=only)
    # Few projects are sorted by an expression, which no index has: planners would scan all projects in their order.
    newest = p.active_at if only is None else func.coalesce(p.active_at, p.created_at)
    filtered = filtered.order_by(newest.desc(), p.id.desc())
    return [from_row(row) for row in await tx.conn.execute(filtered.offset(offset).limit(limit))]


async def count_projects(
    tx: Tx, *, search: str = "", tags: Sequence[str] = (), only: ProjectAccess | None = None
) -> int:
    """How many projects `list_projects` would list in all."""
    filtered = _filtered(select(func.count()).select_from(project), search=search, tags=tags, only=only)
    return await tx.conn.scalar(filtered) or 0


async def list_tags(tx: Tx, *, only: ProjectAccess | None, limit: int) -> list[str]:
    """The tags of projects, most used first."""
    used = select(project_tag.c.tag).group_by(project_tag.c.tag)
    if only is not None:
        used = used.where(any_selected(project_tag.c.project_pk, select(p.id).where(_among(only), IS_ACTIVE)))
    rows = await tx.conn.scalars(used.order_by(func.count().desc(), project_tag.c.tag).limit(limit))
    return list(rows.all())


async def find_last_change(tx: Tx, *, only: ProjectAccess | None) -> datetime | None:
    """When a project was last created, changed or deleted; `only` are those that the caller may use."""
    newest = select(p.updated_at).order_by(p.updated_at.desc()).limit(1)
    if only is None:
        latest: datetime | None = await tx.conn.scalar(newest)
        return latest
    latest = await tx.conn.scalar(select(func.max(p.updated_at)).where(_among(only), IS_ACTIVE))
    own = or_(p.project_id.in_(sorted(only.ids)), p.merchant_id == only.merchant_id)
    deleted = select(p.deleted_at).where(p.deleted_at.is_not(None), own).order_by(p.deleted_at.desc()).limit(1)
    gone: datetime | None = await tx.conn.scalar(deleted)
    return max((moment for moment in (latest, gone) if moment is not None), default=None)

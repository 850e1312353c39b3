"""Statements on reviews and corrections. Corrections are only added; ending one sets a timestamp."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Row, Select, Table, delete, func, insert, select, update

from penstock.etl.domain import EtlTask, Status
from penstock.etl.domain.review import Correction, Review, ValueCounts
from penstock.etl.store.tables import correction_is_active, etl_correction, etl_review, etl_task
from penstock.kernel.db import Tx

v, c = etl_review.c, etl_correction.c
NAMES = tuple(known.name for known in fields(Correction))
COLUMNS = tuple(c[name] for name in NAMES)


@dataclass(frozen=True, kw_only=True)
class RuleFilter:
    """Which reviews or corrections of a rule to list; None means any."""

    rule_id: int
    user_id: int | None = None
    version: int | None = None

    def apply(self, statement: Select[Any], table: Table, *, before: int | None, limit: int) -> Select[Any]:
        """The statement restricted to these rows, newest first, with ids below `before`."""
        t = table.c
        statement = statement.where(t.rule_id == self.rule_id)
        if self.user_id is not None:
            statement = statement.where(t.user_id == self.user_id)
        if self.version is not None:
            statement = statement.where(t.rule_version == self.version)
        return _newest(statement, table, before=before, limit=limit)


async def claim_completed(tx: Tx, task: EtlTask) -> bool:
    """Lock a completed run; returns False if it is not completed. Others can then not review, retry or remove it."""
    t = etl_task.c
    mine = select(t.id).where(t.id == task.id, t.run == task.run, t.status == Status.COMPLETED.value)
    return await tx.conn.scalar(mine.with_for_update()) is not None


async def find_review(tx: Tx, *, task_id: int, run: int) -> Review | None:
    """The review of a run's result."""
    row = (await tx.conn.execute(select(etl_review).where(v.task_id == task_id, v.run == run))).one_or_none()
    return None if row is None else _review(row)


async def insert_review(tx: Tx, new: Review) -> None:
    """Add a review; the database assigns its id."""
    known = {name: getattr(new, name) for name in ("task_id", "run", "user_id", "rule_id", "rule_version")}
    await tx.conn.execute(insert(etl_review).values(**known, **_review_values(tx, new)))


async def move_review(tx: Tx, before: Review, after: Review) -> bool:
    """Update a review; returns whether it still had the revision of `before`."""
    guarded = update(etl_review).where(v.id == before.id, v.revision == before.revision)
    return (await tx.conn.execute(guarded.values(_review_values(tx, after)))).rowcount == 1


async def list_reviews(tx: Tx, chosen: RuleFilter, *, before: int | None, limit: int) -> list[Review]:
    """Reviews of a rule's results, newest first."""
    rows = await tx.conn.execute(chosen.apply(select(etl_review), etl_review, before=before, limit=limit))
    return [_review(row) for row in rows]


async def find_correction(tx: Tx, task_id: int, correction_id: int) -> Correction | None:
    """One correction of a task."""
    row = (await tx.conn.execute(select(*COLUMNS).where(c.id == correction_id, c.task_id == task_id))).one_or_none()
    return None if row is None else _correction(row)


async def list_active_corrections(tx: Tx, *, task_id: int, run: int) -> list[Correction]:
    """The active corrections of a run's result, oldest first."""
    mine = select(*COLUMNS).where(c.task_id == task_id, c.run == run, correction_is_active)
    rows = await tx.conn.execute(mine.order_by(c.id))
    return [_correction(row) for row in rows]


async def list_of_task(tx: Tx, task_id: int, *, before: int | None, limit: int) -> list[Correction]:
    """All corrections of a task, newest first: of every run, including superseded and withdrawn ones."""
    mine = select(*COLUMNS).where(c.task_id == task_id)
    rows = await tx.conn.execute(_newest(mine, etl_correction, before=before, limit=limit))
    return [_correction(row) for row in rows]


async def list_of_rule(tx: Tx, chosen: RuleFilter, *, before: int | None, limit: int) -> list[Correction]:
    """Active corrections of a rule's results, newest first."""
    active = select(*COLUMNS).where(correction_is_active)
    rows = await tx.conn.execute(chosen.apply(active, etl_correction, before=before, limit=limit))
    return [_correction(row) for row in rows]


async def count_of_task(tx: Tx, task_id: int) -> int:
    """How many corrections a task has, including superseded and withdrawn ones."""
    mine = select(func.count()).select_from(etl_correction).where(c.task_id == task_id)
    return await tx.conn.scalar(mine) or 0


async def insert_corrections(tx: Tx, new: Sequence[Correction]) -> list[int]:
    """Add corrections; returns their ids in the same order."""
    if not new:
        return []
    rows = [{name: getattr(one, name) for name in NAMES if name != "id"} for one in new]
    statement = insert(etl_correction).returning(c.id, sort_by_parameter_order=True)
    return list((await tx.conn.scalars(statement, rows)).all())


async def move_superseded(tx: Tx, ids: Collection[int]) -> None:
    """Mark active corrections as superseded."""
    if ids:
        these = update(etl_correction).where(c.id.in_(list(ids)), correction_is_active)
        await tx.conn.execute(these.values(superseded_at=tx.now, ended_by=tx.actor))


async def move_withdrawn(tx: Tx, correction_id: int) -> None:
    """Mark an active correction as withdrawn."""
    this = update(etl_correction).where(c.id == correction_id, correction_is_active)
    await tx.conn.execute(this.values(withdrawn_at=tx.now, ended_by=tx.actor))


async def delete_of_tasks(tx: Tx, task_ids: Collection[int]) -> None:
    """Delete the reviews and corrections of these tasks."""
    these = list(task_ids)
    await tx.conn.execute(delete(etl_correction).where(c.task_id.in_(these)))
    await tx.conn.execute(delete(etl_review).where(v.task_id.in_(these)))


def _newest(statement: Select[Any], table: Table, *, before: int | None, limit: int) -> Select[Any]:
    """Newest first, with ids below `before`."""
    if before is not None:
        statement = statement.where(table.c.id < before)
    return statement.order_by(table.c.id.desc()).limit(limit)


def _review_values(tx: Tx, review: Review) -> dict[str, Any]:
    return {
        "revision": review.revision,
        "reviewed_at": review.reviewed_at,
        "reviewed_by": review.reviewed_by,
        "looked_at": review.counts.values,
        "corrected": review.counts.corrected,
        "fields": dict(review.counts.fields),
        "updated_at": tx.now,
    }


def _review(row: Row[Any]) -> Review:
    known = dict(row._mapping)
    by_field = {name: (values, wrong) for name, (values, wrong) in known.pop("fields").items()}
    counts = ValueCounts(values=known.pop("looked_at"), corrected=known.pop("corrected"), fields=by_field)
    del known["updated_at"]
    return Review(**known, counts=counts)


def _correction(row: Row[Any]) -> Correction:
    return Correction(**dict(zip(NAMES, row, strict=True)))

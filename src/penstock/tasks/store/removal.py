"""A project or a queue that goes as a whole: what pulls could meet leaves at once, the rows go later, in bites.

Only tasks that are on offer, held or expired are written to: whoever looks for those does not ask whether their queue
or project is there. All the others may be a million, and are found by nobody once the queue or the project is marked.
"""

from typing import Any

from sqlalchemy import ColumnElement, delete, or_, select, update

from penstock.kernel.bulk import update_rows
from penstock.kernel.db import Tx
from penstock.tasks.domain import Outcome, PullState
from penstock.tasks.store.tables import HELD, LIVES, OFFERED, task, task_offer_tag, task_pull
from penstock.tasks.store.tasks import delete_tasks

t, tp, o = task.c, task_pull.c, task_offer_tag.c
NAMES = ("task_pk", "outcome", "ended_at", "ended_by", "seconds")
FREED = ("lease_owner", "lease_token", "leased_until", "pulled_at", "confirmed_at", "status_at_pull")


def _in(project_pk: str, queue_pk: str | None) -> ColumnElement[bool]:
    """In a queue, or without one anywhere in the project, whatever else is marked there."""
    here = t.partition_key == project_pk
    return here if queue_pk is None else here & (t.queue_pk == queue_pk)


async def withdraw_all(tx: Tx, project_pk: str, queue_pk: str | None, *, by: str) -> None:
    """Take every task there off offer and out of its holder's hands.

    The caller has claimed the project, so no task comes meanwhile. Pulls do not ask for that lock: this waits for
    those that are under way, and only then looks for what they hold.
    """
    here = _in(project_pk, queue_pk)
    gone: dict[str, Any] = {"deleted_at": tx.now, "state": PullState.IDLE, **dict.fromkeys(FREED)}
    await tx.conn.execute(update(task).where(here, or_(OFFERED, HELD), LIVES).values(gone))
    await tx.conn.execute(update(task).where(here, t.expired_at.is_not(None), LIVES).values(deleted_at=tx.now))
    await _end_open_pulls(tx, project_pk, here, by=by)
    tagged = select(t.id).where(t.id == o.task_pk, here)
    await tx.conn.execute(delete(task_offer_tag).where(o.project_pk == project_pk, tagged.exists()))


async def _end_open_pulls(tx: Tx, project_pk: str, here: ColumnElement[bool], *, by: str) -> None:
    held = select(tp.task_pk, tp.pulled_at).join_from(task_pull, task, t.id == tp.task_pk)
    found = await tx.conn.execute(held.where(tp.project_pk == project_pk, tp.outcome.is_(None), here))
    rows = [(row.task_pk, Outcome.REVOKED.value, tx.now, by, (tx.now - row.pulled_at).total_seconds()) for row in found]
    await update_rows(tx, task_pull, NAMES, rows, tp.ended_at.is_(None))


async def delete_some_tasks(tx: Tx, project_pk: str, queue_pk: str | None, *, limit: int = 2_000) -> int:
    """Remove some tasks of what is deleted, with everything that was said of them; returns how many."""
    pks = (await tx.conn.scalars(select(t.id).where(_in(project_pk, queue_pk)).limit(limit))).all()
    if pks:
        await delete_tasks(tx, pks)
    return len(pks)

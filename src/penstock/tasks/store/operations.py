"""Queue operations that run in the background: their rows, which hold the progress."""

from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from penstock.kernel.db import Tx
from penstock.tasks.domain import OperationKind, OperationStatus, QueueOperation
from penstock.tasks.errors import OperationNotFound
from penstock.tasks.store.tables import OPERATION_IS_OPEN, task_operation

op = task_operation.c
NAMES = tuple(known.name for known in fields(QueueOperation))
COLUMNS = tuple(op[name] for name in NAMES)


def _operation(row: Row[Any]) -> QueueOperation:
    values = dict(zip(NAMES, row, strict=True))
    return QueueOperation(
        **values | {"kind": OperationKind(values["kind"]), "status": OperationStatus(values["status"])}
    )


async def insert_operation(tx: Tx, new: QueueOperation) -> None:
    """Insert an operation."""
    await tx.conn.execute(insert(task_operation).values({name: getattr(new, name) for name in NAMES}))


async def get_operation(tx: Tx, operation_id: str) -> QueueOperation:
    """An operation by its id. Raises `OperationNotFound`."""
    row = (await tx.conn.execute(select(*COLUMNS).where(op.id == operation_id))).one_or_none()
    if row is None:
        raise OperationNotFound(operation_id=operation_id)
    return _operation(row)


async def list_open(tx: Tx, queue_pk: str) -> list[QueueOperation]:
    """The operations of a queue that have not ended, oldest first."""
    mine = select(*COLUMNS).where(op.queue_pk == queue_pk, OPERATION_IS_OPEN).order_by(op.id)
    return [_operation(row) for row in await tx.conn.execute(mine)]


async def list_operations(tx: Tx, project_pk: str, *, before: str | None, limit: int) -> list[QueueOperation]:
    """The operations of a project with ids below `before`, newest first."""
    mine = select(*COLUMNS).where(op.project_pk == project_pk)
    if before is not None:
        mine = mine.where(op.id < before)
    return [_operation(row) for row in await tx.conn.execute(mine.order_by(op.id.desc()).limit(limit))]


async def move_operation(tx: Tx, before: QueueOperation, after: QueueOperation) -> bool:
    """Write the progress or the end of an operation; False if it is not as it was read."""
    guarded = update(task_operation).where(op.id == before.id, op.cursor == before.cursor, OPERATION_IS_OPEN)
    values = {name: getattr(after, name) for name in ("total", "done", "affected", "cursor", "status", "ended_at")}
    return (await tx.conn.execute(guarded.values(values | {"updated_at": tx.now}))).rowcount == 1


async def delete_ended(tx: Tx, *, before: datetime, limit: int = 1_000) -> int:
    """Delete the oldest ended operations; returns how many."""
    old = select(op.id).where(op.ended_at < before).order_by(op.ended_at).limit(limit)
    return (await tx.conn.execute(delete(task_operation).where(op.id.in_(old)))).rowcount

"""The backlog: which jobs are due and not taken up, looked through page by page and room by room.

Every look is served by the index that claims use, so it costs the same whether ten jobs wait or a million.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, ScalarSelect, and_, func, literal, literal_column, select, true, tuple_

from penstock.kernel.announce import Waiting
from penstock.kernel.columns import Id, UtcTime
from penstock.kernel.db import Tx
from penstock.kernel.queue import job

_j = job.c
_ready = and_(_j.state == literal_column("'waiting'"), ~_j.deferred)  # constants, so that the partial index will do
_in_turn = (_j.priority, _j.scheduled_at, _j.id)


@dataclass(frozen=True, kw_only=True)
class RoomWaiting:
    """A room with jobs that are due, and since when the next of them is."""

    room: str
    since: datetime


async def list_waiting(tx: Tx, room: str, *, after: Waiting | None = None, limit: int = 500) -> list[Waiting]:
    """The jobs of a room that are due, in the order of their turns; the next page begins after the last of this one."""
    due = select(_j.id, _j.lease_count, _j.partition_key, *_in_turn[:2]).where(_ready, _j.partition_key == room)
    if after is not None:
        last: tuple[Any, ...] = (literal(after.priority), literal(after.due_at, UtcTime), literal(after.id, Id))
        due = due.where(tuple_(*_in_turn) > tuple_(*last))
    rows = await tx.conn.execute(due.order_by(*_in_turn).limit(limit))
    names = Waiting.__dataclass_fields__
    return [Waiting(**dict(zip(names, row, strict=True))) for row in rows]


async def list_rooms_waiting(tx: Tx, *, after: str | None = None, limit: int = 100) -> list[RoomWaiting]:
    """The rooms with jobs that are due, by name, from the one after `after`.

    Each room costs two look-ups in the index: one finds it, past all jobs of the room before, and one its next job.
    """
    first = _least_room(_j.partition_key > after if after is not None else true())
    rooms = select(first.label("room"), literal(1).label("number")).cte("rooms", recursive=True)
    there = rooms.c.room.is_not(None)
    step = select(_least_room(_j.partition_key > rooms.c.room), rooms.c.number + 1)
    rooms = rooms.union_all(step.where(there, rooms.c.number < limit))
    front = select(_j.scheduled_at).where(_ready, _j.partition_key == rooms.c.room).order_by(*_in_turn).limit(1)
    found = select(rooms.c.room, front.scalar_subquery().label("since")).where(rooms.c.room.is_not(None))
    return [RoomWaiting(room=row.room, since=row.since) for row in await tx.conn.execute(found)]


def _least_room(condition: ColumnElement[bool]) -> ScalarSelect[str]:
    return select(func.min(_j.partition_key)).where(_ready, condition).scalar_subquery()

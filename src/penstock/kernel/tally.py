"""How much there is to do: jobs and messages, counted for metrics.

Every count is served by an index and stops at MOST_COUNTED, so that a long backlog does not slow those who work it off.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, FromClause, func, literal_column, select

from penstock.kernel.backlog import list_rooms_waiting
from penstock.kernel.db import Tx
from penstock.kernel.outbox import outbox
from penstock.kernel.processes import count_alive
from penstock.kernel.queue import job

MOST_COUNTED = 10_000
MOST_ROOMS = 50


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What was counted. A job that waits for its time is `deferred`, one that could be taken up is `waiting`."""

    jobs: Mapping[tuple[str, str], int] = field(default_factory=dict)  # by state and room
    job_waits: Mapping[str, float] = field(default_factory=dict)  # seconds since the next job of a room is due
    messages: Mapping[str, int] = field(default_factory=dict)  # by state
    message_wait: float = 0.0  # seconds since the oldest message is due
    processes: Mapping[str, int] = field(default_factory=dict)  # alive, by kind


async def count_all(tx: Tx) -> Tally:
    """Count what is there now."""
    rooms = await list_rooms_waiting(tx, limit=MOST_ROOMS)
    jobs: dict[tuple[str, str], int] = {}
    for room in rooms:
        jobs["waiting", room.room] = await _count(tx, job, _ready(job) & (job.c.partition_key == room.room))
    for state in ("deferred", "running", "failed"):
        counted = await _count_by_room(tx, _deferred(job) if state == "deferred" else _is(job, state))
        jobs |= {(state, room): number for room, number in counted.items()}
    messages = {state: await _count(tx, outbox, _is(outbox, state)) for state in ("waiting", "sending", "dead")}
    return Tally(
        jobs=jobs,
        job_waits={room.room: max(0.0, (tx.now - room.since).total_seconds()) for room in rooms},
        messages=messages,
        message_wait=await _message_wait(tx),
        processes=await count_alive(tx),
    )


def _is(table: FromClause, state: str) -> ColumnElement[bool]:
    # A constant, not a parameter: only so can a planner see that the partial index will do.
    return table.c.state == literal_column(f"'{state}'")


def _ready(table: FromClause) -> ColumnElement[bool]:
    return _is(table, "waiting") & ~table.c.deferred


def _deferred(table: FromClause) -> ColumnElement[bool]:
    return _is(table, "waiting") & table.c.deferred


async def _count(tx: Tx, table: FromClause, condition: ColumnElement[bool]) -> int:
    some = select(literal_column("1")).select_from(table).where(condition).limit(MOST_COUNTED).subquery()
    return (await tx.conn.scalar(select(func.count()).select_from(some))) or 0


async def _count_by_room(tx: Tx, condition: ColumnElement[bool]) -> dict[str, int]:
    some = select(job.c.partition_key).where(condition).limit(MOST_COUNTED).subquery()
    rows = await tx.conn.execute(select(some.c.partition_key, func.count()).group_by(some.c.partition_key))
    return {row[0]: row[1] for row in rows}


async def _message_wait(tx: Tx) -> float:
    some = select(outbox.c.scheduled_at).where(_ready(outbox)).limit(MOST_COUNTED).subquery()
    since = await tx.conn.scalar(select(func.min(some.c.scheduled_at)))
    return max(0.0, (tx.now - since).total_seconds()) if since else 0.0

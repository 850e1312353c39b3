"""Queue statistics for metrics: how many jobs, messages and events wait, and for how long.

Every count uses an index and stops at MAX_COUNTED, so that a long backlog does not slow down the workers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, FromClause, func, literal_column, select, true

from penstock.kernel.backlog import list_module_backlogs
from penstock.kernel.db import Tx
from penstock.kernel.events import event_inbox
from penstock.kernel.outbox import outbox
from penstock.kernel.processes import count_alive
from penstock.kernel.queue import job

MAX_COUNTED = 10_000
MAX_MODULES = 50


@dataclass(frozen=True, kw_only=True)
class QueueStats:
    """Counts and ages. A job that is due is `waiting`; one that is not due yet is `deferred`."""

    jobs: Mapping[tuple[str, str], int] = field(default_factory=dict)  # by state and module
    job_waits: Mapping[str, float] = field(default_factory=dict)  # seconds since the next job of a module is due
    messages: Mapping[str, int] = field(default_factory=dict)  # by state
    message_wait: float = 0.0  # seconds since the oldest message is due
    events: int = 0  # committed and without an id
    processes: Mapping[str, int] = field(default_factory=dict)  # alive, by kind


async def get_queue_stats(tx: Tx) -> QueueStats:
    """Count jobs, messages, events and processes."""
    backlogs = await list_module_backlogs(tx, limit=MAX_MODULES)
    jobs: dict[tuple[str, str], int] = {}
    for found in backlogs:
        jobs["waiting", found.module] = await _count(tx, job, _ready(job) & (job.c.partition_key == found.module))
    for state in ("deferred", "running", "failed"):
        counted = await _count_by_module(tx, _deferred(job) if state == "deferred" else _is(job, state))
        jobs |= {(state, module): number for module, number in counted.items()}
    messages = {state: await _count(tx, outbox, _is(outbox, state)) for state in ("waiting", "sending", "dead")}
    return QueueStats(
        jobs=jobs,
        job_waits={found.module: max(0.0, (tx.now - found.since).total_seconds()) for found in backlogs},
        messages=messages,
        message_wait=await _message_wait(tx),
        events=await _count(tx, event_inbox, true()),
        processes=await count_alive(tx),
    )


def _is(table: FromClause, state: str) -> ColumnElement[bool]:
    # A constant, not a parameter: the planner then matches the partial index.
    return table.c.state == literal_column(f"'{state}'")


def _ready(table: FromClause) -> ColumnElement[bool]:
    return _is(table, "waiting") & ~table.c.deferred


def _deferred(table: FromClause) -> ColumnElement[bool]:
    return _is(table, "waiting") & table.c.deferred


async def _count(tx: Tx, table: FromClause, condition: ColumnElement[bool]) -> int:
    some = select(literal_column("1")).select_from(table).where(condition).limit(MAX_COUNTED).subquery()
    return (await tx.conn.scalar(select(func.count()).select_from(some))) or 0


async def _count_by_module(tx: Tx, condition: ColumnElement[bool]) -> dict[str, int]:
    some = select(job.c.partition_key).where(condition).limit(MAX_COUNTED).subquery()
    rows = await tx.conn.execute(select(some.c.partition_key, func.count()).group_by(some.c.partition_key))
    return {row[0]: row[1] for row in rows}


async def _message_wait(tx: Tx) -> float:
    some = select(outbox.c.scheduled_at).where(_ready(outbox)).limit(MAX_COUNTED).subquery()
    since = await tx.conn.scalar(select(func.min(some.c.scheduled_at)))
    return max(0.0, (tx.now - since).total_seconds()) if since else 0.0

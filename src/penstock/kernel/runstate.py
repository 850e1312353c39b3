"""Run state: the progress of a run, for status requests. It never moves back, and it has a time to live.

Each snapshot belongs to a run (1, 2, …: a retry starts the next) and has an order within it. A put is accepted only if
it is later than the stored snapshot, by (run, order). A final snapshot ends its run: only the next run can follow.
Snapshots can be listed by status; they expire after a time to live, which is shorter for a final one.

A snapshot written by the holder of a lease carries the lease's token. `put` replaces whatever is earlier: a row's own
state, or a new holder that takes over. `put_held` is for the updates that follow: it is refused as soon as another
holder has taken over, so a worker that lost its lease cannot overwrite its successor's progress.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Protocol

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Index,
    Integer,
    Row,
    String,
    Table,
    and_,
    bindparam,
    delete,
    literal_column,
    or_,
    select,
)
from sqlalchemy.sql.dml import ReturningInsert

from penstock.kernel.columns import Id, Json, UtcTime
from penstock.kernel.db import Db, metadata
from penstock.kernel.dialect.compiled_statement import any_rows
from penstock.kernel.dialect.sql import any_of, upsert_for
from penstock.kernel.errors import Conflict
from penstock.kernel.json_object import JsonObject

run_state = Table(
    "run_state",
    metadata,
    Column("key", Id, primary_key=True),
    Column("run", Integer, nullable=False),
    Column("order", BigInteger, nullable=False),
    Column("status", String, nullable=False),
    Column("final", Boolean, nullable=False),
    Column("fields", Json, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime, nullable=False),
    Column("token", String),  # of the lease whose holder wrote it
    Index("ix_run_state_status", "status", "key"),
    Index("ix_run_state_expires_at", "expires_at"),
)
LIVE = select(run_state).where(
    run_state.c.key == bindparam("key", type_=Id), run_state.c.expires_at > bindparam("now", type_=UtcTime)
)


class RunMovedOn(Conflict):
    """The stored run state is later than the one that was put."""

    code = "RUN_MOVED_ON"
    message = "The run state of {key} is already past run {run}, order {order}."
    message_zh = "{key} 的运行状态已越过第 {run} 轮、序号 {order}。"
    hint = "Another worker has taken over, or the run was cancelled. Discard your result."
    hint_zh = "已由其他工作进程接手，或该轮运行已被取消。请放弃当前结果。"


@dataclass(frozen=True, kw_only=True)
class RunSnapshot:
    """The state of a run. `fields` holds what a status response needs: phase, progress, attempts, pointers.

    `token` is that of the lease whose holder wrote it; None if it shows a row that nobody holds.
    """

    key: str
    run: int
    order: int
    status: str
    final: bool = False
    token: str | None = None
    fields: JsonObject = field(default_factory=dict)


class RunState(Protocol):
    """The port, implemented by a SQL table and by Redis."""

    in_rows: bool  # whether snapshots are database rows, so that SQL conditions can query them

    async def put(self, snapshot: RunSnapshot) -> None:
        """Store a snapshot that is later than the stored one, whoever wrote that; raises `RunMovedOn` otherwise."""
        ...

    async def put_held(self, snapshot: RunSnapshot) -> None:
        """Store a later snapshot of the same holder; raises `RunMovedOn` also if the stored token is another."""
        ...

    async def get(self, key: str) -> RunSnapshot | None:
        """The snapshot; None if there is none or it has expired."""
        ...

    async def get_many(self, keys: Sequence[str]) -> Sequence[RunSnapshot]:
        """Those of these snapshots that exist and have not expired, in no order."""
        ...

    async def list_by_status(self, status: str, *, after: str = "", limit: int = 100) -> Sequence[RunSnapshot]:
        """Snapshots with a status, in the order of their keys, from the one after `after`."""
        ...


class SqlRunState:
    """Run state in the database, for installations without Redis."""

    in_rows = True

    def __init__(self, db: Db, *, live_seconds: float, final_seconds: float) -> None:
        self._db = db
        self._live_seconds = live_seconds
        self._final_seconds = final_seconds

    async def put(self, snapshot: RunSnapshot) -> None:
        """Store a snapshot that is later than the stored one, whoever wrote that; raises `RunMovedOn` otherwise."""
        await self._execute(snapshot, by_token=False)

    async def put_held(self, snapshot: RunSnapshot) -> None:
        """Store a later snapshot of the same holder; raises `RunMovedOn` also if the stored token is another."""
        await self._execute(snapshot, by_token=True)

    async def _execute(self, snapshot: RunSnapshot, *, by_token: bool) -> None:
        async with self._db.autocommit() as tx:
            statement = _put(tx.on_postgres, by_token=by_token)
            if not (await tx.conn.scalars(statement, self._values(snapshot, tx.now))).all():
                raise RunMovedOn(key=snapshot.key, run=snapshot.run, order=snapshot.order)

    async def get(self, key: str) -> RunSnapshot | None:
        """The snapshot; None if there is none or it has expired."""
        async with self._db.read() as tx:
            row = (await tx.conn.execute(LIVE, {"key": key, "now": tx.now})).one_or_none()
        return _snapshot(row) if row else None

    async def get_many(self, keys: Sequence[str]) -> Sequence[RunSnapshot]:
        """Those of these snapshots that exist and have not expired, in no order."""
        async with self._db.read() as tx:
            live = select(run_state).where(any_of(run_state.c.key, keys), run_state.c.expires_at > tx.now)
            return [_snapshot(row) for row in await tx.conn.execute(live)]

    async def list_by_status(self, status: str, *, after: str = "", limit: int = 100) -> Sequence[RunSnapshot]:
        """Snapshots with a status, in the order of their keys, from the one after `after`."""
        r = run_state.c
        async with self._db.read() as tx:
            live = select(run_state).where(r.status == status, r.key > after, r.expires_at > tx.now)
            rows = (await tx.conn.execute(live.order_by(r.key).limit(limit))).all()
        return [_snapshot(row) for row in rows]

    async def sweep(self, *, limit: int = 10_000) -> int:
        """Delete expired snapshots; returns how many."""
        r = run_state.c
        async with self._db.tx() as tx:
            over = select(r.key).where(r.expires_at <= tx.now).order_by(r.expires_at).limit(limit)
            # Checked again in the DELETE: on PostgreSQL a put may have replaced the row since the SELECT.
            still_over = delete(run_state).where(r.key.in_(over), r.expires_at <= tx.now)
            return (await tx.conn.execute(still_over)).rowcount

    def _values(self, snapshot: RunSnapshot, now: datetime) -> dict[str, Any]:
        seconds = self._final_seconds if snapshot.final else self._live_seconds
        values = {name: getattr(snapshot, name) for name in RunSnapshot.__dataclass_fields__}
        return values | {"updated_at": now, "expires_at": now + timedelta(seconds=seconds)}


def is_any_with(status: str, now: ColumnElement[datetime]) -> ColumnElement[bool]:
    """SQL condition: whether a snapshot with a status exists. The status is a constant, for the planner."""
    r = run_state.c
    live = select(r.key).where(r.status == literal_column(f"'{status}'", String), r.expires_at > now)
    return any_rows(live.order_by(r.key))


@cache  # a worker puts several snapshots per document, and building the statement costs more than running it
def _put(on_postgres: bool, *, by_token: bool) -> ReturningInsert[Any]:
    """An upsert that applies only if the snapshot is later than the stored one, or the stored one has expired."""
    r, new = run_state.c, upsert_for(run_state, on_postgres=on_postgres)
    later = or_(r.run < new.excluded.run, and_(r.run == new.excluded.run, r.order < new.excluded.order, ~r.final))
    if by_token:
        later = and_(later, r.token == new.excluded.token)
    counts = or_(later, r.expires_at <= new.excluded.updated_at)
    return new.on_conflict_do_update(index_elements=["key"], set_=dict(new.excluded), where=counts).returning(r.key)


def _snapshot(row: Row[Any]) -> RunSnapshot:
    return RunSnapshot(**{name: row._mapping[name] for name in RunSnapshot.__dataclass_fields__})

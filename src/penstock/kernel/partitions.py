"""Partitions of a leased table, such as the jobs of one module: each can have a concurrency limit (`ceiling`), be
paused, or cooled down for a while.

A partition without a row here is open and has no limit.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Boolean, CheckConstraint, Column, Integer, Table, literal_column, select

from penstock.kernel.columns import Id, UtcTime
from penstock.kernel.db import Tx, metadata
from penstock.kernel.dialect.sql import upsert

lease_partition = Table(
    "lease_partition",
    metadata,
    Column("queue", Id, primary_key=True),  # the leased table's name
    Column("partition_key", Id, primary_key=True),
    Column("ceiling", Integer),  # how many rows may be held at once; NULL: any number
    Column("paused", Boolean, nullable=False, server_default=literal_column("false")),
    Column("cooling_until", UtcTime),
    CheckConstraint("ceiling IS NULL OR ceiling >= 0", name="ceiling_not_negative"),
)


@dataclass(frozen=True, kw_only=True)
class Partition:
    """The concurrency limit, pause and cooldown of one partition of one queue."""

    queue: str
    partition_key: str
    ceiling: int | None = None
    paused: bool = False
    cooling_until: datetime | None = None

    def open_at(self, moment: datetime) -> bool:
        """Whether rows may be claimed at that moment."""
        return not self.paused and (self.cooling_until is None or self.cooling_until <= moment)


async def lock_partition(tx: Tx, queue: str, partition_key: str) -> Partition | None:
    """The settings of a partition, if any, locked until the transaction ends, so that concurrent claims take turns."""
    p = lease_partition.c
    mine = select(lease_partition).where(p.queue == queue, p.partition_key == partition_key).with_for_update()
    row = (await tx.conn.execute(mine)).one_or_none()
    return Partition(**row._mapping) if row else None


async def set_ceiling(tx: Tx, queue: str, partition_key: str, ceiling: int | None) -> None:
    """Set the concurrency limit, how many rows may be held at once; None removes it."""
    await _set(tx, queue, partition_key, ceiling=ceiling)


async def pause(tx: Tx, queue: str, partition_key: str) -> None:
    """Stop claims until `resume`; held rows stay held."""
    await _set(tx, queue, partition_key, paused=True)


async def resume(tx: Tx, queue: str, partition_key: str) -> None:
    """Allow claims again, and end a cooldown."""
    await _set(tx, queue, partition_key, paused=False, cooling_until=None)


async def cool(tx: Tx, queue: str, partition_key: str, *, until: datetime) -> None:
    """Cool a partition down: no claims until that moment."""
    await _set(tx, queue, partition_key, cooling_until=until)


async def _set(tx: Tx, queue: str, partition_key: str, **values: object) -> None:
    names = {"queue": queue, "partition_key": partition_key}
    statement = upsert(lease_partition).values(names | values)
    await tx.conn.execute(statement.on_conflict_do_update(index_elements=list(names), set_=values))
    tx.wake(queue)

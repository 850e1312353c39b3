"""Limits: how fast (a token bucket) and how many (a quota), the same for all processes.

A bucket is kept as one number per key, the moment at which it will be full again, so a take is one guarded write.
A quota is counted in the database by blocks: a process takes a block and spends it by itself, so a busy counter row
is not written once per use. Blocks shrink as the quota runs out, so the last units are not locked up elsewhere.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sqlalchemy import BigInteger, Column, Double, Index, String, Table, case, delete, func, literal, select, update

from penstock.kernel.bulk import upsert
from penstock.kernel.columns import UtcTime
from penstock.kernel.db import Db, metadata

rate_bucket = Table(
    "rate_bucket",
    metadata,
    Column("key", String, primary_key=True),
    Column("full_at", Double, nullable=False),  # seconds since 1970; in the past: full already
    Index("ix_rate_bucket_full_at", "full_at"),
)
quota_window = Table(
    "quota_window",
    metadata,
    Column("key", String, primary_key=True),
    Column("until", UtcTime, primary_key=True),  # the window's end, which names it
    Column("used", BigInteger, nullable=False),
    Index("ix_quota_window_until", "until"),
)


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """So many per second in the long run, and up to `burst` at once."""

    per_second: float
    burst: float

    def __post_init__(self) -> None:
        if self.per_second <= 0 or self.burst < 1:
            raise ValueError("a bucket fills at more than 0 a second and holds at least 1")


@dataclass(frozen=True, kw_only=True)
class Grant:
    """The answer to a take: allowed, or to be asked again after a wait."""

    allowed: bool
    remaining: float
    wait_seconds: float


class Limits(Protocol):
    """The port: SQL tables, or Redis scripts."""

    async def take(self, key: str, bucket: Bucket, *, amount: float = 1) -> Grant:
        """Take tokens from a bucket, all or none."""
        ...

    async def cool(self, key: str, bucket: Bucket, *, seconds: float) -> None:
        """Leave a bucket empty for at least that long: what an upstream's Retry-After asks for."""
        ...

    async def reserve(self, key: str, *, until: datetime, limit: int, block: int) -> int:
        """Take up to `block` units of the quota of the window that ends at `until`; returns how many, 0 when spent."""
        ...

    async def give_back(self, key: str, *, until: datetime, amount: int) -> None:
        """Return units that were reserved and not used."""
        ...


class SqlLimits:
    """Limits in the database."""

    def __init__(self, db: Db) -> None:
        self._db = db

    async def take(self, key: str, bucket: Bucket, *, amount: float = 1) -> Grant:
        """Take tokens from a bucket, all or none."""
        b = rate_bucket.c
        async with self._db.tx() as tx:
            now, cost, room = tx.now.timestamp(), amount / bucket.per_second, bucket.burst / bucket.per_second
            if amount > bucket.burst:
                raise ValueError(f"{amount:g} can never be taken from a bucket that holds {bucket.burst:g}")
            begin = case((b.full_at > now, b.full_at), else_=literal(now, Double))
            statement = upsert(tx, rate_bucket).values(key=key, full_at=now + cost)
            taken = statement.on_conflict_do_update(
                index_elements=["key"], set_={"full_at": begin + cost}, where=begin + cost <= now + room
            ).returning(b.full_at)
            full_at = await tx.conn.scalar(taken)
            if full_at is not None:
                return Grant(allowed=True, remaining=(now + room - full_at) * bucket.per_second, wait_seconds=0)
            full_at = await tx.conn.scalar(select(b.full_at).where(b.key == key)) or now
        remaining = max(0.0, (now + room - full_at) * bucket.per_second)
        return Grant(allowed=False, remaining=remaining, wait_seconds=full_at + cost - room - now)

    async def cool(self, key: str, bucket: Bucket, *, seconds: float) -> None:
        """Leave a bucket empty for at least that long."""
        b = rate_bucket.c
        async with self._db.tx() as tx:
            empty_until = tx.now.timestamp() + seconds + (bucket.burst - 1) / bucket.per_second
            statement = upsert(tx, rate_bucket).values(key=key, full_at=empty_until)
            later = statement.on_conflict_do_update(
                index_elements=["key"], set_={"full_at": empty_until}, where=b.full_at < empty_until
            )
            await tx.conn.execute(later)

    async def reserve(self, key: str, *, until: datetime, limit: int, block: int) -> int:
        """Take up to `block` units of the quota of the window that ends at `until`; returns how many, 0 when spent."""
        q = quota_window.c
        async with self._db.tx() as tx:
            window = {"key": key, "until": until}
            first = upsert(tx, quota_window).values(window | {"used": 0}).on_conflict_do_nothing()
            await tx.conn.execute(first)
            row = select(q.used).where(q.key == key, q.until == until).with_for_update()
            left = limit - (await tx.conn.scalar(row) or 0)
            granted = max(0, min(block, -(-left // 4)))  # a quarter of the rest, so that nobody sits on the last units
            if granted:
                mine = update(quota_window).where(q.key == key, q.until == until)
                await tx.conn.execute(mine.values(used=q.used + granted))
            return granted

    async def give_back(self, key: str, *, until: datetime, amount: int) -> None:
        """Return units that were reserved and not used."""
        q = quota_window.c
        less = case((q.used > amount, q.used - amount), else_=0)
        async with self._db.tx() as tx:
            await tx.conn.execute(update(quota_window).where(q.key == key, q.until == until).values(used=less))

    async def sweep(self, *, limit: int = 10_000) -> int:
        """Delete buckets that are full and windows that are over; returns how many rows went."""
        b, q = rate_bucket.c, quota_window.c
        async with self._db.tx() as tx:
            full = select(b.key).where(b.full_at < tx.now.timestamp()).order_by(b.full_at).limit(limit)
            buckets = await tx.conn.execute(delete(rate_bucket).where(b.key.in_(full)))
            over = select(func.min(q.until)).where(q.until <= tx.now)
            windows = await tx.conn.execute(delete(quota_window).where(q.until == over.scalar_subquery()))
        return buckets.rowcount + windows.rowcount


class Quota:
    """One process's share of a quota: reserves blocks and spends them by itself. `close` gives the rest back."""

    def __init__(self, limits: Limits, key: str, *, limit: int, until: datetime, block: int = 50) -> None:
        self.key = key
        self.until = until
        self._limits = limits
        self._limit = limit
        self._block = block
        self._left = 0

    async def spend(self, amount: int = 1) -> bool:
        """Use units of the quota; False, and nothing is used, when there are not that many left."""
        while self._left < amount:
            wanted = max(self._block, amount - self._left)
            granted = await self._limits.reserve(self.key, until=self.until, limit=self._limit, block=wanted)
            if granted == 0:
                return False
            self._left += granted
        self._left -= amount
        return True

    async def close(self) -> None:
        """Give back what was not used."""
        left, self._left = self._left, 0
        if left:
            await self._limits.give_back(self.key, until=self.until, amount=left)

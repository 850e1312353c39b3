"""Rate limits (token buckets) and quotas, shared by all processes.

A bucket is stored as one number per key, the moment at which it will be full again, so a take is one guarded write
(GCRA). A quota is reserved in blocks: a process reserves a block and spends it in memory, so a busy counter row is not
written for every use. Blocks shrink as the quota runs out, so that no process sits on the last units.
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from sqlalchemy import BigInteger, Column, Index, String, Table, case, delete, literal, select, tuple_, update

from penstock.kernel.columns import UtcTime
from penstock.kernel.db import Db, metadata
from penstock.kernel.dialect.sql import upsert

rate_bucket = Table(
    "rate_bucket",
    metadata,
    Column("key", String, primary_key=True),
    Column("full_at", BigInteger, nullable=False),  # microseconds since 1970; in the past: full
    Index("ix_rate_bucket_full_at", "full_at"),
)
quota_window = Table(
    "quota_window",
    metadata,
    Column("key", String, primary_key=True),
    Column("until", UtcTime, primary_key=True),  # the end of the window identifies it
    Column("used", BigInteger, nullable=False),
    Index("ix_quota_window_until", "until"),
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A rate: `per_second` in the long run, and up to `burst` at once."""

    per_second: float
    burst: float

    def __post_init__(self) -> None:
        if not (0 < self.per_second < math.inf and 1 <= self.burst < math.inf):
            raise ValueError("a bucket needs per_second > 0 and burst >= 1")

    @property
    def token_micros(self) -> int:
        """Time to refill one token. A whole number, so that small takes add up to exactly the burst (fractions lose
        the last one to rounding), and rounded down, so that a caller at exactly the rate is not refused."""
        return max(1, math.floor(MICROS / self.per_second))


@dataclass(frozen=True, kw_only=True)
class RateLimitResult:
    """Whether tokens were taken, and if not, how long to wait."""

    allowed: bool
    remaining: float
    wait_seconds: float


class RateLimits(Protocol):
    """The port, implemented by SQL tables and by Redis scripts."""

    async def take(self, key: str, bucket: Bucket, *, amount: float = 1) -> RateLimitResult:
        """Take tokens from a bucket, all or none."""
        ...

    async def cool(self, key: str, bucket: Bucket, *, seconds: float) -> None:
        """Cooldown: give no whole token for at least that long, as an upstream's Retry-After asks for."""
        ...

    async def reserve(self, key: str, *, until: datetime, limit: int, block: int) -> int:
        """Reserve up to `block` units of the quota whose window ends at `until`; returns how many, 0 when used up."""
        ...

    async def give_back(self, key: str, *, until: datetime, amount: int) -> None:
        """Return units that were reserved and not used."""
        ...

    async def left(self, key: str, *, until: datetime, limit: int) -> int:
        """How many units of a quota are not reserved."""
        ...


class SqlRateLimits:
    """Rate limits and quotas in the database."""

    def __init__(self, db: Db) -> None:
        self._db = db

    async def take(self, key: str, bucket: Bucket, *, amount: float = 1) -> RateLimitResult:
        """Take tokens from a bucket, all or none."""
        if not 0 <= amount <= bucket.burst:
            raise ValueError(f"{amount:g} tokens exceed the capacity of {bucket.burst:g}")
        b, token = rate_bucket.c, bucket.token_micros
        cost, capacity = math.floor(amount * token), math.floor(bucket.burst * token)
        async with self._db.tx() as tx:
            now = _micros(tx.now)
            begin = case((b.full_at > now, b.full_at), else_=literal(now, BigInteger))
            statement = upsert(rate_bucket).values(key=key, full_at=now + cost)
            taken = statement.on_conflict_do_update(
                index_elements=["key"], set_={"full_at": begin + cost}, where=begin + cost <= now + capacity
            ).returning(b.full_at)
            full_at = await tx.conn.scalar(taken)
            if full_at is not None:
                return RateLimitResult(allowed=True, remaining=(now + capacity - full_at) / token, wait_seconds=0)
            full_at = await tx.conn.scalar(select(b.full_at).where(b.key == key)) or now
        remaining = max(0.0, (now + capacity - full_at) / token)
        wait_seconds = (full_at + cost - capacity - now) / MICROS
        return RateLimitResult(allowed=False, remaining=remaining, wait_seconds=wait_seconds)

    async def cool(self, key: str, bucket: Bucket, *, seconds: float) -> None:
        """Cooldown: give no whole token for at least that long."""
        b = rate_bucket.c
        pause = math.ceil(seconds * MICROS) + math.floor(bucket.burst * bucket.token_micros) - bucket.token_micros
        async with self._db.tx() as tx:
            empty_until = _micros(tx.now) + pause
            statement = upsert(rate_bucket).values(key=key, full_at=empty_until)
            later = statement.on_conflict_do_update(
                index_elements=["key"], set_={"full_at": empty_until}, where=b.full_at < empty_until
            )
            await tx.conn.execute(later)

    async def reserve(self, key: str, *, until: datetime, limit: int, block: int) -> int:
        """Reserve up to `block` units of the quota whose window ends at `until`; returns how many, 0 when used up."""
        q = quota_window.c
        async with self._db.tx() as tx:
            window = {"key": key, "until": until}
            first = upsert(quota_window).values(window | {"used": 0}).on_conflict_do_nothing()
            await tx.conn.execute(first)
            row = select(q.used).where(q.key == key, q.until == until).with_for_update()
            left = limit - (await tx.conn.scalar(row) or 0)
            granted = max(
                0, min(block, -(-left // 4))
            )  # a quarter of the rest, so that no process sits on the last units
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

    async def left(self, key: str, *, until: datetime, limit: int) -> int:
        """How many units of a quota are not reserved."""
        q = quota_window.c
        async with self._db.read() as tx:
            used: int | None = await tx.conn.scalar(select(q.used).where(q.key == key, q.until == until))
        return max(0, limit - (used or 0))

    async def sweep(self, *, limit: int = 10_000) -> int:
        """Delete full buckets and ended windows, up to `limit` of each; returns how many rows."""
        b, q = rate_bucket.c, quota_window.c
        async with self._db.tx() as tx:
            now = _micros(tx.now)
            full = select(b.key).where(b.full_at <= now).order_by(b.full_at).limit(limit)
            # Checked again in the DELETE: on PostgreSQL a take may have emptied the bucket since the SELECT.
            buckets = await tx.conn.execute(delete(rate_bucket).where(b.key.in_(full), b.full_at <= now))
            over = select(q.key, q.until).where(q.until <= tx.now).order_by(q.until).limit(limit)
            windows = await tx.conn.execute(delete(quota_window).where(tuple_(q.key, q.until).in_(over)))
        return buckets.rowcount + windows.rowcount


def _micros(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


class Quota:
    """A quota as one process uses it: reserves blocks and spends them in memory. `close` returns the rest."""

    def __init__(self, limits: RateLimits, key: str, *, limit: int, until: datetime, block: int = 50) -> None:
        self.key = key
        self.until = until
        self._limits = limits
        self._limit = limit
        self._block = block
        self._left = 0

    async def spend(self, amount: int = 1) -> bool:
        """Spend units of the quota. Returns False, and spends nothing, when not enough are left."""
        while self._left < amount:
            block = max(self._block, amount - self._left)
            granted = await self._limits.reserve(self.key, until=self.until, limit=self._limit, block=block)
            if granted == 0:
                await self.close()  # too few for this call, but perhaps enough for another process
                return False
            self._left += granted
        self._left -= amount
        return True

    async def close(self) -> None:
        """Return units that were not used."""
        left, self._left = self._left, 0
        if left:
            await self._limits.give_back(self.key, until=self.until, amount=left)

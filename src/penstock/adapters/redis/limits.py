"""Rates in Redis, quotas in the database.

A bucket is one number under its key, as in the table, and both answer alike to the last microsecond. A Redis that lost
it all gives everyone a full bucket, which is a second's matter. A lost quota would give a tenant its whole day again,
so quotas stay in the database (docs/decisions/0006).
"""

from datetime import datetime

from penstock.adapters.redis.link import RedisLink, Script
from penstock.kernel.clock import Clock
from penstock.kernel.rate_limits import Bucket, RateLimitResult, SqlRateLimits
from penstock.kernel.token_bucket import TokenRequest, cooled_until, micros

BUCKETS = "penstock:rate:"  # and the bucket's key
# Kept for a minute after it is full: the clock of another process may be that far behind.
MARGIN_MILLISECONDS = 60_000

# Lua's numbers are floats, exact for whole numbers up to 2^53: microseconds until the year 2255.
KEEP = f"""
local function keep(full_at, now)
    local milliseconds = math.ceil((full_at - now) / 1000) + {MARGIN_MILLISECONDS}
    redis.call('SET', KEYS[1], string.format('%.0f', full_at), 'PX', string.format('%.0f', milliseconds))
end
local old = tonumber(redis.call('GET', KEYS[1]) or 0)
"""
TAKE = Script(
    KEEP
    + """
local now, cost, room = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local full_at = math.max(old, now) + cost
if full_at > now + room then return {0, old} end
keep(full_at, now)
return {1, full_at}
"""
)
COOL = Script(
    KEEP
    + """
local now, empty_until = tonumber(ARGV[1]), tonumber(ARGV[2])
if old < empty_until then keep(empty_until, now) end
"""
)


class RedisRateLimits:
    """RateLimits for many processes at once."""

    def __init__(self, link: RedisLink, clock: Clock, quotas: SqlRateLimits) -> None:
        self._link = link
        self._clock = clock
        self._quotas = quotas

    async def take(self, key: str, bucket: Bucket, *, amount: float = 1) -> RateLimitResult:
        """Take tokens from a bucket, all or none."""
        draw = TokenRequest.of(bucket, amount, self._clock.now())
        allowed, full_at = await self._link.run(TAKE, (BUCKETS + key,), draw.now, draw.cost, draw.room)
        return draw.answer(full_at, allowed=bool(allowed))

    async def cool(self, key: str, bucket: Bucket, *, seconds: float) -> None:
        """Give no whole token for at least that long."""
        now = self._clock.now()
        await self._link.run(COOL, (BUCKETS + key,), micros(now), cooled_until(bucket, seconds, now))

    async def reserve(self, key: str, *, until: datetime, limit: int, block: int) -> int:
        """Take up to `block` units of the quota of the window that ends at `until`; returns how many, 0 when spent."""
        return await self._quotas.reserve(key, until=until, limit=limit, block=block)

    async def give_back(self, key: str, *, until: datetime, amount: int) -> None:
        """Return units that were reserved and not used."""
        await self._quotas.give_back(key, until=until, amount=amount)

    async def left(self, key: str, *, until: datetime, limit: int) -> int:
        """How many units of a quota nobody has reserved."""
        return await self._quotas.left(key, until=until, limit=limit)

    async def sweep(self, *, limit: int = 10_000) -> int:
        """Delete windows that are over; returns how many. Buckets go by themselves."""
        return await self._quotas.sweep(limit=limit)

"""Rate limits in Redis, quotas in the database.

A token bucket is one number under its key, exactly as in the database table, and both agree to the microsecond. If
Redis is flushed, every bucket is full again, which costs a second at most. A lost quota would grant a tenant its
whole day again, so quotas stay in the database (docs/decisions/0006).
"""

from datetime import datetime

from penstock.adapters.redis.client import RedisClient, Script
from penstock.kernel.clock import Clock
from penstock.kernel.rate_limits import Bucket, RateLimitResult, SqlRateLimits
from penstock.kernel.token_bucket import TokenRequest, cooled_until, micros

BUCKETS = "penstock:rate:"  # followed by the bucket's key
# Kept for a minute after the bucket is full: the clock of another process may be that far behind.
MARGIN_MILLISECONDS = 60_000

# Lua numbers are doubles, exact for integers up to 2^53: microseconds until the year 2255.
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
    """Rate limits shared by many processes."""

    def __init__(self, redis: RedisClient, clock: Clock, quotas: SqlRateLimits) -> None:
        self._redis = redis
        self._clock = clock
        self._quotas = quotas

    async def take(self, key: str, bucket: Bucket, *, amount: float = 1) -> RateLimitResult:
        """Take tokens from a bucket, all or none."""
        request = TokenRequest.of(bucket, amount, self._clock.now())
        allowed, full_at = await self._redis.run_script(
            TAKE, (BUCKETS + key,), request.now, request.cost, request.capacity
        )
        return request.result(full_at, allowed=bool(allowed))

    async def cool(self, key: str, bucket: Bucket, *, seconds: float) -> None:
        """Grant no whole token for at least `seconds`."""
        now = self._clock.now()
        await self._redis.run_script(COOL, (BUCKETS + key,), micros(now), cooled_until(bucket, seconds, now))

    async def reserve(self, key: str, *, until: datetime, limit: int, block: int) -> int:
        """Take up to `block` units of the quota of the window ending at `until`; returns how many, 0 if used up."""
        return await self._quotas.reserve(key, until=until, limit=limit, block=block)

    async def give_back(self, key: str, *, until: datetime, amount: int) -> None:
        """Return reserved units that were not used."""
        await self._quotas.give_back(key, until=until, amount=amount)

    async def left(self, key: str, *, until: datetime, limit: int) -> int:
        """How many units of a quota are not reserved."""
        return await self._quotas.left(key, until=until, limit=limit)

    async def sweep(self, *, limit: int = 10_000) -> int:
        """Delete expired windows; returns how many. Redis expires buckets itself."""
        return await self._quotas.sweep(limit=limit)

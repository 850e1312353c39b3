"""Rate limits with a local fallback: while Redis is unavailable, each process continues at a share of the rate.

Each process then uses token buckets in memory. With a share of a quarter, four processes together stay within the
rate. Quotas have no fallback: a process cannot know what others have spent, so the backend's error passes through.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime

from penstock.kernel.clock import Clock
from penstock.kernel.errors import Unavailable
from penstock.kernel.rate_limits import MICROS, Bucket, RateLimitResult, RateLimits
from penstock.kernel.token_bucket import TokenRequest, micros

MAX_KEYS = 10_000
EVICTION_TRIES = 10  # keys that one take may check to find one to evict
NO_SPACE = RateLimitResult(allowed=False, remaining=0, wait_seconds=1)  # a new key, and no space to track it


@dataclass
class _LocalBucket:
    """The local state of one bucket. A full bucket can be evicted."""

    full_at: int = 0
    cooldown_until: int = 0  # a cooldown not yet written to the backend


class FallbackLimits:
    """Rate limits of a backend, with local buckets while it is down. `answered_locally` counts local answers."""

    def __init__(self, limits: RateLimits, *, clock: Clock, share: float = 0.25, max_keys: int = MAX_KEYS) -> None:
        if not 0 < share <= 1:
            raise ValueError("the share must be greater than 0 and at most 1")
        self.answered_locally = 0
        self._limits = limits
        self._clock = clock
        self._share = share
        self._max_keys = max_keys
        self._buckets: OrderedDict[str, _LocalBucket] = OrderedDict()  # least recently used first

    async def take(self, key: str, bucket: Bucket, *, amount: float = 1) -> RateLimitResult:
        """Take tokens from a bucket, all or none."""
        try:
            await self._sync_cooldown(key, bucket)
            return await self._limits.take(key, bucket, amount=amount)
        except Unavailable as error:
            if not error.internal_outage:
                raise
        self.answered_locally += 1
        return self._take_locally(key, self._request(bucket, amount))

    async def cool(self, key: str, bucket: Bucket, *, seconds: float) -> None:
        """Cooldown: give no whole token for at least that long, from the backend and locally."""
        one = self._request(bucket, 1)
        until = one.now + math.ceil(seconds * MICROS)
        local = self._find(key, one.now)
        if local is not None:
            local.full_at = max(local.full_at, until + one.capacity - one.token)
        try:
            await self._limits.cool(key, bucket, seconds=seconds)
        except Unavailable as error:
            if not error.internal_outage:
                raise
            if local is not None:
                local.cooldown_until = max(local.cooldown_until, until)

    async def reserve(self, key: str, *, until: datetime, limit: int, block: int) -> int:
        """Reserve up to `block` units of the quota whose window ends at `until`; returns how many, 0 when used up."""
        return await self._limits.reserve(key, until=until, limit=limit, block=block)

    async def give_back(self, key: str, *, until: datetime, amount: int) -> None:
        """Return units that were reserved and not used."""
        await self._limits.give_back(key, until=until, amount=amount)

    async def left(self, key: str, *, until: datetime, limit: int) -> int:
        """How many units of a quota are not reserved."""
        return await self._limits.left(key, until=until, limit=limit)

    async def _sync_cooldown(self, key: str, bucket: Bucket) -> None:
        """Write a cooldown that began while the backend was down, before the backend gives out a token."""
        local = self._buckets.get(key)
        if local is None or not local.cooldown_until:
            return
        until, left = local.cooldown_until, local.cooldown_until - micros(self._clock.now())
        if left > 0:
            await self._limits.cool(key, bucket, seconds=left / MICROS)
        if local.cooldown_until == until:
            local.cooldown_until = 0

    def _request(self, bucket: Bucket, amount: float) -> TokenRequest:
        """A request to our share of a bucket. Rounded up, so that we never give more than the share."""
        token = math.ceil(MICROS / (bucket.per_second * self._share))
        cost = math.ceil(amount * token)
        # A full bucket allows more than our share of the burst, refilled at the rate: otherwise a request that the
        # shared bucket allows would never succeed here.
        capacity = max(math.floor(bucket.burst * self._share * token), token, cost)
        return TokenRequest(token=token, cost=cost, capacity=capacity, now=micros(self._clock.now()))

    def _take_locally(self, key: str, request: TokenRequest) -> RateLimitResult:
        local = self._find(key, request.now)
        if local is None:
            return NO_SPACE
        full_at = max(local.full_at, request.now) + request.cost
        if full_at > request.now + request.capacity:
            return request.result(local.full_at, allowed=False)
        local.full_at = full_at
        return request.result(full_at, allowed=True)

    def _find(self, key: str, now: int) -> _LocalBucket | None:
        """The bucket of a key, or a new one if there is space. Only full buckets are evicted: any other would be full
        again at once when its key comes back."""
        local = self._buckets.get(key)
        if local is None:
            if len(self._buckets) >= self._max_keys and not self._evict_one(now):
                return None
            local = self._buckets[key] = _LocalBucket()
        self._buckets.move_to_end(key)
        return local

    def _evict_one(self, now: int) -> bool:
        for _ in range(EVICTION_TRIES):
            key = next(iter(self._buckets))
            if self._buckets[key].full_at <= now:
                del self._buckets[key]
                return True
            self._buckets.move_to_end(key)  # so that the next try checks other keys
        return False

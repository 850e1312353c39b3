"""A careful local gate: rates go on, at a part of what is allowed, while the engine that counts them is away.

Each process then keeps buckets of its own, in memory. With a share of a quarter, four processes together stay within
the rate. Quotas have no local answer: nobody here knows what others have spent, so the engine's error passes through.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime

from penstock.kernel.clock import Clock
from penstock.kernel.errors import Unavailable
from penstock.kernel.rate_limits import MICROS, Bucket, RateLimitResult, RateLimits
from penstock.kernel.token_bucket import TokenRequest, micros

MOST_KEYS = 10_000
LOOKED_AT = 10  # how many keys one take may look at to find one that can be forgotten
CROWDED = RateLimitResult(allowed=False, remaining=0, wait_seconds=1)  # an unknown key, and no room to count it


@dataclass
class _Local:
    """What this process knows of one bucket. Full, it is as good as forgotten."""

    full_at: int = 0
    owed_until: int = 0  # a cooling that the engine has not heard of yet


class FallbackLimits:
    """RateLimits that ask an engine, and answer by themselves while it is away. `answered_locally` counts how often."""

    def __init__(self, limits: RateLimits, *, clock: Clock, share: float = 0.25, most_keys: int = MOST_KEYS) -> None:
        if not 0 < share <= 1:
            raise ValueError("a share is more than 0 and at most 1")
        self.answered_locally = 0
        self._limits = limits
        self._clock = clock
        self._share = share
        self._most_keys = most_keys
        self._known: OrderedDict[str, _Local] = OrderedDict()  # the longest unused first

    async def take(self, key: str, bucket: Bucket, *, amount: float = 1) -> RateLimitResult:
        """Take tokens from a bucket, all or none."""
        try:
            await self._pay(key, bucket)
            return await self._limits.take(key, bucket, amount=amount)
        except Unavailable as error:
            if not error.internal_outage:
                raise
        self.answered_locally += 1
        return self._take_here(key, self._draw(bucket, amount))

    async def cool(self, key: str, bucket: Bucket, *, seconds: float) -> None:
        """Give no whole token for at least that long, whoever answers then."""
        one = self._draw(bucket, 1)
        until = one.now + math.ceil(seconds * MICROS)
        local = self._find(key, one.now)
        if local is not None:
            local.full_at = max(local.full_at, until + one.room - one.token)
        try:
            await self._limits.cool(key, bucket, seconds=seconds)
        except Unavailable as error:
            if not error.internal_outage:
                raise
            if local is not None:
                local.owed_until = max(local.owed_until, until)

    async def reserve(self, key: str, *, until: datetime, limit: int, block: int) -> int:
        """Take up to `block` units of the quota of the window that ends at `until`; returns how many, 0 when spent."""
        return await self._limits.reserve(key, until=until, limit=limit, block=block)

    async def give_back(self, key: str, *, until: datetime, amount: int) -> None:
        """Return units that were reserved and not used."""
        await self._limits.give_back(key, until=until, amount=amount)

    async def left(self, key: str, *, until: datetime, limit: int) -> int:
        """How many units of a quota nobody has reserved."""
        return await self._limits.left(key, until=until, limit=limit)

    async def _pay(self, key: str, bucket: Bucket) -> None:
        """Tell the engine of a cooling that was asked for while it was away, before it gives a token out."""
        local = self._known.get(key)
        if local is None or not local.owed_until:
            return
        owed, left = local.owed_until, local.owed_until - micros(self._clock.now())
        if left > 0:
            await self._limits.cool(key, bucket, seconds=left / MICROS)
        if local.owed_until == owed:
            local.owed_until = 0

    def _draw(self, bucket: Bucket, amount: float) -> TokenRequest:
        """A take from our share of a bucket. Rounded up, so that we never give more than the share."""
        token = math.ceil(MICROS / (bucket.per_second * self._share))
        cost = math.ceil(amount * token)
        # More than our share of the burst is let through when the bucket is full, and paid back at the rate: the whole
        # bucket would have given it, and never is too long to wait.
        room = max(math.floor(bucket.burst * self._share * token), token, cost)
        return TokenRequest(token=token, cost=cost, room=room, now=micros(self._clock.now()))

    def _take_here(self, key: str, draw: TokenRequest) -> RateLimitResult:
        local = self._find(key, draw.now)
        if local is None:
            return CROWDED
        full_at = max(local.full_at, draw.now) + draw.cost
        if full_at > draw.now + draw.room:
            return draw.answer(local.full_at, allowed=False)
        local.full_at = full_at
        return draw.answer(full_at, allowed=True)

    def _find(self, key: str, now: int) -> _Local | None:
        """What is known of a key, or something new if there is room. Only full buckets are forgotten to make room: any
        other would be full again at once when its key comes back."""
        local = self._known.get(key)
        if local is None:
            if len(self._known) >= self._most_keys and not self._forget_one(now):
                return None
            local = self._known[key] = _Local()
        self._known.move_to_end(key)
        return local

    def _forget_one(self, now: int) -> bool:
        for _ in range(LOOKED_AT):
            key = next(iter(self._known))
            if self._known[key].full_at <= now:
                del self._known[key]
                return True
            self._known.move_to_end(key)  # so that the next look goes further
        return False

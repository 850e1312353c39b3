"""Token bucket arithmetic in whole microseconds, for buckets that are not kept in the SQL table.

As in the table, a bucket is one number: the moment at which it will be full again. See `kernel/rate_limits.py`.
"""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from penstock.kernel.rate_limits import EPOCH, MICROS, Bucket, RateLimitResult


@dataclass(frozen=True, kw_only=True)
class TokenRequest:
    """A request for tokens of one bucket at one moment, in microseconds."""

    token: int  # time to refill one token
    cost: int  # time to refill the requested tokens
    capacity: int  # time to refill an empty bucket
    now: int

    @classmethod
    def of(cls, bucket: Bucket, amount: float, now: datetime) -> Self:
        """A request for that amount."""
        if not 0 <= amount <= bucket.burst:
            raise ValueError(f"{amount:g} tokens exceed the capacity of {bucket.burst:g}")
        token = bucket.token_micros
        cost, capacity = math.floor(amount * token), math.floor(bucket.burst * token)
        return cls(token=token, cost=cost, capacity=capacity, now=micros(now))

    def result(self, full_at: int, *, allowed: bool) -> RateLimitResult:
        """The result for a bucket that is full at that moment: after the take if allowed, else before it."""
        remaining = max(0.0, (self.now + self.capacity - full_at) / self.token)
        wait_seconds = 0 if allowed else (full_at + self.cost - self.capacity - self.now) / MICROS
        return RateLimitResult(allowed=allowed, remaining=remaining, wait_seconds=wait_seconds)


def cooled_until(bucket: Bucket, seconds: float, now: datetime) -> int:
    """When a bucket is full again whose next whole token is available after those seconds."""
    token = bucket.token_micros
    return micros(now) + math.ceil(seconds * MICROS) + math.floor(bucket.burst * token) - token


def micros(time: datetime) -> int:
    """Microseconds since 1970."""
    return (time - EPOCH) // timedelta(microseconds=1)

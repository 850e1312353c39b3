"""The arithmetic of token buckets, in whole microseconds, for those who keep them elsewhere than in a table.

As in the table, a bucket is one number: the moment at which it will be full again. `kernel/rate_limits.py` says why.
"""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from penstock.kernel.rate_limits import EPOCH, MICROS, Bucket, RateLimitResult


@dataclass(frozen=True, kw_only=True)
class TokenRequest:
    """What one take asks of a bucket at one moment."""

    token: int  # how long one token takes to come back
    cost: int  # how much later the bucket is full when this was taken
    room: int  # how long an empty bucket takes to be full
    now: int

    @classmethod
    def of(cls, bucket: Bucket, amount: float, now: datetime) -> Self:
        """A take of that amount."""
        if not 0 <= amount <= bucket.burst:
            raise ValueError(f"{amount:g} can never be taken from a bucket that holds {bucket.burst:g}")
        token = bucket.token_micros
        return cls(token=token, cost=math.floor(amount * token), room=math.floor(bucket.burst * token), now=micros(now))

    def answer(self, full_at: int, *, allowed: bool) -> RateLimitResult:
        """The answer when the bucket is full at that moment: after the take if it is allowed, else as it was."""
        remaining = max(0.0, (self.now + self.room - full_at) / self.token)
        wait_seconds = 0 if allowed else (full_at + self.cost - self.room - self.now) / MICROS
        return RateLimitResult(allowed=allowed, remaining=remaining, wait_seconds=wait_seconds)


def cooled_until(bucket: Bucket, seconds: float, now: datetime) -> int:
    """When a bucket is full again that gives its next whole token after those seconds."""
    token = bucket.token_micros
    return micros(now) + math.ceil(seconds * MICROS) + math.floor(bucket.burst * token) - token


def micros(time: datetime) -> int:
    """Microseconds since 1970."""
    return (time - EPOCH) // timedelta(microseconds=1)

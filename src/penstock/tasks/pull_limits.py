"""Rate limits of pulls per API key: requests per minute and hour, a minimum interval, and a daily quota of tasks.

Beyond a limit a pull gets 429 with Retry-After. Rate limits are token buckets shared by all processes and instances;
while Redis is unavailable they hold, reduced (`fallback_limits.py`). From a large bucket, a process takes a
thousandth in advance and spends it locally: a key far from its limit does not cost a round trip per pull. Local tokens
are topped up, not discarded, so a process that pulls rarely wastes none. A bucket of less than two thousand tokens is
queried for every pull.
"""

import asyncio
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from penstock.kernel.cache import Cache
from penstock.kernel.clock import Clock, iso_millis
from penstock.kernel.errors import Invalid
from penstock.kernel.rate_limits import EPOCH, Bucket, RateLimits
from penstock.tasks.errors import PullQuotaSpent, TooManyPulls

SECONDS = {"minute": 60, "hour": 3600}
CHINESE = {"minute": "每分钟", "hour": "每小时"}
RATE = re.compile(r"\s*(\d{1,9})\s*(?:/\s*(minute|hour)\s*)?")
BLOCKS = 1000  # a process takes 1/1000 of a bucket at a time
FRESH = timedelta(seconds=1)  # how long a process trusts what it last read of a bucket
MAX_KEYS = 10_000


class BadRate(Invalid):
    """A pull rate cannot be parsed."""

    code = "BAD_PULL_RATE"
    message = "Invalid rate {text!r}: expected a value like 60/minute."
    message_zh = "无效的频率 {text!r}：应为类似 60/minute 的值。"
    hint = "Use 60/minute, 1000/hour, or both separated by a comma; 0 means no limit."
    hint_zh = "请使用 60/minute、1000/hour，或用逗号分隔两者；0 表示不限制。"


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A number of pulls per minute or hour."""

    number: int
    unit: str

    @property
    def bucket(self) -> Bucket:
        """The rate as a token bucket, full at the start."""
        return Bucket(per_second=self.number / SECONDS[self.unit], burst=self.number)


def read_rates(text: str) -> list[Rate]:
    """Parse `60/minute,1000/hour`; a rate of 0 is omitted. Raises `BadRate`."""
    rates: dict[str, int] = {}
    for part in filter(str.strip, text.split(",")):
        found = RATE.fullmatch(part)
        unit = found[2] or "minute" if found is not None else ""
        if found is None or unit in rates:  # two rates of one unit would share a bucket
            raise BadRate(text=text)
        rates[unit] = int(found[1])
    return [Rate(number=number, unit=unit) for unit, number in rates.items() if number]


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """What is left of the rate limit that is closest to its end."""

    limit: int
    remaining: int
    reset_at: datetime

    @property
    def headers(self) -> dict[str, str]:
        """The X-RateLimit response headers: the remaining rate, and the time of the reset, rounded up to a second."""
        return {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(self.remaining),
            "X-RateLimit-Reset": iso_millis(self.reset_at.replace(microsecond=0) + timedelta(seconds=1)),
        }


@dataclass
class _LocalTokens:
    """Tokens of one bucket that this process has taken, and what it last read of the bucket."""

    left: int = 0
    in_bucket: float = 0.0
    read_at: datetime = EPOCH
    empty_until: datetime = EPOCH  # when the bucket's next token is due
    filling: asyncio.Lock = field(default_factory=asyncio.Lock)

    def is_fresh(self, now: datetime) -> bool:
        """Whether it can spend a token without querying the bucket."""
        return self.left > 0 and now < self.read_at + FRESH

    def is_known_empty(self, now: datetime) -> bool:
        """Whether the bucket would refuse: its next token is not due yet."""
        return not self.left and now < min(self.empty_until, self.read_at + FRESH)


class PullLimiter:
    """Applies the pull limits of every API key."""

    def __init__(self, limits: RateLimits, clock: Clock, *, rates: list[Rate], min_interval: float, quota: int) -> None:
        self._limits = limits
        self._clock = clock
        self._rates = rates
        self._interval = Bucket(per_second=1 / min_interval, burst=1) if min_interval > 0 else None
        self._quota = quota
        self._local: Cache[str, _LocalTokens] = Cache(clock, max_entries=MAX_KEYS)

    async def admit(self, actor: str) -> Allowance | None:
        """Admit one pull; returns what is left of the closest limit. Raises `TooManyPulls`."""
        if self._interval is not None:
            grant = await self._limits.take(f"pull:interval:{actor}", self._interval)
            if not grant.allowed:
                seconds = f"{1 / self._interval.per_second:g}"
                text, text_zh = f"once per {seconds} s", f"每 {seconds} 秒一次"
                headers = self._exhausted(1, wait_seconds=grant.wait_seconds).headers
                raise TooManyPulls(wait_seconds=grant.wait_seconds, headers=headers, limit=text, limit_zh=text_zh)
        spent: list[_LocalTokens] = []
        try:
            for rate in self._rates:
                tokens = await self._spend(actor, rate)
                spent.append(tokens)
        except TooManyPulls:
            for tokens in spent:  # a pull that one rate refuses must not count for the other
                tokens.left += 1
            raise
        now = self._clock.now()
        allowances = [self._allowance(tokens, rate, now) for tokens, rate in zip(spent, self._rates, strict=True)]
        return min(allowances, key=lambda one: one.remaining / one.limit, default=None)

    async def reserve(self, actor: str, amount: int) -> int:
        """Reserve up to `amount` tasks of the daily quota; returns how many. Raises `PullQuotaSpent` if all is used."""
        if not self._quota:
            return amount
        until, reserved = self._midnight(), 0
        while reserved < amount:  # near its end, the quota is granted in smaller and smaller parts
            rest = amount - reserved
            given = await self._limits.reserve(f"pull:quota:{actor}", until=until, limit=self._quota, block=rest)
            if not given:
                break
            reserved += given
        if not reserved:
            wait_seconds = (until - self._clock.now()).total_seconds()
            headers = self._exhausted(self._quota, wait_seconds=wait_seconds).headers
            raise PullQuotaSpent(limit=self._quota, wait_seconds=wait_seconds, headers=headers)
        return reserved

    async def quota_headers(self, actor: str) -> dict[str, str]:
        """The headers X-Quota-Limit, X-Quota-Remaining and X-Quota-Reset, if there is a quota."""
        if not self._quota:
            return {}
        until = self._midnight()
        left = await self._limits.left(f"pull:quota:{actor}", until=until, limit=self._quota)
        values = {"Limit": self._quota, "Remaining": left, "Reset": int(until.timestamp())}
        return {f"X-Quota-{name}": str(value) for name, value in values.items()}

    async def give_back(self, actor: str, amount: int) -> None:
        """Return reserved tasks that were not pulled to the quota."""
        if self._quota and amount:
            await self._limits.give_back(f"pull:quota:{actor}", until=self._midnight(), amount=amount)

    async def _spend(self, actor: str, rate: Rate) -> _LocalTokens:
        """Spend one token of a rate, from the local tokens if possible."""
        key = f"pull:{rate.unit}:{actor}"
        tokens = self._tokens_of(key)
        if not tokens.is_fresh(self._clock.now()):
            async with tokens.filling:  # concurrent pulls query the bucket once
                if not tokens.is_fresh(self._clock.now()):
                    await self._fill(tokens, key, rate)
        tokens.left -= 1
        return tokens

    async def _fill(self, tokens: _LocalTokens, key: str, rate: Rate) -> None:
        """Top up the local tokens; near the end of the bucket, with just one."""
        now = self._clock.now()
        if tokens.is_known_empty(now):
            raise self._refusal(tokens, rate)
        if now >= tokens.read_at + timedelta(seconds=SECONDS[rate.unit]):
            tokens.left = 0  # the bucket has refilled since; keeping these would exceed the limit
        amount = max(0, max(1, rate.number // BLOCKS) - tokens.left)
        grant = await self._limits.take(key, rate.bucket, amount=amount)
        if not grant.allowed and not tokens.left and amount > 1:
            amount, grant = 1, await self._limits.take(key, rate.bucket)
        tokens.read_at, tokens.in_bucket = self._clock.now(), grant.remaining
        if grant.allowed:
            # Local tokens and the bucket together must not exceed the limit.
            tokens.left = min(tokens.left + amount, max(1, rate.number - int(grant.remaining)))
        if not tokens.left:
            tokens.empty_until = tokens.read_at + timedelta(seconds=grant.wait_seconds)
            raise self._refusal(tokens, rate)

    def _refusal(self, tokens: _LocalTokens, rate: Rate) -> TooManyPulls:
        return TooManyPulls(
            wait_seconds=max(0.0, (tokens.empty_until - self._clock.now()).total_seconds()),
            headers=self._allowance(tokens, rate, self._clock.now()).headers,
            limit=f"{rate.number} times per {rate.unit}",
            limit_zh=f"{CHINESE[rate.unit]} {rate.number} 次",
        )

    def _allowance(self, tokens: _LocalTokens, rate: Rate, now: datetime) -> Allowance:
        """What is left: local tokens, and the bucket with what it has refilled since it was read."""
        per_second = rate.number / SECONDS[rate.unit]
        filled = tokens.in_bucket + (now - tokens.read_at).total_seconds() * per_second
        remaining = min(rate.number, int(filled) + tokens.left)
        missing = (rate.number - remaining) / per_second
        return Allowance(limit=rate.number, remaining=remaining, reset_at=now + timedelta(seconds=missing))

    def _exhausted(self, limit: int, *, wait_seconds: float) -> Allowance:
        return Allowance(limit=limit, remaining=0, reset_at=self._clock.now() + timedelta(seconds=wait_seconds))

    def _tokens_of(self, key: str) -> _LocalTokens:
        cached = self._local.find(key)
        if cached is not None:
            return cached.value
        tokens = _LocalTokens()
        self._local.put(key, tokens)
        return tokens

    def _midnight(self) -> datetime:
        today = self._clock.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        return today + timedelta(days=1)

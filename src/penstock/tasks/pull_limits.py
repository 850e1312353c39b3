"""How often, and how much, one key may pull: per minute, per hour, a least interval, and tasks per day.

Rates are buckets that all instances share. Of a large bucket a process keeps a thousandth in hand and spends it by
itself: a key that is far from its limit does not cost a trip to the bucket each time. What is in hand is topped up, not
thrown away, so a process that pulls rarely wastes nothing; a bucket of less than two thousand is asked every time.
"""

import asyncio
import re
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from penstock.kernel.clock import Clock
from penstock.kernel.errors import Invalid
from penstock.kernel.rate_limits import EPOCH, Bucket, RateLimits
from penstock.tasks.errors import PullQuotaSpent, TooManyPulls

SECONDS = {"minute": 60, "hour": 3600}
CHINESE = {"minute": "每分钟", "hour": "每小时"}
RATE = re.compile(r"\s*(\d{1,9})\s*(?:/\s*(minute|hour)\s*)?")
BLOCKS = 1000  # how finely a bucket is handed to processes
FRESH = timedelta(seconds=1)  # how long a process goes by what it last heard of a bucket
MOST_KEYS = 10_000


class BadRate(Invalid):
    """A rate cannot be read."""

    code = "BAD_PULL_RATE"
    message = "{text!r} is no rate."
    message_zh = "{text!r} 不是有效的频率。"
    hint = "Write 60/minute, 1000/hour, or both with a comma between them; 0 is no limit."
    hint_zh = "请写成 60/minute、1000/hour，或用逗号分隔两者；0 表示不限制。"


@dataclass(frozen=True, kw_only=True)
class Rate:
    """So many in a minute or an hour."""

    number: int
    unit: str

    @property
    def bucket(self) -> Bucket:
        """It as a bucket, full at the start."""
        return Bucket(per_second=self.number / SECONDS[self.unit], burst=self.number)


def read_rates(text: str) -> list[Rate]:
    """`60/minute,1000/hour` as rates; what is 0 is left out."""
    rates: dict[str, int] = {}
    for part in filter(str.strip, text.split(",")):
        found = RATE.fullmatch(part)
        unit = found[2] or "minute" if found is not None else ""
        if found is None or unit in rates:  # two rates for one unit would share one bucket
            raise BadRate(text=text)
        rates[unit] = int(found[1])
    return [Rate(number=number, unit=unit) for unit, number in rates.items() if number]


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """What an answer tells of the limit that is nearest."""

    limit: int
    remaining: int
    reset_at: datetime

    @property
    def headers(self) -> dict[str, str]:
        """As the family's clients read it; the reset is in seconds since 1970."""
        return {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(self.remaining),
            "X-RateLimit-Reset": str(int(self.reset_at.timestamp()) + 1),
        }


@dataclass
class _Hand:
    """What this process has of one bucket, and what it last heard of the rest."""

    left: int = 0
    behind: float = 0.0
    heard_at: datetime = EPOCH
    empty_until: datetime = EPOCH  # when the bucket's next token comes
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    def is_fresh(self, now: datetime) -> bool:
        """Whether it has something to spend without asking."""
        return self.left > 0 and now < self.heard_at + FRESH

    def is_known_empty(self, now: datetime) -> bool:
        """Whether the bucket would refuse too: it said when its next token comes."""
        return not self.left and now < min(self.empty_until, self.heard_at + FRESH)


class PullGate:
    """The limits of pulls, for every key."""

    def __init__(self, limits: RateLimits, clock: Clock, *, rates: list[Rate], min_interval: float, quota: int) -> None:
        self._limits = limits
        self._clock = clock
        self._rates = rates
        self._interval = Bucket(per_second=1 / min_interval, burst=1) if min_interval > 0 else None
        self._quota = quota
        self._hands: OrderedDict[str, _Hand] = OrderedDict()  # the longest unused first

    async def admit(self, actor: str) -> Allowance | None:
        """Let one pull through, or `TooManyPulls`; tells what is left of the limit that is nearest."""
        if self._interval is not None:
            grant = await self._limits.take(f"pull:interval:{actor}", self._interval)
            if not grant.allowed:
                seconds = f"{1 / self._interval.per_second:g}"
                words, chinese = f"once in {seconds} s", f"每 {seconds} 秒一次"
                headers = self._spent(1, wait_seconds=grant.wait_seconds).headers
                raise TooManyPulls(wait_seconds=grant.wait_seconds, headers=headers, limit=words, limit_zh=chinese)
        paid: list[_Hand] = []
        try:
            for rate in self._rates:
                hand = await self._pay(actor, rate)
                paid.append(hand)
        except TooManyPulls:
            for hand in paid:  # a pull that one limit refuses does not count for the other
                hand.left += 1
            raise
        now = self._clock.now()
        told = [self._told(hand, rate, now) for hand, rate in zip(paid, self._rates, strict=True)]
        return min(told, key=_part_left, default=None)

    async def reserve(self, actor: str, amount: int) -> int:
        """How many of so many tasks the key may still pull today; `PullQuotaSpent` when none."""
        if not self._quota:
            return amount
        until, reserved = self._midnight(), 0
        while reserved < amount:  # near its end a quota is given out in ever smaller parts
            rest = amount - reserved
            given = await self._limits.reserve(f"pull:quota:{actor}", until=until, limit=self._quota, block=rest)
            if not given:
                break
            reserved += given
        if not reserved:
            wait_seconds = (until - self._clock.now()).total_seconds()
            headers = self._spent(self._quota, wait_seconds=wait_seconds).headers
            raise PullQuotaSpent(limit=self._quota, wait_seconds=wait_seconds, headers=headers)
        return reserved

    async def quota_headers(self, actor: str) -> dict[str, str]:
        """What is left of the day's quota, where there is one."""
        if not self._quota:
            return {}
        until = self._midnight()
        left = await self._limits.left(f"pull:quota:{actor}", until=until, limit=self._quota)
        told = {"Limit": self._quota, "Remaining": left, "Reset": int(until.timestamp())}
        return {f"X-Quota-{name}": str(value) for name, value in told.items()}

    async def give_back(self, actor: str, amount: int) -> None:
        """Return what was reserved and not pulled."""
        if self._quota and amount:
            await self._limits.give_back(f"pull:quota:{actor}", until=self._midnight(), amount=amount)

    async def _pay(self, actor: str, rate: Rate) -> _Hand:
        """Spend one token of a rate."""
        key = f"pull:{rate.unit}:{actor}"
        hand = self._hand(key)
        if not hand.is_fresh(self._clock.now()):
            async with hand.asking:  # a crowd asks once
                if not hand.is_fresh(self._clock.now()):
                    await self._fill(hand, key, rate)
        hand.left -= 1
        return hand

    async def _fill(self, hand: _Hand, key: str, rate: Rate) -> None:
        """Top up what is in hand; near the bucket's end only with what is needed now."""
        now = self._clock.now()
        if hand.is_known_empty(now):
            raise self._refusal(hand, rate)
        if now >= hand.heard_at + timedelta(seconds=SECONDS[rate.unit]):
            hand.left = 0  # the bucket has filled up since; this would be more than the limit
        wanted = max(0, max(1, rate.number // BLOCKS) - hand.left)
        grant = await self._limits.take(key, rate.bucket, amount=wanted)
        if not grant.allowed and not hand.left and wanted > 1:
            wanted, grant = 1, await self._limits.take(key, rate.bucket)
        hand.heard_at, hand.behind = self._clock.now(), grant.remaining
        if grant.allowed:
            # Nor may what is in hand and what is in the bucket be more than the limit together.
            hand.left = min(hand.left + wanted, max(1, rate.number - int(grant.remaining)))
        if not hand.left:
            hand.empty_until = hand.heard_at + timedelta(seconds=grant.wait_seconds)
            raise self._refusal(hand, rate)

    def _refusal(self, hand: _Hand, rate: Rate) -> TooManyPulls:
        return TooManyPulls(
            wait_seconds=max(0.0, (hand.empty_until - self._clock.now()).total_seconds()),
            headers=self._told(hand, rate, self._clock.now()).headers,
            limit=f"{rate.number} times a {rate.unit}",
            limit_zh=f"{CHINESE[rate.unit]} {rate.number} 次",
        )

    def _told(self, hand: _Hand, rate: Rate, now: datetime) -> Allowance:
        """What is left: in hand, and in the bucket, which has gone on filling since we heard of it."""
        per_second = rate.number / SECONDS[rate.unit]
        filled = hand.behind + (now - hand.heard_at).total_seconds() * per_second
        remaining = min(rate.number, int(filled) + hand.left)
        missing = (rate.number - remaining) / per_second
        return Allowance(limit=rate.number, remaining=remaining, reset_at=now + timedelta(seconds=missing))

    def _spent(self, limit: int, *, wait_seconds: float) -> Allowance:
        return Allowance(limit=limit, remaining=0, reset_at=self._clock.now() + timedelta(seconds=wait_seconds))

    def _hand(self, key: str) -> _Hand:
        hand = self._hands.get(key)
        if hand is None:
            hand = self._hands[key] = _Hand()
            if len(self._hands) > MOST_KEYS:
                self._hands.popitem(last=False)
        self._hands.move_to_end(key)
        return hand

    def _midnight(self) -> datetime:
        today = self._clock.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        return today + timedelta(days=1)


def _part_left(told: Allowance) -> float:
    return told.remaining / told.limit

"""Figures that were counted a moment ago, remembered for those who ask again.

However many ask for the same figure at the same time, it is counted once; whoever comes meanwhile gets that answer.
What took long to count is remembered longer, so that counting never takes more than a small part of the time. What was
asked for least lately is forgotten first: nobody can fill the memory by asking for ever new things.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from penstock.kernel.clock import Clock
from penstock.kernel.coalescer import Coalescer

T = TypeVar("T")
MOST_KEPT = 1_000
REST = 20  # times as long as the counting took


@dataclass(frozen=True, kw_only=True)
class Remembered(Generic[T]):
    """A figure, and when it was counted."""

    at: datetime
    until: datetime  # when it is too old
    figure: T


class Memory:
    """What this process remembers."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Remembered[Any]] = OrderedDict()
        self._trips = Coalescer()

    async def recall(
        self, key: Hashable, count: Callable[[], Awaitable[T]], *, clock: Clock, seconds: float
    ) -> Remembered[T]:
        """The figure of that key while it is younger than `seconds`, else counted anew; 0 is to remember nothing.

        What fails is not remembered.
        """

        async def look(askers: Sequence[None]) -> Sequence[Remembered[T]]:
            known = self._find(key, clock.now()) or self._keep(key, await _counted(count, clock, seconds))
            return [known] * len(askers)

        known: Remembered[T] = self._find(key, clock.now()) or await self._trips.ask(key, None, look)
        return known

    def _find(self, key: Hashable, now: datetime) -> Remembered[Any] | None:
        known = self._kept.get(key)
        if known is None or not known.at <= now < known.until:
            return None
        self._kept.move_to_end(key)
        return known

    def _keep(self, key: Hashable, known: Remembered[T]) -> Remembered[T]:
        self._kept[key] = known
        self._kept.move_to_end(key)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return known


async def _counted(count: Callable[[], Awaitable[T]], clock: Clock, seconds: float) -> Remembered[T]:
    at = clock.now()
    figure = await count()
    rest = max(timedelta(seconds=seconds), REST * (clock.now() - at)) if seconds else timedelta()
    return Remembered(at=at, until=at + rest, figure=figure)

"""What one watcher has been told and has still to be told: a bounded queue, and the table behind it.

The hub offers batches as they come. When too many wait, the oldest are dropped and counted; nothing is lost by that,
since the watcher reads from the table what was dropped, up to where its queue goes on. A watcher that begins at an id
of the past is in just that case from the start, so there is one way of catching up and no hand-over to get wrong.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from penstock.kernel.errors import Unavailable
from penstock.kernel.events import Interest, StoredEvent

QUEUE_BYTES = 1024 * 1024  # of text that waits for one watcher, beside the bound on its events
AWAY_SECONDS = 1.0  # before the next try to read from a database that is away


@dataclass(frozen=True, kw_only=True)
class EventBatch:
    """Events in a row, as the text that a stream sends for them. All who have the same interest share it."""

    first: int
    last: int  # with this, everything of its interest up to this id has been told
    count: int
    text: bytes

    @classmethod
    def of(cls, events: Sequence[StoredEvent]) -> "EventBatch":
        """A batch of at least one event."""
        text = b"".join(told.wire for told in events)
        return cls(first=events[0].id, last=events[-1].id, count=len(events), text=text)


Refill = Callable[[Interest, int, int], Awaitable[EventBatch]]


class Subscription:
    """One watcher. `take` gives what comes next, in order and each event once."""

    def __init__(self, interest: Interest, *, after: int, known: int, most_events: int, refill: Refill) -> None:
        self.interest = interest
        self.after = after  # where it begins
        self.dropped = 0  # events that had to be read from the table because too many waited
        self.closed = False
        self._told = after  # everything up to here was handed out
        self._missing_to = known  # what lies between has to be read from the table
        self._waiting: deque[EventBatch] = deque()
        self._waiting_events = 0
        self._waiting_bytes = 0
        self._most_events = most_events
        self._refill = refill
        self._bell = asyncio.Event()

    async def take(self, *, seconds: float) -> EventBatch | None:
        """The next batch; None when nothing came in time, when the table is out of reach, or when it is closed."""
        while not self.closed:
            if self._told < self._missing_to:
                batch = await self._read(seconds)
            elif self._waiting:
                batch = self._pop()
            elif await self._rung(seconds):
                continue
            else:
                return None
            if batch is None:
                return None
            if batch.last > self._told:  # else the table has told it already
                self._told = batch.last
                if batch.text:
                    return batch
        return None

    def offer(self, batch: EventBatch) -> int:
        """Add what is new; returns how many waiting events were dropped for it."""
        self._bell.set()
        if batch.last <= self._told:  # it was told elsewhere, before we came to know of it
            return 0
        if batch.first <= self._told:
            self._missing_to = batch.last
            return 0
        self._waiting.append(batch)
        self._waiting_events += batch.count
        self._waiting_bytes += len(batch.text)
        before = self.dropped
        while self._waiting_events > self._most_events or self._waiting_bytes > QUEUE_BYTES:
            oldest = self._pop()
            self._missing_to = oldest.last
            self.dropped += oldest.count
        return self.dropped - before

    def doubt(self, upto: int) -> None:
        """Look in the table for what lies before this id and was not offered."""
        self._missing_to = upto
        self._bell.set()

    def close(self) -> None:
        """Nothing more comes."""
        self.closed = True
        self._bell.set()

    def _pop(self) -> EventBatch:
        batch = self._waiting.popleft()
        self._waiting_events -= batch.count
        self._waiting_bytes -= len(batch.text)
        return batch

    async def _read(self, seconds: float) -> EventBatch | None:
        try:
            async with asyncio.timeout(seconds):
                return await self._refill(self.interest, self._told, self._missing_to)
        except TimeoutError:
            return None
        except Unavailable:
            await self._rung(min(seconds, AWAY_SECONDS))
            return None

    async def _rung(self, seconds: float) -> bool:
        self._bell.clear()
        try:
            async with asyncio.timeout(seconds):
                return await self._bell.wait()
        except TimeoutError:
            return False

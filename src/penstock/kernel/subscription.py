"""A subscription to events: a bounded queue, backed by the event table.

The hub offers batches as they arrive, and the stream takes them from the queue. When a slow client has too many events
queued (PENSTOCK_SSE_QUEUE, or 1 MiB), the oldest are dropped and counted; none are lost, since the subscription reads
the dropped ones from the table, up to where its queue continues. A subscription that starts at an id of the past is in
the same situation from the start, so there is only one way of catching up.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from penstock.kernel.errors import Unavailable
from penstock.kernel.events import Interest, StoredEvent

MAX_QUEUE_BYTES = 1024 * 1024  # of queued text per subscription, in addition to the limit of events
RETRY_SECONDS = 1.0  # before the next try to read from a database that is down


@dataclass(frozen=True, kw_only=True)
class EventBatch:
    """Consecutive events, encoded for a stream. Subscriptions with the same interest share it."""

    first: int
    last: int  # after this batch, all events of its interest up to this id have been sent
    count: int
    text: bytes

    @classmethod
    def of(cls, events: Sequence[StoredEvent]) -> "EventBatch":
        """A batch of at least one event."""
        text = b"".join(event.wire for event in events)
        return cls(first=events[0].id, last=events[-1].id, count=len(events), text=text)


Refill = Callable[[Interest, int, int], Awaitable[EventBatch]]


class Subscription:
    """One client. `take` returns the next events, in order and each once."""

    def __init__(self, interest: Interest, *, after: int, offered: int, max_events: int, refill: Refill) -> None:
        self.interest = interest
        self.after = after  # where it starts
        self.dropped = 0  # events read from the table because the queue was full
        self.closed = False
        self._sent = after  # everything up to this id was taken
        self._missing_to = offered  # what was offered before it subscribed has to be read from the table
        self._queue: deque[EventBatch] = deque()
        self._queued_events = 0
        self._queued_bytes = 0
        self._max_events = max_events
        self._refill = refill
        self._notified = asyncio.Event()

    async def take(self, *, seconds: float) -> EventBatch | None:
        """The next batch; None on a timeout, when the table cannot be read, or when the subscription is closed."""
        while not self.closed:
            if self._sent < self._missing_to:
                batch = await self._read(seconds)
            elif self._queue:
                batch = self._pop()
            elif await self._wait(seconds):
                continue
            else:
                return None
            if batch is None:
                return None
            if batch.last > self._sent:  # otherwise it was already read from the table
                self._sent = batch.last
                if batch.text:
                    return batch
        return None

    def offer(self, batch: EventBatch) -> int:
        """Queue new events; returns how many queued events were dropped for them."""
        self._notified.set()
        if batch.last <= self._sent:  # another process sent it before we read it
            return 0
        if batch.first <= self._sent:
            self._missing_to = batch.last
            return 0
        self._queue.append(batch)
        self._queued_events += batch.count
        self._queued_bytes += len(batch.text)
        before = self.dropped
        while self._queued_events > self._max_events or self._queued_bytes > MAX_QUEUE_BYTES:
            oldest = self._pop()
            self._missing_to = oldest.last
            self.dropped += oldest.count
        return self.dropped - before

    def mark_missing(self, upto: int) -> None:
        """Read the table up to this id, for events that were not offered."""
        self._missing_to = upto
        self._notified.set()

    def close(self) -> None:
        """End the subscription."""
        self.closed = True
        self._notified.set()

    def _pop(self) -> EventBatch:
        batch = self._queue.popleft()
        self._queued_events -= batch.count
        self._queued_bytes -= len(batch.text)
        return batch

    async def _read(self, seconds: float) -> EventBatch | None:
        try:
            async with asyncio.timeout(seconds):
                return await self._refill(self.interest, self._sent, self._missing_to)
        except TimeoutError:
            return None
        except Unavailable:
            await self._wait(min(seconds, RETRY_SECONDS))
            return None

    async def _wait(self, seconds: float) -> bool:
        self._notified.clear()
        try:
            async with asyncio.timeout(seconds):
                return await self._notified.wait()
        except TimeoutError:
            return False

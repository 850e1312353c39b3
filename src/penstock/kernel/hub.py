"""The event hub: one reader of the event table per process, which distributes events to all subscriptions.

When a commit notifies, and once a second, it runs the sequencer, which gives new events their ids, reads them in pages,
and offers them to the matching subscriptions.
It never waits for a subscription: the queue of a slow one overflows, and it reads from the table later. Subscriptions
are indexed by interest, and those with the same interest share one encoded batch. Subscriptions that fell behind
together share the pages they read, too.

When the hub stops, every stream ends, and clients reconnect to another process with the last id they saw.
"""

import asyncio
import logging
from collections import Counter, OrderedDict, defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain

import msgspec

from penstock.kernel.db import Db, Tx
from penstock.kernel.errors import TooMany, Unavailable
from penstock.kernel.events import CHANNEL, RESET, Interest, StoredEvent, latest_id, list_events, oldest_id
from penstock.kernel.retry import poll_forever
from penstock.kernel.sequencer import Sequencer
from penstock.kernel.subscription import EventBatch, Subscription
from penstock.kernel.wakeups import Listener

log = logging.getLogger(__name__)

PAGE = 200
POLL_SECONDS = 1.0  # how late at most we see events of other processes when there is no notifier
BATCH_SECONDS = 0.05  # between two polls while events trickle in, so that hundreds of streams send in batches
READY_TIMEOUT_SECONDS = 2.0  # how long a subscription waits for the first poll
RETRY_AFTER_SECONDS = 5.0  # the Retry-After when there are too many streams
MAX_CONCURRENT_REFILLS = 2  # leaves database connections to others while many subscriptions catch up
MAX_SHARED_PAGES = 16


class TooManyStreams(TooMany):
    """The limit of live event streams is reached."""

    code = "TOO_MANY_STREAMS"
    message = "The limit of {limit} live streams {whose} is reached; try again in {whole_seconds} s."
    message_zh = "{whose_zh}已打开 {limit} 个实时流，已达上限，请在 {whole_seconds} 秒后重试。"
    hint = "Close unused streams; one stream can carry every topic."
    hint_zh = "请关闭无人查看的流；一个流可以承载所有主题。"


class NoLiveEvents(Unavailable):
    """This process cannot serve live events: it is starting or stopping, or its database is down."""

    code = "NO_LIVE_EVENTS"
    message = "Live events are temporarily unavailable."
    message_zh = "实时事件暂时不可用。"
    hint = "Reconnect in a few seconds with the id of the last event received; no event is lost."
    hint_zh = "请几秒后带上最后收到的事件编号重连，其间的事件不会丢失。"
    internal_outage = True


class Hub:
    """The subscriptions of one process."""

    def __init__(
        self,
        db: Db,
        *,
        max_streams: int = 1000,
        max_per_tenant: int = 100,
        max_queued: int = 256,
        keepalive_seconds: float = 15,
    ) -> None:
        self.keepalive_seconds = keepalive_seconds  # how often an idle stream sends a comment
        self.dropped = 0  # events dropped from the queues of slow subscriptions, in total
        self.sequencer = Sequencer(db)
        self._db = db
        self._max_streams = max_streams
        self._max_per_tenant = max_per_tenant
        self._max_queued = max_queued
        self._position = 0  # all events up to this id were offered
        self._page_was_full = False
        self._is_sequenced = True  # whether the last pass of the sequencer left no event without an id
        self._ready = asyncio.Event()
        self._closed = False
        self._tenants: Counter[str] = Counter()
        self._subscriptions: defaultdict[Interest, set[Subscription]] = defaultdict(set)
        self._interests: defaultdict[tuple[str | None, str | None], set[Interest]] = defaultdict(set)
        self._added = Listener(db.clock)  # notified by a new subscription; without any, events are not read
        self._refills = asyncio.Semaphore(MAX_CONCURRENT_REFILLS)
        self._pages: OrderedDict[tuple[Interest, int], asyncio.Task[EventBatch]] = OrderedDict()

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return self._tenants.total()

    async def run(self) -> None:
        """Distribute new events until cancelled; then end all streams."""
        listener = self._db.wakeups.listen([CHANNEL])

        async def wait(found: int) -> None:
            if not found and self._is_sequenced:
                await (listener if self._subscriptions else self._added).wait(seconds=POLL_SECONDS)
            elif found < PAGE:
                await self._db.clock.sleep(BATCH_SECONDS)

        try:
            await poll_forever(self._db.clock, self._poll, wait, warning="event hub: cannot read events")
        finally:
            self._db.wakeups.unlisten(listener)
            self.close()

    def close(self) -> None:
        """End every stream and accept no more."""
        self._closed = True
        self._ready.set()
        for subscription in self._all_subscriptions():
            subscription.close()

    @asynccontextmanager
    async def subscribed(
        self, interest: Interest, *, tenant: str, after: int | None = None
    ) -> AsyncIterator[Subscription]:
        """A subscription that starts after the event `after`, or at about now: events of the second before may be
        included, and none are missed. Raises `TooManyStreams` and `NoLiveEvents`."""
        await self._wait_until_ready()
        if after is not None and after > self._position:
            after = await self._existing(after)
        subscription = self._add(interest, tenant, after)
        try:
            yield subscription
        finally:
            self._remove(subscription, tenant)

    # Subscriptions

    async def _wait_until_ready(self) -> None:
        try:
            async with asyncio.timeout(READY_TIMEOUT_SECONDS):
                await self._ready.wait()
        except TimeoutError as error:
            raise NoLiveEvents from error

    async def _existing(self, after: int) -> int:
        """The id if it was issued, since another process may be ahead of us. Otherwise -1: the client comes from
        another database, and gets a reset."""
        async with self._db.read() as tx:
            return after if after <= await latest_id(tx) else -1

    def _add(self, interest: Interest, tenant: str, after: int | None) -> Subscription:
        if self._closed:
            raise NoLiveEvents
        if self.streams >= self._max_streams:
            raise _too_many(self._max_streams, "of this process", "此处")
        if self._tenants[tenant] >= self._max_per_tenant:
            raise _too_many(self._max_per_tenant, f"for {tenant}", f"{tenant} ")
        subscription = Subscription(
            interest,
            after=self._position if after is None else after,
            offered=self._position,
            max_events=self._max_queued,
            refill=self._refill,
        )
        self._tenants[tenant] += 1
        self._subscriptions[interest].add(subscription)
        self._added.notify()
        for key in interest.keys:
            self._interests[key].add(interest)
        return subscription

    def _all_subscriptions(self) -> Iterator[Subscription]:
        return chain.from_iterable(self._subscriptions.values())

    def _remove(self, subscription: Subscription, tenant: str) -> None:
        """Remove all traces of a subscription: otherwise memory would grow with every topic ever watched."""
        interest = subscription.interest
        self._tenants[tenant] -= 1
        if not self._tenants[tenant]:
            del self._tenants[tenant]
        self._subscriptions[interest].discard(subscription)
        if self._subscriptions[interest]:
            return
        del self._subscriptions[interest]
        for key in interest.keys:
            self._interests[key].discard(interest)
            if not self._interests[key]:
                del self._interests[key]

    # Reading

    async def _poll(self) -> int:
        """Dispatch a page of new events; returns how many it had.

        It runs the sequencer without subscriptions, too: otherwise the next one would get old events as new ones.
        """
        found = await self._read_page() if self._page_was_full else 0
        if not found:
            self._is_sequenced = await self.sequencer.run_pass()
            found = await self._read_page()
        self._page_was_full = found == PAGE
        return found

    async def _read_page(self) -> int:
        async with self._db.read() as tx:
            if not self._subscriptions and await self._skip_to_newest(tx):
                return 0
            events = await list_events(tx, after=self._position, limit=PAGE)
        if events:
            self._dispatch(events)
        return len(events)

    async def _skip_to_newest(self, tx: Tx) -> bool:
        """Skip to the newest event without reading, unless a subscription was added meanwhile."""
        newest = await latest_id(tx)
        if self._subscriptions:
            return False
        self._position = newest
        self._ready.set()
        return True

    def _dispatch(self, events: Sequence[StoredEvent]) -> None:
        if (before := events[0].id - 1) > self._position:  # a failed pass, or events were deleted before they were read
            for subscription in self._all_subscriptions():
                subscription.mark_missing(before)
        for interest, wanted in self._by_interest(events).items():
            batch = EventBatch.of(wanted)
            for subscription in self._subscriptions[interest]:
                self.dropped += subscription.offer(batch)
        self._position = events[-1].id

    def _by_interest(self, events: Sequence[StoredEvent]) -> dict[Interest, list[StoredEvent]]:
        found: defaultdict[Interest, list[StoredEvent]] = defaultdict(list)
        for event in events:
            for key in ((None, None), (event.topic, None), (None, event.audience), (event.topic, event.audience)):
                for interest in self._interests.get(key, ()):
                    found[interest].append(event)
        return found

    async def _refill(self, interest: Interest, after: int, upto: int) -> EventBatch:
        """The first page of events in (after, upto] for a subscription. Past events do not change, so those that
        fell behind together share one read. A client that leaves does not cancel it: a cancelled statement costs its
        connection."""
        key = (interest, after)
        while True:
            reading = self._pages.get(key) or self._begin_reading(key, upto)
            page = await asyncio.shield(reading)
            if page.last <= upto:
                return page
            self._pages.pop(key, None)  # it reaches beyond what this subscription is missing

    def _begin_reading(self, key: tuple[Interest, int], upto: int) -> asyncio.Task[EventBatch]:
        reading = self._pages[key] = asyncio.create_task(self._read(*key, upto))
        reading.add_done_callback(partial(self._end_reading, key))
        while len(self._pages) > MAX_SHARED_PAGES:
            self._pages.popitem(last=False)
        return reading

    def _end_reading(self, key: tuple[Interest, int], reading: asyncio.Task[EventBatch]) -> None:
        failed = reading.cancelled() or reading.exception() is not None
        if failed and self._pages.get(key) is reading:
            del self._pages[key]

    async def _read(self, interest: Interest, after: int, upto: int) -> EventBatch:
        async with self._refills, self._db.read() as tx:
            events = await list_events(tx, interest, after=after, upto=upto, limit=PAGE)
            oldest = await oldest_id(
                tx
            )  # read after the page, so that everything from it on was still there when the page was read
        if after < 0 or oldest > after + 1:
            return _reset(oldest, last=min(max(oldest - 1, 0), upto))
        if len(events) == PAGE:
            return EventBatch.of(events)
        text = EventBatch.of(events).text if events else b""
        return EventBatch(first=after + 1, last=upto, count=len(events), text=text)


def _too_many(limit: int, whose: str, whose_zh: str) -> TooManyStreams:
    return TooManyStreams(limit=limit, whose=whose, whose_zh=whose_zh, wait_seconds=RETRY_AFTER_SECONDS)


def _reset(oldest: int, *, last: int) -> EventBatch:
    """The reset event: events before the oldest are missing; the stream continues after `last`."""
    body = msgspec.json.encode({"oldest": oldest})
    text = b"id: %d\nevent: %s\ndata: %s\n\n" % (last, RESET.encode(), body)
    return EventBatch(first=last, last=last, count=0, text=text)

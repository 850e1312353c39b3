"""Figures for Prometheus, in one registry per house. docs/reference/http.md names them all.

Requests are counted in plain dictionaries, since every request pays for it; they become samples when someone looks.
What the database knows is counted when someone looks, too, and then remembered for some seconds (`Counted`). Modules
add collectors of their own.
"""

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Generic, Protocol, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.kernel.db import Db, Tx
from penstock.kernel.errors import PenstockError
from penstock.kernel.looks import Look, NoAnswer
from penstock.kernel.tally import MOST_COUNTED, Tally, count_all

log = logging.getLogger(__name__)

T = TypeVar("T")

PAGE_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BOUNDS = [*map(str, BUCKETS), "+Inf"]
TALLY_SECONDS = 5.0
PATIENCE_SECONDS = 1.5  # a database that hangs must not hide the figures that do not need it


class Streams(Protocol):
    """Live event streams; `kernel/hub.py` has them."""

    dropped: int

    @property
    def streams(self) -> int:
        """How many are open."""
        ...


class KnownBreaker(Protocol):
    """Something that is left alone for a while after it failed; `kernel/circuit_breaker.py` has them."""

    name: str

    @property
    def open(self) -> bool:
        """Whether it is left alone now."""
        ...

    @property
    def reason(self) -> str:
        """Why."""
        ...


class Traffic(Collector):
    """Requests, by the template of their route: a path that nobody serves cannot make a name of its own."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str, int], int] = {}
        self._spread: dict[tuple[str, str], list[int]] = {}
        self._seconds: dict[tuple[str, str], float] = {}

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """One request was answered."""
        exact, key = (method, route, status), (method, route)
        self._requests[exact] = self._requests.get(exact, 0) + 1
        if key not in self._spread:
            self._spread[key], self._seconds[key] = [0] * len(BOUNDS), 0.0
        self._spread[key][bisect_left(BUCKETS, seconds)] += 1
        self._seconds[key] += seconds

    def collect(self) -> Iterable[Metric]:
        """The samples."""
        by = ["method", "route"]
        requests = CounterMetricFamily("penstock_http_requests", "Requests answered.", labels=[*by, "status"])
        for (method, route, status), number in self._requests.items():
            requests.add_metric([method, route, str(status)], number)
        words = "How long answers took; of streams, how long their beginning took."
        seconds = HistogramMetricFamily("penstock_http_request_seconds", words, labels=by)
        for key, spread in self._spread.items():
            seconds.add_metric(key, list(zip(BOUNDS, accumulate(spread), strict=True)), self._seconds[key])
        return [requests, seconds]


class Counted(Collector, Generic[T]):
    """Figures that the database knows. `told` is what was counted last, or None when it could not be."""

    def __init__(self, db: Db, count: Callable[[Tx], Awaitable[T]]) -> None:
        self.told: T | None = None
        self._db = db
        self._ask = count
        self._look = Look(self._count, fresh_seconds=TALLY_SECONDS, patience_seconds=PATIENCE_SECONDS)

    async def refresh(self) -> None:
        """Count anew, unless that was a moment ago."""
        try:
            self.told = await self._look.answer()
        except (PenstockError, NoAnswer) as error:
            log.warning("%s cannot be counted for now: %s", type(self).__name__, error)
            self.told = None

    async def _count(self) -> T:
        async with self._db.read() as tx:
            return await self._ask(tx)


class Work(Counted[Tally]):
    """What there is to do."""

    def __init__(self, db: Db) -> None:
        super().__init__(db, count_all)

    def collect(self) -> Iterable[Metric]:
        """The samples; of what could not be read there are none."""
        told = self.told
        yield gauge("penstock_work_known", "Whether the database told what there is to do.", {"": told is not None})
        if told is None:
            return
        words = f"Jobs by state and room; a count stops at {MOST_COUNTED}."
        jobs = GaugeMetricFamily("penstock_jobs", words, labels=["state", "room"])
        for labels, number in told.jobs.items():
            jobs.add_metric(labels, number)
        yield jobs
        yield gauge("penstock_jobs_oldest_seconds", "How long a room's next job has been due.", told.job_waits, "room")
        words = f"Messages in the outbox by state; a count stops at {MOST_COUNTED}."
        yield gauge("penstock_outbox", words, told.messages, "state")
        yield gauge("penstock_outbox_oldest_seconds", "How long a message has been due.", {"": told.message_wait})
        yield gauge("penstock_processes", "Processes that are alive, by kind.", told.processes, "kind")


class Parts(Collector):
    """The parts of this process that count by themselves."""

    def __init__(self, version: str, streams: Streams | None, breakers: Sequence[KnownBreaker]) -> None:
        self._version = version
        self._streams = streams
        self._breakers = breakers

    def collect(self) -> Iterable[Metric]:
        """The samples."""
        yield gauge("penstock_version", "The version that runs; always 1.", {self._version: 1}, "version")
        if self._streams is not None:
            yield gauge("penstock_sse_streams", "Live event streams that are open.", {"": self._streams.streams})
            words = "Events that slow streams had to read again."
            yield CounterMetricFamily("penstock_sse_dropped", words, value=self._streams.dropped)
        opened = {breaker.name: breaker.open for breaker in self._breakers}
        yield gauge("penstock_breaker_open", "Whether something that failed is left alone.", opened, "name")


class Metrics:
    """All figures of one house; `more` are those of its rooms."""

    def __init__(
        self,
        db: Db,
        *,
        version: str,
        streams: Streams | None = None,
        breakers: Sequence[KnownBreaker] = (),
        more: Sequence[Collector] = (),
    ) -> None:
        self.traffic = Traffic()
        collectors = (self.traffic, Work(db), Parts(version, streams, breakers), *more)
        self._counted = [one for one in collectors if isinstance(one, Counted)]
        self._registry = CollectorRegistry(auto_describe=False)
        for collector in collectors:
            self._registry.register(collector)
        ProcessCollector(registry=self._registry)

    async def page(self) -> bytes:
        """The figures of now, in Prometheus's text form."""
        await asyncio.gather(*(one.refresh() for one in self._counted))
        return generate_latest(self._registry)


def gauge(name: str, words: str, values: Mapping[str, float], *label: str) -> GaugeMetricFamily:
    """A gauge with at most one label."""
    gauge = GaugeMetricFamily(name, words, labels=label)
    for value, number in values.items():
        gauge.add_metric([value] if label else [], number)
    return gauge

"""Prometheus metrics (text format), in one registry per process. docs/reference/http.md lists them all.

Requests are counted in plain dictionaries, because every request pays for it; samples are made on a scrape. Metrics
from the database are queried on a scrape, too, and cached for some seconds (`DatabaseMetrics`): they cover the whole
cluster, all others this process. Modules add collectors of their own.
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

from penstock.kernel.cache import CachedCheck, CheckTimedOut
from penstock.kernel.db import Db, Tx
from penstock.kernel.errors import PenstockError
from penstock.kernel.queue_stats import MAX_COUNTED, QueueStats, get_queue_stats

log = logging.getLogger(__name__)

T = TypeVar("T")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BOUNDS = [*map(str, BUCKETS), "+Inf"]
CACHE_SECONDS = 5.0
TIMEOUT_SECONDS = 1.5  # a database that hangs must not hide the other metrics


class StreamStats(Protocol):
    """Counters of live event streams, as `kernel/hub.py` has them."""

    dropped: int

    @property
    def streams(self) -> int:
        """How many streams are open."""
        ...


class BreakerStatus(Protocol):
    """The state of a circuit breaker, as `kernel/circuit_breaker.py` has it."""

    name: str

    @property
    def open(self) -> bool:
        """Whether calls are blocked now."""
        ...

    @property
    def reason(self) -> str:
        """Why it is open."""
        ...


class HttpMetrics(Collector):
    """HTTP requests by route template, so that unknown paths cannot create new label values."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str, int], int] = {}
        self._spread: dict[tuple[str, str], list[int]] = {}
        self._seconds: dict[tuple[str, str], float] = {}

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        exact, key = (method, route, status), (method, route)
        self._requests[exact] = self._requests.get(exact, 0) + 1
        if key not in self._spread:
            self._spread[key], self._seconds[key] = [0] * len(BOUNDS), 0.0
        self._spread[key][bisect_left(BUCKETS, seconds)] += 1
        self._seconds[key] += seconds

    def collect(self) -> Iterable[Metric]:
        """The samples."""
        by = ["method", "route"]
        requests = CounterMetricFamily("penstock_http_requests_total", "Requests answered.", labels=[*by, "status"])
        for (method, route, status), number in self._requests.items():
            requests.add_metric([method, route, str(status)], number)
        text = "Response time; for streams, time to the first byte."
        seconds = HistogramMetricFamily("penstock_http_request_seconds", text, labels=by)
        for key, spread in self._spread.items():
            seconds.add_metric(key, list(zip(BOUNDS, accumulate(spread), strict=True)), self._seconds[key])
        return [requests, seconds]


class DatabaseMetrics(Collector, Generic[T]):
    """Metrics queried from the database. `value` is the last result, or None when the query failed."""

    def __init__(self, db: Db, query: Callable[[Tx], Awaitable[T]]) -> None:
        self.value: T | None = None
        self._db = db
        self._query = query
        self._cached_query = CachedCheck(self._run, ttl_seconds=CACHE_SECONDS, timeout_seconds=TIMEOUT_SECONDS)

    async def refresh(self) -> None:
        """Query again, unless the cached value is fresh."""
        try:
            self.value = await self._cached_query.result()
        except (PenstockError, CheckTimedOut) as error:
            log.warning("metrics: cannot query %s: %s", type(self).__name__, error)
            self.value = None

    async def _run(self) -> T:
        async with self._db.read() as tx:
            return await self._query(tx)


class QueueMetrics(DatabaseMetrics[QueueStats]):
    """Jobs, outbox messages, events and processes."""

    def __init__(self, db: Db) -> None:
        super().__init__(db, get_queue_stats)

    def collect(self) -> Iterable[Metric]:
        """The samples; only `penstock_work_known` when the query failed."""
        stats = self.value
        yield gauge("penstock_work_known", "Whether the queue statistics could be read.", {"": stats is not None})
        if stats is None:
            return
        text = f"Jobs by state and module (label room); a count stops at {MAX_COUNTED}."
        jobs = GaugeMetricFamily("penstock_jobs", text, labels=["state", "room"])
        for labels, number in stats.jobs.items():
            jobs.add_metric(labels, number)
        yield jobs
        yield gauge(
            "penstock_jobs_oldest_seconds", "How long a module's next job has been due.", stats.job_waits, "room"
        )
        text = f"Outbox messages by state; a count stops at {MAX_COUNTED}."
        yield gauge("penstock_outbox", text, stats.messages, "state")
        yield gauge(
            "penstock_outbox_oldest_seconds", "How long the oldest message has been due.", {"": stats.message_wait}
        )
        text = f"Events that wait for the sequencer; a count stops at {MAX_COUNTED}."
        yield gauge("penstock_events_waiting", text, {"": stats.events})
        yield gauge("penstock_processes", "Processes that are alive, by kind.", stats.processes, "kind")


class ProcessMetrics(Collector):
    """Metrics of this process: version, event streams and circuit breakers."""

    def __init__(self, version: str, streams: StreamStats | None, breakers: Sequence[BreakerStatus]) -> None:
        self._version = version
        self._streams = streams
        self._breakers = breakers

    def collect(self) -> Iterable[Metric]:
        """The samples."""
        yield gauge("penstock_version", "The version that runs; always 1.", {self._version: 1}, "version")
        if self._streams is not None:
            yield gauge("penstock_sse_streams", "Live event streams that are open.", {"": self._streams.streams})
            text = "Events dropped from the buffers of slow streams, which read them from the database instead."
            yield CounterMetricFamily("penstock_sse_dropped_total", text, value=self._streams.dropped)
        opened = {breaker.name: breaker.open for breaker in self._breakers}
        yield gauge("penstock_breaker_open", "Whether the circuit breaker is open.", opened, "name")


class Metrics:
    """All metrics of one process; `more` are the collectors of its modules."""

    def __init__(
        self,
        db: Db,
        *,
        version: str,
        streams: StreamStats | None = None,
        breakers: Sequence[BreakerStatus] = (),
        more: Sequence[Collector] = (),
    ) -> None:
        self.http = HttpMetrics()
        collectors = (self.http, QueueMetrics(db), ProcessMetrics(version, streams, breakers), *more)
        self._queried = [one for one in collectors if isinstance(one, DatabaseMetrics)]
        self._registry = CollectorRegistry(auto_describe=False)
        for collector in collectors:
            self._registry.register(collector)
        ProcessCollector(registry=self._registry)  # process_*: memory, CPU time, start time, open file descriptors

    async def page(self) -> bytes:
        """The current metrics in Prometheus text format."""
        await asyncio.gather(*(one.refresh() for one in self._queried))
        return generate_latest(self._registry)


def gauge(name: str, text: str, values: Mapping[str, float], *label: str) -> GaugeMetricFamily:
    """A gauge with at most one label."""
    gauge = GaugeMetricFamily(name, text, labels=label)
    for value, number in values.items():
        gauge.add_metric([value] if label else [], number)
    return gauge

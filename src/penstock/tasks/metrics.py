"""Prometheus metrics of tasks.

`TaskMetrics` counts what this process does, in plain dictionaries. Project and queue ids are user input: past a bound
they are counted as one series, so label cardinality is limited. The success of pulls is known only to the database,
since a client may pull from one process and push to another: `PullHealthMetrics` queries it on each scrape.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.kernel.db import Db, Tx
from penstock.kernel.metrics import DatabaseMetrics, gauge
from penstock.tasks.domain import PullOutcome
from penstock.tasks.store import alerts

MAX_PAIRS = 200  # of project and queue: each is a time series in Prometheus
OTHER = "other"
BUCKETS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0)
BOUNDS = [*map(str, BUCKETS), "+Inf"]
RECENT = timedelta(hours=1)
MIN_ENDED_PULLS = 10  # a ratio of fewer pulls is noise: a single release would raise an alert


class TaskMetrics(Collector):
    """Counters of one process."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str]] = Counter()
        self._tasks: Counter[str] = Counter()
        self._operations: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()
        self._limited = 0
        self._buckets = [0] * len(BOUNDS)
        self._seconds = 0.0

    def count_pull(self, project_id: str, queue_id: str, taken: int) -> None:
        """Count a pull by project and queue, and the tasks it returned. Label values are bounded."""
        pair = (project_id, queue_id)
        if pair not in self._requests and len(self._requests) >= MAX_PAIRS:
            pair = (OTHER, OTHER)
        self._requests[pair] += 1
        self._tasks[pair[0]] += taken

    def count_limited(self) -> None:
        """Count a pull that a rate limit or quota refused."""
        self._limited += 1

    def count_operation(self, operation: str) -> None:
        """Count a reset or re-run of a queue."""
        self._operations[operation] += 1

    def count_ended(self, outcome: str, seconds: float) -> None:
        """Count the end of a pull."""
        self._ended[outcome] += 1
        if outcome == PullOutcome.PUSHED:
            self._buckets[bisect_left(BUCKETS, seconds)] += 1
            self._seconds += seconds

    def collect(self) -> Iterable[Metric]:
        """The samples of a scrape."""
        description = f"Pull requests; past {MAX_PAIRS} pairs of project and queue they are counted as {OTHER}."
        requests = CounterMetricFamily("penstock_pull_requests_total", description, labels=["project", "queue"])
        for pair, number in self._requests.items():
            requests.add_metric(pair, number)
        yield requests
        yield _counter("penstock_pull_tasks_total", "Tasks pulled.", "project", self._tasks)
        yield CounterMetricFamily(
            "penstock_pull_limited_total", "Pulls refused by a rate limit or quota.", value=self._limited
        )
        yield _counter("penstock_pull_ended_total", "Pulls that ended in this process.", "outcome", self._ended)
        seconds = HistogramMetricFamily("penstock_pull_seconds", "Seconds from a pull to the push that closed it.")
        seconds.add_metric([], list(zip(BOUNDS, accumulate(self._buckets), strict=True)), self._seconds)
        yield seconds
        yield _counter(
            "penstock_queue_operations_total", "Resets and re-runs of queues.", "operation", self._operations
        )


@dataclass(frozen=True, kw_only=True)
class PullHealth:
    """The state of pulls in all projects."""

    success_ratio: float | None  # None while too few pulls have ended
    overdue: int


class PullHealthMetrics(DatabaseMetrics[PullHealth]):
    """Gauges of pulls in all projects, from the database."""

    def __init__(self, db: Db, *, pull_timeout: float) -> None:
        super().__init__(db, self._look_up)
        self._pull_timeout = timedelta(seconds=pull_timeout)

    async def _look_up(self, tx: Tx) -> PullHealth:
        outcomes = await alerts.count_outcomes(tx, since=tx.now - RECENT)
        ended = sum(outcomes.values())
        ratio = outcomes.get(PullOutcome.PUSHED, 0) / ended if ended >= MIN_ENDED_PULLS else None
        overdue = await alerts.count_overdue(tx, pulled_before=tx.now - self._pull_timeout)
        return PullHealth(success_ratio=ratio, overdue=overdue)

    def collect(self) -> Iterable[Metric]:
        """The samples of a scrape; none for a value that could not be read."""
        health = self.value
        ratio = {"": health.success_ratio} if health is not None and health.success_ratio is not None else {}
        yield gauge("penstock_pull_success_ratio", "Share of the pulls ended in the last hour that were pushed.", ratio)
        overdue = {"": health.overdue} if health is not None else {}
        yield gauge("penstock_pulls_overdue", "Tasks held for longer than the pull timeout.", overdue)


def _counter(name: str, description: str, label: str, numbers: Counter[str]) -> CounterMetricFamily:
    counter = CounterMetricFamily(name, description, labels=[label])
    for value, number in numbers.items():
        counter.add_metric([value], number)
    return counter

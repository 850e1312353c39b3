"""What is counted about tasks for Prometheus.

What this process does is counted in plain dictionaries. The names of projects and queues are other people's: past a
bound they are counted together, so that nobody can make up names without end. How pulls fare as a whole only the
database knows, since whoever pulls here may push elsewhere: `PullFigures` asks it when someone looks.
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
from penstock.kernel.metrics import Counted, gauge
from penstock.tasks.domain import Outcome
from penstock.tasks.store import alerts

MOST_PAIRS = 200  # of a project and a queue: each is a series that Prometheus keeps
OTHER = "other"
BUCKETS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0)
BOUNDS = [*map(str, BUCKETS), "+Inf"]
RECENT = timedelta(hours=1)
LEAST_ENDED = 10  # of fewer pulls a ratio says nothing: one that was released would be an alarm


class Meters(Collector):
    """The figures of one process."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str]] = Counter()
        self._tasks: Counter[str] = Counter()
        self._operations: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()
        self._limited = 0
        self._spread = [0] * len(BOUNDS)
        self._seconds = 0.0

    def count_pull(self, project_id: str, queue_id: str, taken: int) -> None:
        """A pull was answered with so many tasks."""
        pair = (project_id, queue_id)
        if pair not in self._requests and len(self._requests) >= MOST_PAIRS:
            pair = (OTHER, OTHER)
        self._requests[pair] += 1
        self._tasks[pair[0]] += taken

    def count_limited(self) -> None:
        """A pull was refused for being one too many."""
        self._limited += 1

    def count_operation(self, operation: str) -> None:
        """A queue was reset or run again."""
        self._operations[operation] += 1

    def count_ended(self, outcome: str, seconds: float) -> None:
        """A pull came to its end."""
        self._ended[outcome] += 1
        if outcome == Outcome.PUSHED:
            self._spread[bisect_left(BUCKETS, seconds)] += 1
            self._seconds += seconds

    def collect(self) -> Iterable[Metric]:
        """The samples."""
        words = f"Pulls answered; past {MOST_PAIRS} pairs of a project and a queue they are counted as {OTHER}."
        requests = CounterMetricFamily("penstock_pull_requests", words, labels=["project", "queue"])
        for pair, number in self._requests.items():
            requests.add_metric(pair, number)
        yield requests
        yield _counter("penstock_pull_tasks", "Tasks handed out.", "project", self._tasks)
        yield CounterMetricFamily("penstock_pull_limited", "Pulls refused by a limit or a quota.", value=self._limited)
        yield _counter("penstock_pull_ended", "Pulls that came to their end here.", "outcome", self._ended)
        seconds = HistogramMetricFamily("penstock_pull_seconds", "From a pull to the push that closed it.")
        seconds.add_metric([], list(zip(BOUNDS, accumulate(self._spread), strict=True)), self._seconds)
        yield seconds
        yield _counter("penstock_queue_operations", "Resets and re-runs of queues.", "operation", self._operations)


@dataclass(frozen=True, kw_only=True)
class PullHealth:
    """How pulls fare, in all projects together."""

    success_ratio: float | None  # None while too few have ended to tell
    overdue: int


class PullFigures(Counted[PullHealth]):
    """How pulls fare, as the database knows it."""

    def __init__(self, db: Db, *, pull_timeout: float) -> None:
        super().__init__(db, self._look_up)
        self._pull_timeout = timedelta(seconds=pull_timeout)

    async def _look_up(self, tx: Tx) -> PullHealth:
        outcomes = await alarms.count_outcomes(tx, since=tx.now - RECENT)
        ended = sum(outcomes.values())
        ratio = outcomes.get(Outcome.PUSHED, 0) / ended if ended >= LEAST_ENDED else None
        overdue = await alarms.count_overdue(tx, pulled_before=tx.now - self._pull_timeout)
        return PullHealth(success_ratio=ratio, overdue=overdue)

    def collect(self) -> Iterable[Metric]:
        """The samples; of what could not be read, or says nothing, there are none."""
        told = self.told
        ratio = {"": told.success_ratio} if told is not None and told.success_ratio is not None else {}
        yield gauge("penstock_pull_success_ratio", "Which part of the last hour's ended pulls was pushed.", ratio)
        overdue = {"": told.overdue} if told is not None else {}
        yield gauge("penstock_pulls_overdue", "Tasks held for longer than a pull may take in silence.", overdue)


def _counter(name: str, words: str, label: str, numbers: Counter[str]) -> CounterMetricFamily:
    counter = CounterMetricFamily(name, words, labels=[label])
    for value, number in numbers.items():
        counter.add_metric([value], number)
    return counter

"""What is counted about documents for Prometheus.

What this process ends is counted as it happens; how many tasks are under way in the whole house only the database
knows, and `EtlFigures` asks it when someone looks.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from functools import partial
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.etl.store.tasks import count_under_way
from penstock.kernel.db import Db
from penstock.kernel.metrics import DatabaseMetrics, gauge

BUCKETS = (0.1, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
BOUNDS = [*map(str, BUCKETS), "+Inf"]


class Meters(Collector):
    """The figures of one process."""

    def __init__(self) -> None:
        self._ended: Counter[str] = Counter()
        self._spread: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}
        self._looks: Counter[tuple[str, str]] = Counter()

    def count_ended(self, status: str) -> None:
        """A task came to its end."""
        self._ended[status] += 1

    def count_stage(self, stage: str, seconds: float) -> None:
        """A worker left a stage, well or not."""
        self._spread.setdefault(stage, [0] * len(BOUNDS))[bisect_left(BUCKETS, seconds)] += 1
        self._seconds[stage] = self._seconds.get(stage, 0.0) + seconds

    def count_hit(self, stage: str) -> None:
        """The memory had what a stage was to make."""
        self._looks[stage, "hit"] += 1

    def count_miss(self, stage: str) -> None:
        """It had not."""
        self._looks[stage, "miss"] += 1

    def collect(self) -> Iterable[Metric]:
        """The samples."""
        ended = CounterMetricFamily("penstock_etl_tasks", "Etl tasks that came to their end here.", labels=["status"])
        for status, number in self._ended.items():
            ended.add_metric([status], number)
        yield ended
        seconds = HistogramMetricFamily("penstock_etl_stage_seconds", "How long attempts took.", labels=["stage"])
        for stage, spread in self._spread.items():
            seconds.add_metric([stage], list(zip(BOUNDS, accumulate(spread), strict=True)), self._seconds[stage])
        yield seconds
        words = "Looks of stages into the memory."
        looks = CounterMetricFamily("penstock_etl_memory", words, labels=["stage", "outcome"])
        for labels, number in self._looks.items():
            looks.add_metric(labels, number)
        yield looks


class EtlFigures(DatabaseMetrics[int]):
    """How many tasks are under way, as the database knows it."""

    def __init__(self, db: Db, *, queue_size: int) -> None:
        super().__init__(db, partial(count_under_way, most=queue_size))

    def collect(self) -> Iterable[Metric]:
        """The sample; none when it could not be counted."""
        under_way = {"": self.value} if self.value is not None else {}
        words = "Etl tasks that are under way; the count stops at ETL_QUEUE_SIZE."
        yield gauge("penstock_etl_under_way", words, under_way)

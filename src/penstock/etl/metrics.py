"""Prometheus metrics of the etl module.

Each process counts what it does itself. The number of active tasks in the cluster comes from the database:
`EtlQueueMetrics` queries it on a scrape.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from functools import partial
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.etl.store.tasks import count_active
from penstock.kernel.db import Db
from penstock.kernel.metrics import DatabaseMetrics, gauge

BUCKETS = (0.1, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
BOUNDS = [*map(str, BUCKETS), "+Inf"]


class Metrics(Collector):
    """Metrics of one process."""

    def __init__(self) -> None:
        self._ended: Counter[str] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}
        self._lookups: Counter[tuple[str, str]] = Counter()

    def count_ended(self, status: str) -> None:
        """Count a task that ended."""
        self._ended[status] += 1

    def count_stage(self, stage: str, seconds: float) -> None:
        """Observe the duration of a stage attempt, successful or not."""
        self._buckets.setdefault(stage, [0] * len(BOUNDS))[bisect_left(BUCKETS, seconds)] += 1
        self._seconds[stage] = self._seconds.get(stage, 0.0) + seconds

    def count_hit(self, stage: str) -> None:
        """Count a cache hit of a stage in `penstock_etl_memory_total`."""
        self._lookups[stage, "hit"] += 1

    def count_miss(self, stage: str) -> None:
        """Count a cache miss of a stage."""
        self._lookups[stage, "miss"] += 1

    def collect(self) -> Iterable[Metric]:
        """The samples."""
        ended = CounterMetricFamily(
            "penstock_etl_tasks_total", "Etl tasks that ended in this process.", labels=["status"]
        )
        for status, number in self._ended.items():
            ended.add_metric([status], number)
        yield ended
        seconds = HistogramMetricFamily("penstock_etl_stage_seconds", "Duration of stage attempts.", labels=["stage"])
        for stage, buckets in self._buckets.items():
            seconds.add_metric([stage], list(zip(BOUNDS, accumulate(buckets), strict=True)), self._seconds[stage])
        yield seconds
        help_text = "Cache lookups of stages."
        lookups = CounterMetricFamily("penstock_etl_memory_total", help_text, labels=["stage", "outcome"])
        for labels, number in self._lookups.items():
            lookups.add_metric(labels, number)
        yield lookups


class EtlQueueMetrics(DatabaseMetrics[int]):
    """Number of active tasks in the cluster."""

    def __init__(self, db: Db, *, queue_size: int) -> None:
        super().__init__(db, partial(count_active, limit=queue_size))

    def collect(self) -> Iterable[Metric]:
        """The gauge; no sample if the query failed."""
        active = {"": self.value} if self.value is not None else {}
        help_text = "Active etl tasks; the count stops at ETL_QUEUE_SIZE."
        yield gauge("penstock_etl_under_way", help_text, active)

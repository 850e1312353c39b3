"""The dependencies, the message and the metrics of the toy module."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.kernel.db import Db
from penstock.kernel.message import Message
from penstock.kernel.queue import JobQueue


@dataclass(frozen=True, kw_only=True)
class NoteTaken(Message):
    """A note was taken."""

    note_id: str


class ToyMetrics(Collector):
    """Notes taken by this process."""

    def __init__(self) -> None:
        self.taken = 0

    def collect(self) -> Iterable[Metric]:
        """The counter."""
        yield CounterMetricFamily("toy_notes_total", "Notes taken.", value=self.taken)


@dataclass(frozen=True, kw_only=True)
class Deps:
    """What the toy module needs."""

    db: Db
    queue: JobQueue
    metrics: ToyMetrics = field(default_factory=ToyMetrics)

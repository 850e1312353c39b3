"""Dependencies, settings and metrics of the gateway module, built by wiring."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.kernel.blobs import Blobs
from penstock.kernel.db import Db
from penstock.kernel.queue import JobQueue
from penstock.kernel.staging import StagingArea

GIB = 1024**3


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the gateway module."""

    max_bytes: int = 16 * GIB
    expiry_seconds: float = 6 * 3600  # of an unfinished upload, after its last byte
    unused_seconds: float = 24 * 3600  # of a complete one that nobody uses
    silence_seconds: float = 60  # between two chunks of a body
    takeover_seconds: float = 5  # after which a silent writer may be replaced
    max_open: int = 1000  # unfinished uploads of a user
    allowed_types: frozenset[str] = frozenset({"pdf"})  # filename extensions


class UploadMetrics(Collector):
    """Writers and received bytes of this process."""

    def __init__(self) -> None:
        self.active = 0
        self.received_bytes = 0

    def collect(self) -> Iterable[Metric]:
        """The current values."""
        yield GaugeMetricFamily("gateway_upload_active", "Requests that send bytes of an upload now.", self.active)
        yield CounterMetricFamily("gateway_upload_bytes", "Bytes of uploads that were stored.", self.received_bytes)


@dataclass(frozen=True, kw_only=True)
class Deps:
    """Everything that the module's verbs may need."""

    db: Db
    queue: JobQueue
    blobs: Blobs
    staging: StagingArea
    config: Config
    metrics: UploadMetrics = field(default_factory=UploadMetrics)

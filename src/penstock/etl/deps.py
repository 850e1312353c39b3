"""Dependencies and settings of the etl module, built by wiring."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.documents.ocr.provider import OCRProvider
from penstock.documents.postprocessor import PostProcessor
from penstock.etl.domain import Mode
from penstock.etl.metrics import Metrics
from penstock.kernel.blobs import Blobs
from penstock.kernel.db import Db
from penstock.kernel.queue import JobQueue
from penstock.kernel.retry import Backoff
from penstock.kernel.runstate import RunState
from penstock.kernel.sandbox.call import Sandbox


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the etl module."""

    queue_size: int = 1000
    task_timeout: float = 600
    ocr_attempts: int = 3  # attempts are configured per stage
    postprocess_attempts: int = 3
    backoff: Backoff = Backoff(first_seconds=5, max_seconds=300)  # noqa: RUF009  (a frozen value)
    global_rule_enabled: bool = True
    global_rule_id: int = 0
    key_prefix: str = "etl:"  # of run state keys
    max_file_bytes: int = 512 * 1024 * 1024
    history_days: float = 365
    max_deferred_seconds: float = 86400  # ETL_PATIENCE_SECONDS: without progress, for an unavailable dependency

    @property
    def default_rule_id(self) -> int | None:
        """The rule of tasks without a rule_id; None if such tasks are rejected."""
        return self.global_rule_id if self.global_rule_enabled else None


@dataclass(frozen=True, kw_only=True)
class Deps:
    """Everything that the module's verbs may need."""

    db: Db
    queue: JobQueue
    runs: RunState
    blobs: Blobs
    sandbox: Sandbox
    provider: OCRProvider
    shapers: Mapping[Mode, PostProcessor]
    scratch: Path  # folder for temporary files
    config: Config
    metrics: Metrics = field(default_factory=Metrics)
    ping_redis: Callable[[], Awaitable[object]] | None = None  # raises if Redis is unavailable; None if unused

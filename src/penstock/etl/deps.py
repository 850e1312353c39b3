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
from penstock.kernel.job_dispatch import QueuePositions
from penstock.kernel.queue import JobQueue
from penstock.kernel.retry import Backoff
from penstock.kernel.runstate import RunState
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.stages.run_waits import RunWaits


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the etl module."""

    queue_size: int = 1000
    queue_share: float = 0.5  # of `queue_size`, for the active tasks of one user who is not an admin
    task_timeout: float = 600
    ocr_attempts: int = 3  # attempts and delays are configured per stage
    postprocess_attempts: int = 3
    ocr_backoff: Backoff = Backoff(first_seconds=5, max_seconds=300)  # noqa: RUF009  (a frozen value)
    postprocess_backoff: Backoff = Backoff(first_seconds=5, max_seconds=300)  # noqa: RUF009  (as above)
    default_rule_id: int | None = 0  # the rule of tasks without a rule_id; None if such tasks are rejected
    key_prefix: str = "etl:"  # of run state keys
    max_file_bytes: int = 512 * 1024 * 1024
    history_days: float = 365
    slots: int = 3  # stages that one process runs at a time
    arq_queue_name: str | None = None
    rules_folder: Path | None = None  # rules in files, imported at start
    max_deferred_seconds: float = 86400  # ETL_PATIENCE_SECONDS: without progress, for an unavailable dependency


@dataclass(frozen=True, kw_only=True)
class Deps:
    """Everything that the module's verbs may need."""

    db: Db
    queue: JobQueue
    runs: RunState
    blobs: Blobs
    sandbox: Sandbox
    provider: OCRProvider
    post_processors: Mapping[Mode, PostProcessor]
    scratch: Path  # folder for temporary files
    config: Config
    waits: RunWaits  # requests that wait for the end of a task
    positions: QueuePositions  # where waiting jobs stand in the queue
    metrics: Metrics = field(default_factory=Metrics)
    ping_redis: Callable[[], Awaitable[object]] | None = None  # raises if Redis is unavailable; None if unused

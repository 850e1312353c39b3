"""What the room works with, given by wiring."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.documents.ocr.provider import OCRProvider
from penstock.documents.postprocessor import PostProcessor
from penstock.etl.domain import Mode
from penstock.etl.meters import Meters
from penstock.kernel.blobs import Blobs
from penstock.kernel.db import Db
from penstock.kernel.queue import JobQueue
from penstock.kernel.retry import Backoff
from penstock.kernel.runstate import RunState
from penstock.kernel.sandbox.call import Sandbox


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What is set about the room."""

    queue_size: int = 1000
    task_timeout: float = 600
    ocr_attempts: int = 3
    postprocess_attempts: int = 3
    backoff: Backoff = Backoff(first_seconds=5, most_seconds=300)  # noqa: RUF009  (a frozen value)
    global_rule_enabled: bool = True
    global_rule_id: int = 0
    key_prefix: str = "etl:"  # of the run state
    max_file_bytes: int = 512 * 1024 * 1024
    history_days: float = 365
    most_patience_seconds: float = 86400  # for a run that is put off and makes no progress

    @property
    def default_rule_id(self) -> int | None:
        """The rule of tasks that name none; none when they are refused."""
        return self.global_rule_id if self.global_rule_enabled else None


@dataclass(frozen=True, kw_only=True)
class Deps:
    """Everything that a verb of the room may need."""

    db: Db
    queue: JobQueue
    runs: RunState
    blobs: Blobs
    sandbox: Sandbox
    provider: OCRProvider
    shapers: Mapping[Mode, PostProcessor]
    scratch: Path  # a folder for files that are being read
    terms: Terms
    meters: Meters = field(default_factory=Meters)
    ping_redis: Callable[[], Awaitable[object]] | None = None  # raises when it is away; none where none is used

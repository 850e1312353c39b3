"""Dependencies and settings of the tasks module, built once by `wiring`."""

from dataclasses import dataclass, field

from penstock.kernel.coalescer import Coalescer
from penstock.kernel.db import Db
from penstock.kernel.queue import JobQueue
from penstock.tasks.metrics import TaskMetrics
from penstock.tasks.pull_limits import PullLimiter
from penstock.tasks.remember import StatsCache
from penstock.tasks.store.locations import LocationCache


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the tasks module. Times are in seconds unless the name says otherwise."""

    pull_timeout: float = 3600.0  # the duration of a lease
    batch_size: int = 100
    max_attempts: int = 10  # pulls without a push before a task gets status error
    wait_seconds: float = 60.0
    stats_seconds: float = 10.0
    history_days: float = 365.0
    expiry_time: float = 0.0
    expired_action: str = "keep"
    reset_clears_pulls: bool = True
    rerun_clears_pulls: bool = True


@dataclass(frozen=True, kw_only=True)
class Deps:
    """What the verbs and routes of the tasks module need."""

    db: Db
    queue: JobQueue  # of background jobs, for work that is too long for a request
    config: Config
    limiter: PullLimiter
    metrics: TaskMetrics
    coalescer: Coalescer  # runs concurrent pulls of the same kind as one statement
    location_cache: LocationCache = field(default_factory=LocationCache)
    stats_cache: StatsCache = field(default_factory=StatsCache)

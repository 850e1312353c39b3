"""Dependencies and settings of the tasks module, built once by `wiring`."""

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from penstock.kernel.cache import Cache
from penstock.kernel.coalescer import Coalescer
from penstock.kernel.db import Db
from penstock.kernel.queue import JobQueue
from penstock.kernel.side_loop import SideLoop
from penstock.tasks.metrics import TaskMetrics
from penstock.tasks.pull_limits import PullLimiter
from penstock.tasks.store.locations import Location

MAX_LOCATIONS = 10_000
MAX_STATS = 1_000
STATS_TTL_FACTOR = 20  # so that counting never takes more than a small part of the time


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
    operation_limit: int = 1_000  # tasks that a queue operation changes inside its request


@dataclass(frozen=True, kw_only=True)
class Deps:
    """What the verbs and routes of the tasks module need."""

    db: Db
    queue: JobQueue  # of background jobs, for work that is too long for a request
    config: Config
    limiter: PullLimiter
    metrics: TaskMetrics
    side_loop: SideLoop  # runs large pushes
    coalescer: Coalescer  # runs concurrent pulls of the same kind as one statement

    @cached_property
    def locations(self) -> Cache[tuple[str, str | None], Location]:
        """Locations by project id and queue id. A stale entry is harmless: a deleted location has no offers, so a pull
        that finds nothing resolves the location again."""
        return Cache(self.db.clock, max_entries=MAX_LOCATIONS)

    @cached_property
    def stats_cache(self) -> Cache[Hashable, Any]:
        """Statistics, by what is counted and where."""
        ttl = timedelta(seconds=self.config.stats_seconds)
        return Cache(self.db.clock, max_entries=MAX_STATS, ttl=ttl, ttl_factor=STATS_TTL_FACTOR)

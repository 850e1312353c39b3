"""What the verbs of the room work with; `wiring` puts it together once."""

from dataclasses import dataclass, field

from penstock.kernel.coalescer import Coalescer
from penstock.kernel.db import Db
from penstock.kernel.queue import Queue
from penstock.tasks.pull_limits import PullGate
from penstock.tasks.metrics import Meters
from penstock.tasks.remember import Memory
from penstock.tasks.store.locations import Atlas


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the settings say about tasks."""

    pull_timeout: float = 3600.0
    batch_size: int = 100
    max_attempts: int = 10
    wait_seconds: float = 60.0
    stats_seconds: float = 10.0
    history_days: float = 365.0
    expiry_time: float = 0.0
    expired_action: str = "keep"
    reset_clears_pulls: bool = True
    rerun_clears_pulls: bool = True


@dataclass(frozen=True, kw_only=True)
class Deps:
    """The tools of the room."""

    db: Db
    queue: Queue  # of jobs: what is too long for a request
    rules: Rules
    gate: PullGate
    meters: Meters
    trips: Coalescer  # pulls that wait for the database together go there together
    atlas: Atlas = field(default_factory=Atlas)
    memory: Memory = field(default_factory=Memory)  # of statistics

"""Projects, queues and tasks as values, and the transitions of a task. No I/O.

A task has a `status`, which its worker reports (pending, running, done, …), and a pull `state`, which decides whether
it can be claimed: offered, held under a lease, closed by a push, or idle. `source` is the side that wrote last,
`origin` the side that created the task.
"""

from penstock.tasks.domain.project import Counts, Project, TaskQueue
from penstock.tasks.domain.task import BatchResult, Change, Holder, Task
from penstock.tasks.domain.words import (
    DEFAULT_PRIORITY,
    FINAL,
    HIGHEST,
    LOWEST,
    PRIORITY_WORDS,
    PULL,
    PULL_STATE_LABELS,
    AlertRule,
    ChangeKind,
    Operation,
    Policy,
    PullOutcome,
    PullState,
    Side,
    Status,
    rank_of,
)

__all__ = [
    "DEFAULT_PRIORITY",
    "FINAL",
    "HIGHEST",
    "LOWEST",
    "PRIORITY_WORDS",
    "PULL",
    "PULL_STATE_LABELS",
    "AlertRule",
    "BatchResult",
    "Change",
    "ChangeKind",
    "Counts",
    "Holder",
    "Operation",
    "Policy",
    "Project",
    "PullOutcome",
    "PullState",
    "Side",
    "Status",
    "Task",
    "TaskQueue",
    "rank_of",
]

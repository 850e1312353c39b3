"""Projects, queues and tasks as values, and the transitions of a task. No I/O.

A task has a `status`, which its worker reports (pending, running, done, …), and a pull `state`, which decides whether
it can be claimed: offered, held under a lease, closed by a push, or idle. `source` is the side that wrote last,
`origin` the side that created the task.
"""

from penstock.tasks.domain.project import Counts, Project, QueueOperation, StateCounts, TaskQueue
from penstock.tasks.domain.task import BatchResult, Change, Holder, Task
from penstock.tasks.domain.words import (
    FINAL,
    HIGHEST,
    LOWEST,
    PRIORITY_RANGES,
    PRIORITY_WORDS,
    PULL,
    PULL_STATE_LABELS,
    UNPLACED,
    UNSET_RANK,
    AlertRule,
    ChangeKind,
    Operation,
    OperationKind,
    OperationStatus,
    Policy,
    PullOutcome,
    PullState,
    Side,
    Status,
    priority_label,
    priority_of,
    rank_of,
)

__all__ = [
    "FINAL",
    "HIGHEST",
    "LOWEST",
    "PRIORITY_RANGES",
    "PRIORITY_WORDS",
    "PULL",
    "PULL_STATE_LABELS",
    "UNPLACED",
    "UNSET_RANK",
    "AlertRule",
    "BatchResult",
    "Change",
    "ChangeKind",
    "Counts",
    "Holder",
    "Operation",
    "OperationKind",
    "OperationStatus",
    "Policy",
    "Project",
    "PullOutcome",
    "PullState",
    "QueueOperation",
    "Side",
    "StateCounts",
    "Status",
    "Task",
    "TaskQueue",
    "priority_label",
    "priority_of",
    "rank_of",
]

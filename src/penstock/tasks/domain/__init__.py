"""Projects, queues and tasks as values; what may happen to a task, without any I/O.

A task has a `status`, which is what its worker says of the work, and a `state`, which is where it stands with those who
pull: on offer, held, closed by a push, or not on offer at all. `source` says who wrote last, `origin` who made it.
"""

from penstock.tasks.domain.project import Counts, Project, Queue
from penstock.tasks.domain.task import Change, Holder, Task
from penstock.tasks.domain.words import (
    FINAL,
    HIGHEST,
    LOWEST,
    MIDDLE,
    PULL,
    SHOWN,
    WORDS,
    Alarm,
    ChangeKind,
    Operation,
    Outcome,
    Policy,
    PullState,
    Side,
    Status,
    rank_of,
)

__all__ = [
    "FINAL",
    "HIGHEST",
    "LOWEST",
    "MIDDLE",
    "PULL",
    "SHOWN",
    "WORDS",
    "Alarm",
    "Change",
    "ChangeKind",
    "Counts",
    "Holder",
    "Operation",
    "Outcome",
    "Policy",
    "Project",
    "PullState",
    "Queue",
    "Side",
    "Status",
    "Task",
    "rank_of",
]

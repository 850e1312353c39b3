"""Projects and queues."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from penstock.tasks.domain.words import Operation, OperationKind, OperationStatus, Policy, Status


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Number of tasks per status."""

    pending: int = 0
    running: int = 0
    done: int = 0
    error: int = 0
    cancelled: int = 0

    @property
    def total(self) -> int:
        """Number of tasks in any status."""
        return self.pending + self.running + self.done + self.error + self.cancelled

    def of(self, status: Status) -> int:
        """Number of tasks in one status."""
        counted: int = getattr(self, status.value)
        return counted

    def plus(self, changes: Mapping[str, int]) -> "Counts":
        """The counts with these changes added."""
        return Counts(**{name: getattr(self, name) + changes.get(name, 0) for name in Status})

    def less(self, others: "Counts") -> "Counts":
        """The counts minus others."""
        return Counts(**{name: getattr(self, name) - getattr(others, name) for name in Status})


@dataclass(frozen=True, kw_only=True)
class StateCounts:
    """Number of active tasks per pull state, without those that only clients wrote.

    A pull turns an offered task into a held one without the lock of its project. So both are counted as one.
    """

    open_tasks: int = 0  # offered or held
    closed_tasks: int = 0
    idle_tasks: int = 0  # of those that the server created

    def plus(self, changes: Mapping[str, int]) -> "StateCounts":
        """The counts with these changes added."""
        return StateCounts(**{name: count + changes.get(name, 0) for name, count in vars(self).items()})

    def less(self, others: "StateCounts") -> "StateCounts":
        """The counts minus others."""
        return self.plus({name: -count for name, count in vars(others).items()})


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project. `id` is the primary key; `project_id` is the id that clients use."""

    id: str
    project_id: str
    name: str
    custom_title: str | None = None
    notes: str | None = None
    tags: tuple[str, ...] = ()
    metadata_created_at: datetime | None = None
    metadata_updated_at: datetime | None = None
    username: str | None = None
    hostname: str | None = None
    project_path: str | None = None
    repository: str | None = None
    branch: str | None = None
    conflict_policy: Policy = Policy.OVERWRITE
    merchant_id: int | None = None  # the owner, whose tokens may use it
    version: int = 0
    queue_count: int = 0
    counts: Counts = field(default_factory=Counts)
    unqueued: Counts = field(default_factory=Counts)  # of these, the tasks without a queue
    states: StateCounts = field(default_factory=StateCounts)
    last_task_at: datetime | None = None
    created_at: datetime
    updated_at: datetime

    @property
    def queue_counts(self) -> Counts:
        """Number of tasks in queues."""
        return self.counts.less(self.unqueued)

    @property
    def display_title(self) -> str:
        """The title to display."""
        return self.custom_title or self.name

    @property
    def active_at(self) -> datetime:
        """When one of its tasks last changed, or when it was created."""
        return self.last_task_at or self.created_at


@dataclass(frozen=True, kw_only=True)
class TaskQueue:
    """A queue of a project. `id` is the primary key; `queue_id` is the id that clients use."""

    id: str
    project_pk: str
    queue_id: str
    name: str
    meta: Any = None
    counts: Counts = field(default_factory=Counts)
    states: StateCounts = field(default_factory=StateCounts)
    last_task_at: datetime | None = None
    last_reset_at: datetime | None = None
    last_operation: Operation | None = None
    last_operation_by: str | None = None
    created_at: datetime
    updated_at: datetime

    @property
    def active_at(self) -> datetime:
        """When one of its tasks last changed, or when it was created."""
        return self.last_task_at or self.created_at


@dataclass(frozen=True, kw_only=True)
class QueueOperation:
    """An operation on a queue that is too long for a request. A job applies it in batches.

    `version` is the version of the project at the request: a task with a later version has changed since.
    """

    id: str
    project_pk: str
    project_id: str
    queue_pk: str
    queue_id: str
    kind: OperationKind
    by: str
    total: int  # tasks at the request
    done: int = 0  # of them, how many were visited
    affected: int = 0  # of them, how many were changed
    version: int
    cursor: str = ""  # primary key of the last task visited
    status: OperationStatus = OperationStatus.RUNNING
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None = None

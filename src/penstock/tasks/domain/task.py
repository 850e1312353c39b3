"""A task as a value, and its transitions. Every transition returns a new task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from penstock.kernel.errors import PenstockError
from penstock.tasks.domain.words import (
    PULL,
    UNPLACED,
    UNSET_RANK,
    ChangeKind,
    PullOutcome,
    PullState,
    Side,
    Status,
    priority_of,
)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task. Its fields are the columns of the `task` table."""

    id: str
    partition_key: str  # primary key of its project
    queue_pk: str = ""  # primary key of its queue, or ""
    queue_id: str = ""  # the client's id of that queue
    task_id: str
    name: str
    prompt: str
    status: Status
    source: Side  # the side that wrote last
    origin: Side  # the side that created the task
    state: PullState = PullState.IDLE
    priority: int = UNSET_RANK  # a rank
    spec_file: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    report: str | None = None
    result: Any = None
    result_schema: Mapping[str, Any] | None = None
    error_reason: str | None = None
    scheduled_at: datetime
    lease_owner: str | None = None
    lease_token: str | None = None
    leased_until: datetime | None = None
    lease_count: int = 0
    created_at: datetime
    created_by: str  # name of the creator
    updated_at: datetime
    updated_by: str  # name of the last editor
    server_modified_at: datetime | None = None  # when the server wrote last
    version: int = 0
    pulled_at: datetime | None = None
    confirmed_at: datetime | None = None
    pushed_at: datetime | None = None
    pushed_by: str | None = None
    status_at_pull: Status | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    expires_at: datetime | None = None
    expired_at: datetime | None = None
    archived_at: datetime | None = None
    deleted_at: datetime | None = None
    message_count: int = 0
    log_count: int = 0
    position: int = UNPLACED  # in the last push of its queue

    @property
    def shown_priority(self) -> int | None:
        """The priority that clients see: 1 to 10, larger first; None if it is not set."""
        return priority_of(self.priority)

    @property
    def is_held(self) -> bool:
        """Whether a client holds it."""
        return self.state is PullState.HELD

    @property
    def state_counter(self) -> str | None:
        """The counter of `StateCounts` that counts it; None if it is not counted."""
        if self.deleted_at is not None or self.archived_at is not None:
            return None
        if self.state is PullState.CLOSED:
            return "closed_tasks"
        if self.state in (PullState.OFFERED, PullState.HELD):
            return "open_tasks"
        return "idle_tasks" if self.origin is Side.SERVER else None

    def has_expired(self, now: datetime) -> bool:
        """Whether `expires_at` has passed."""
        return self.expires_at is not None and self.expires_at <= now

    def is_offerable(self, now: datetime) -> bool:
        """Whether it may be offered: last written by the server, and not deleted, archived or expired."""
        is_active = self.deleted_at is None and self.archived_at is None
        return self.source is Side.SERVER and is_active and not self.has_expired(now)

    def without_lease(self, verb: str, *, now: datetime) -> "Task":
        """Without a lease, in the pull state that the verb leads to."""
        state = PULL.move(verb, self.state)
        free = replace(self, state=state, lease_token=None, leased_until=None, confirmed_at=None, status_at_pull=None)
        if state is PullState.CLOSED:
            return free
        return replace(free, lease_owner=None, pulled_at=None, pushed_at=None, pushed_by=None, scheduled_at=now)

    def reoffered(self, *, now: datetime) -> "Task":
        """Offered as if it had never been pulled; idle if it may not be offered."""
        if not self.is_offerable(now):
            return self.withdrawn(now=now)
        fresh = replace(self, lease_count=0, expired_at=None)
        return fresh.without_lease("offer", now=now)

    def with_status(self, status: Status, *, now: datetime) -> "Task":
        """In another status, with `started_at` and `finished_at` to match."""
        if status is self.status:
            return self
        started = self.started_at or (now if status is Status.RUNNING else None)
        if status is Status.PENDING:
            return replace(self, status=status, started_at=None, finished_at=None, error_reason=None)
        return replace(self, status=status, started_at=started, finished_at=now if status.is_final else None)

    def written_by_server(self, *, by: str, now: datetime) -> "Task":
        """Marked as last written by the server."""
        return replace(self, source=Side.SERVER, server_modified_at=now, updated_at=now, updated_by=by)

    def returned(self, verb: str, *, by: str, now: datetime) -> "Task":
        """Offered again after a release or an expired lease, in the status it had when it was pulled."""
        before = self.status_at_pull or self.status
        again = self.with_status(before, now=now).without_lease(verb, now=now)
        again = again.written_by_server(by=by, now=now)
        return again if again.is_offerable(now) else again.withdrawn(now=now)

    def failed_for_attempts(self, *, reason: str, by: str, now: datetime) -> "Task":
        """In status error, with the reason: it was pulled too many times without a push."""
        over = replace(self.with_status(Status.ERROR, now=now), error_reason=reason, updated_at=now, updated_by=by)
        return over.without_lease("give_up", now=now)

    def returned_or_failed(self, verb: str, *, max_attempts: int, by: str, now: datetime) -> "Task":
        """After a lease that ended without a push: offered again, or in error after `max_attempts` pulls."""
        if self.lease_count < max_attempts:
            return self.returned(verb, by=by, now=now)
        reason = f"Pulled {self.lease_count} times without a push, last by {self.lease_owner}."
        return self.failed_for_attempts(reason=reason, by=by, now=now)

    def pull_reset(self, *, by: str, now: datetime) -> "Task":
        """Offered as if it had never been pulled. A status set by the holder is reverted to that at the pull."""
        back = self.with_status(self.status_at_pull or self.status, now=now)
        return back.written_by_server(by=by, now=now).reoffered(now=now)

    def pushed(self, *, by: str, now: datetime) -> "Task":
        """Closed by a push of a final status."""
        closed = self.without_lease("push", now=now)
        return replace(closed, pushed_at=now, pushed_by=by, lease_count=0)

    def with_lease_extended(self, *, seconds: float, now: datetime) -> "Task":
        """With the lease extended to that many seconds from now."""
        return replace(self, leased_until=now + timedelta(seconds=seconds))

    def updated_by_client(self, holder: "Holder", *, seconds: float, now: datetime) -> "Task":
        """After a client's update: a final status closes the pull, another status renews the holder's lease, and a task
        that was only offered is withdrawn."""
        task = self if self._is_client_owned else self._owned_by_client()
        if task.state is PullState.OFFERED:
            return task.without_lease("withdraw", now=now)
        if not task.is_held:
            return task
        if task.status.is_final:
            return task.pushed(by=holder.name, now=now)
        return task.with_lease_extended(seconds=seconds, now=now) if holder.holds(self) else task

    def withdrawn(self, *, now: datetime) -> "Task":
        """No longer offered; marked as expired if `expires_at` has passed."""
        gone = self.without_lease("withdraw", now=now)
        return replace(gone, expired_at=gone.expired_at or now) if self.has_expired(now) else gone

    def expired(self, *, by: str, now: datetime) -> "Task":
        """No longer offered: nobody pulled it before `expires_at`."""
        return replace(self.withdrawn(now=now), updated_at=now, updated_by=by)

    def archived(self, *, by: str, now: datetime) -> "Task":
        """Archived: not listed; its row and history stay."""
        return replace(self.without_lease("withdraw", now=now), archived_at=now, updated_at=now, updated_by=by)

    @property
    def _is_client_owned(self) -> bool:
        marks = (self.error_reason, self.expired_at, self.archived_at)
        return self.source is Side.CLIENT and marks == (None, None, None)

    def _owned_by_client(self) -> "Task":
        return replace(self, source=Side.CLIENT, error_reason=None, expired_at=None, archived_at=None)

    def deleted(self, *, by: str, now: datetime) -> "Task":
        """Soft-deleted: a deleted task keeps its row, its id and its history."""
        gone = replace(self, deleted_at=now, updated_at=now, updated_by=by)
        return gone.without_lease("withdraw", now=now)

    def restored(self, *, by: str, now: datetime) -> "Task":
        """No longer deleted; offered again if the server wrote last."""
        again = replace(self, deleted_at=None, updated_at=now, updated_by=by, server_modified_at=now)
        return again.reoffered(now=now)


@dataclass(frozen=True, kw_only=True)
class BatchResult(Generic[T]):
    """What a verb did to many tasks: the results, and the error for each task id that failed."""

    done: Sequence[T]
    failed: Sequence[tuple[str, PenstockError]]

    def one(self) -> T:
        """The result for a single task; raises its error if it failed."""
        for _, error in self.failed:
            raise error
        return self.done[0]


@dataclass(frozen=True, kw_only=True)
class Change:
    """What happened to one task: created (no `before`), changed, or dropped (no `after`)."""

    before: Task | None
    after: Task | None
    kind: ChangeKind
    outcome: PullOutcome | None = None  # how its pull ended, if this change ended one
    by: str | None = None  # who did it, if one unit of work has several actors

    @property
    def task(self) -> Task:
        """The task after the change, or before it was dropped."""
        task = self.after or self.before
        assert task is not None
        return task


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A client that pulls or pushes: its name, and the lease token if it sent one."""

    name: str
    actor: str = ""  # its API key
    token: str | None = None
    is_admin: bool = False

    def holds(self, task: Task) -> bool:
        """Whether it holds the task, by lease token, or without one by name."""
        if not task.is_held:
            return False
        return self.token == task.lease_token if self.token is not None else self.name == task.lease_owner

    def lost_lease(self, task: Task) -> bool:
        """Whether it sent the token of a lease that is over."""
        return self.token is not None and not self.holds(task)

    def would_overwrite(self, task: Task) -> bool:
        """Whether its update would overwrite a server edit or another holder's work."""
        return not self.holds(task) and (task.is_held or task.source is Side.SERVER)

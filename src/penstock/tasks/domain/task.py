"""A task as a value, and what may happen to it. Every method gives a new one."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from penstock.tasks.domain.words import LOWEST, MIDDLE, PULL, ChangeKind, Outcome, PullState, Side, Status, rank_of


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task. Its fields are the columns of its table."""

    id: str
    partition_key: str  # the project it is in
    queue_pk: str = ""  # the queue it is in, if any
    queue_id: str = ""  # what clients call that queue
    task_id: str
    name: str
    prompt: str
    status: Status
    source: Side
    origin: Side
    state: PullState = PullState.IDLE
    priority: int = rank_of(MIDDLE)
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
    created_by: str
    updated_at: datetime
    updated_by: str
    server_modified_at: datetime | None = None
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

    @property
    def shown_priority(self) -> int:
        """1 to 10, larger first."""
        return LOWEST + 1 - self.priority

    @property
    def is_held(self) -> bool:
        """Whether somebody has it now."""
        return self.state is PullState.HELD

    def is_over(self, now: datetime) -> bool:
        """Whether the time in which it may be pulled has passed."""
        return self.expires_at is not None and self.expires_at <= now

    def may_be_offered(self, now: datetime) -> bool:
        """Whether those who pull may have it."""
        lives = self.deleted_at is None and self.archived_at is None
        return self.source is Side.SERVER and lives and not self.is_over(now)

    def unheld(self, verb: str, *, now: datetime) -> "Task":
        """Without its holder, in the state that the verb leads to."""
        state = PULL.move(verb, self.state)
        free = replace(self, state=state, lease_token=None, leased_until=None, confirmed_at=None, status_at_pull=None)
        if state is PullState.CLOSED:
            return free
        return replace(free, lease_owner=None, pulled_at=None, pushed_at=None, pushed_by=None, scheduled_at=now)

    def offered_anew(self, *, now: datetime) -> "Task":
        """On offer as if nobody had ever had it, or off it when it may not be offered."""
        if not self.may_be_offered(now):
            return self.withdrawn(now=now)
        fresh = replace(self, lease_count=0, expired_at=None)
        return fresh.unheld("offer", now=now)

    def with_status(self, status: Status, *, now: datetime) -> "Task":
        """In another status, with the times that go with it."""
        if status is self.status:
            return self
        started = self.started_at or (now if status is Status.RUNNING else None)
        if status is Status.PENDING:
            return replace(self, status=status, started_at=None, finished_at=None, error_reason=None)
        return replace(self, status=status, started_at=started, finished_at=now if status.is_final else None)

    def written_by_server(self, *, by: str, now: datetime) -> "Task":
        """Marked as written here, by them."""
        return replace(self, source=Side.SERVER, server_modified_at=now, updated_at=now, updated_by=by)

    def given_back(self, verb: str, *, by: str, now: datetime) -> "Task":
        """On offer again after its holder let go of it or fell silent, in the status it was pulled in."""
        before = self.status_at_pull or self.status
        again = self.with_status(before, now=now).unheld(verb, now=now)
        again = again.written_by_server(by=by, now=now)
        return again if again.may_be_offered(now) else again.withdrawn(now=now)

    def given_up(self, *, reason: str, by: str, now: datetime) -> "Task":
        """In error: it was pulled often enough without a push."""
        over = replace(self.with_status(Status.ERROR, now=now), error_reason=reason, updated_at=now, updated_by=by)
        return over.unheld("give_up", now=now)

    def let_go(self, verb: str, *, most_attempts: int, by: str, now: datetime) -> "Task":
        """Out of its holder's hands without a push: on offer again, or in error when that happened too often."""
        if self.lease_count < most_attempts:
            return self.given_back(verb, by=by, now=now)
        reason = f"It was pulled {self.lease_count} times without a push, last by {self.lease_owner}."
        return self.given_up(reason=reason, by=by, now=now)

    def pull_reset(self, *, by: str, now: datetime) -> "Task":
        """On offer as if nobody had ever pulled it, in the status it was pulled in if somebody has it."""
        back = self.with_status(self.status_at_pull or self.status, now=now)
        return back.written_by_server(by=by, now=now).offered_anew(now=now)

    def pushed(self, *, by: str, now: datetime) -> "Task":
        """Closed by a push of a final status."""
        closed = self.unheld("push", now=now)
        return replace(closed, pushed_at=now, pushed_by=by, lease_count=0)

    def kept_by_holder(self, *, seconds: float, now: datetime) -> "Task":
        """With a lease that lasts that long from now."""
        return replace(self, leased_until=now + timedelta(seconds=seconds))

    def told_by(self, holder: "Holder", *, seconds: float, now: datetime) -> "Task":
        """As a client left it: a final status closes its pull, another one keeps it with its holder for so long, and
        what nobody had is no longer on offer."""
        told = self if self._is_clients else self._given_to_client()
        if told.state is PullState.OFFERED:
            return told.unheld("withdraw", now=now)
        if not told.is_held:
            return told
        if told.status.is_final:
            return told.pushed(by=holder.name, now=now)
        return told.kept_by_holder(seconds=seconds, now=now) if holder.holds(self) else told

    def withdrawn(self, *, now: datetime) -> "Task":
        """Off offer, and marked as expired when its time has passed."""
        gone = self.unheld("withdraw", now=now)
        return replace(gone, expired_at=gone.expired_at or now) if self.is_over(now) else gone

    def expired(self, *, by: str, now: datetime) -> "Task":
        """Off offer: nobody pulled it in time."""
        return replace(self.withdrawn(now=now), updated_at=now, updated_by=by)

    def archived(self, *, by: str, now: datetime) -> "Task":
        """Out of every list; its row and its history stay."""
        return replace(self.unheld("withdraw", now=now), archived_at=now, updated_at=now, updated_by=by)

    @property
    def _is_clients(self) -> bool:
        marks = (self.error_reason, self.expired_at, self.archived_at)
        return self.source is Side.CLIENT and marks == (None, None, None)

    def _given_to_client(self) -> "Task":
        return replace(self, source=Side.CLIENT, error_reason=None, expired_at=None, archived_at=None)

    def deleted(self, *, by: str, now: datetime) -> "Task":
        """Marked as deleted; its row and its history stay."""
        gone = replace(self, deleted_at=now, updated_at=now, updated_by=by)
        return gone.unheld("withdraw", now=now)

    def restored(self, *, by: str, now: datetime) -> "Task":
        """No longer deleted; on offer again when the server wrote last."""
        again = replace(self, deleted_at=None, updated_at=now, updated_by=by, server_modified_at=now)
        return again.offered_anew(now=now)


@dataclass(frozen=True, kw_only=True)
class Change:
    """What happened to one task: made (no `before`), changed, or dropped for good (no `after`)."""

    before: Task | None
    after: Task | None
    kind: ChangeKind
    outcome: Outcome | None = None  # how its pull ended, when this ended one
    by: str | None = None  # who did it, where several act together

    @property
    def task(self) -> Task:
        """The task as it is, or was."""
        task = self.after or self.before
        assert task is not None
        return task


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Who pulls or pushes: their own name, and the lease they hold, when they say it."""

    name: str
    actor: str = ""  # the key behind the name
    token: str | None = None
    is_admin: bool = False

    def holds(self, task: Task) -> bool:
        """Whether the task is in their hands. A token decides; without one their name does."""
        if not task.is_held:
            return False
        return self.token == task.lease_token if self.token is not None else self.name == task.lease_owner

    def lost(self, task: Task) -> bool:
        """Whether they speak for a pull that is over."""
        return self.token is not None and not self.holds(task)

    def runs_over(self, task: Task) -> bool:
        """Whether what they say would go over what the server wrote last, or over another holder."""
        return not self.holds(task) and (task.is_held or task.source is Side.SERVER)

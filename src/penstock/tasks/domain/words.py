"""Enums and the pull state machine of tasks: statuses, sides, outcomes, operations, priorities."""

from enum import StrEnum

from penstock.kernel.machine import Machine


class Status(StrEnum):
    """The status of a task, reported by its worker."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    ERROR = "error"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether the work is finished; pushing a final status closes the pull."""
        return self in FINAL


FINAL = frozenset({Status.DONE, Status.ERROR, Status.CANCELLED})


class Side(StrEnum):
    """Who wrote or created a task: the server (users and programs over the API) or a client that pushes."""

    SERVER = "server"
    CLIENT = "client"


class PullState(StrEnum):
    """Whether a task can be pulled, or who has it."""

    IDLE = "idle"
    OFFERED = "offered"
    HELD = "held"
    CLOSED = "closed"


PULL = Machine(
    "task pull",
    {
        "offer": (set(PullState), PullState.OFFERED),
        "pull": ({PullState.OFFERED}, PullState.HELD),
        "push": ({PullState.HELD}, PullState.CLOSED),
        "release": ({PullState.HELD}, PullState.OFFERED),
        "time_out": ({PullState.HELD}, PullState.OFFERED),
        "give_up": ({PullState.HELD}, PullState.IDLE),
        "withdraw": (set(PullState), PullState.IDLE),
    },
    start=PullState.IDLE,
    words={
        PullState.IDLE: "Cannot be pulled: written by a client, out of attempts, expired, archived or deleted.",
        PullState.OFFERED: "Written by the server and not held: the next pull may claim it.",
        PullState.HELD: "Pulled and not yet pushed: one client holds it under a lease.",
        PullState.CLOSED: "Pulled, and pushed with a final status.",
    },
)
PULL_STATE_LABELS = {
    PullState.IDLE: "unpulled",
    PullState.OFFERED: "unpulled",
    PullState.HELD: "pulled_not_pushed",
    PullState.CLOSED: "pulled",
}


class PullOutcome(StrEnum):
    """How a pull ended."""

    PUSHED = "pushed"
    RELEASED = "released"
    TIMED_OUT = "timed_out"
    REVOKED = "revoked"  # the server edited, reset or deleted the task
    OVERWRITTEN = "overwritten"  # another client than the holder pushed the task


class Policy(StrEnum):
    """Conflict policy of a project: whether a push overwrites changes made on the server or by another holder."""

    OVERWRITE = "overwrite"
    REJECT = "reject"


class Operation(StrEnum):
    """Operations on a whole queue."""

    RESET = "reset"
    RESET_ERROR = "reset-error"
    RE_RUN = "re-run"


class OperationKind(StrEnum):
    """Operations that may run in the background: those on a queue, and the deletion of a queue or project."""

    RESET = "reset"
    RESET_ERROR = "reset-error"
    RE_RUN = "re-run"
    DELETE = "delete"


class OperationStatus(StrEnum):
    """States of an operation that runs in the background. Failed is not stored: it is the state of its job."""

    RUNNING = "running"  # waiting for a worker, or under way
    COMPLETED = "completed"
    CANCELLED = "cancelled"  # its queue or project was deleted meanwhile
    FAILED = "failed"  # its job failed; it continues when the job is retried


class AlertRule(StrEnum):
    """Alert rules of a project. The values are stored."""

    SUCCESS_RATE = "success_rate"  # low success rate: too few pulls end in a push
    OVERDUE = "overdue"  # many timeouts
    REQUESTS = "requests"  # too many pull requests
    OPERATIONS = "operations"  # too many queue resets and re-runs


class ChangeKind(StrEnum):
    """What happened to a task, in the change feed."""

    CREATED = "created"
    EDITED = "edited"
    MOVED = "moved"
    DELETED = "deleted"
    RESTORED = "restored"  # a deletion was undone
    DROPPED = "dropped"  # a client removed it from its queue
    PUSHED = "pushed"
    RESET = "reset"
    RERUN = "rerun"
    RELEASED = "released"
    TIMED_OUT = "timed_out"
    EXPIRED = "expired"
    ARCHIVED = "archived"


UNPLACED = 2**31 - 1  # position of a task that no push has listed: after all others
HIGHEST, LOWEST = 1, 10  # ranks: 1 is pulled first
UNSET_RANK = 11  # of a task without a priority: it is pulled last
PRIORITY_WORDS = {"high": 8, "medium": 5, "low": 2}
PRIORITY_RANGES = {"high": (8, 10), "medium": (4, 7), "low": (1, 3)}  # the priorities that a word covers


def rank_of(priority: int | None) -> int:
    """The rank of a priority from 1 to 10: the highest priority is pulled first, and databases sort by rank, smallest
    first."""
    return UNSET_RANK if priority is None else LOWEST + 1 - priority


def priority_of(rank: int) -> int | None:
    """The priority that clients see: 1 to 10, larger first; None if it is not set."""
    return None if rank == UNSET_RANK else LOWEST + 1 - rank


def priority_label(rank: int) -> str | None:
    """The word that covers a priority: high, medium or low; None if it is not set."""
    priority = priority_of(rank)
    if priority is None:
        return None
    return next(word for word, (first, last) in PRIORITY_RANGES.items() if first <= priority <= last)

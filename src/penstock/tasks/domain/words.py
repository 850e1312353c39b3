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


class Policy(StrEnum):
    """Conflict policy of a project: whether a push overwrites changes made on the server or by another holder."""

    OVERWRITE = "overwrite"
    REJECT = "reject"


class Operation(StrEnum):
    """Operations on a whole queue."""

    RESET = "reset"
    RESET_ERROR = "reset-error"
    RE_RUN = "re-run"


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


HIGHEST, LOWEST = 1, 10  # ranks: 1 is pulled first
PRIORITY_WORDS = {"high": 8, "medium": 5, "low": 2}
DEFAULT_PRIORITY = 5


def rank_of(priority: int) -> int:
    """The rank of a priority from 1 to 10: the highest priority is pulled first, and databases sort by rank, smallest
    first."""
    return LOWEST + 1 - priority

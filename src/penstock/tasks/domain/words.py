"""The words of the room: statuses, sides, how pulls end, ranks; and where a task stands with those who pull."""

from enum import StrEnum

from penstock.kernel.machine import Machine


class Status(StrEnum):
    """What a task's worker says of it."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    ERROR = "error"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether the work is over, one way or another: a push of it closes the pull."""
        return self in FINAL


FINAL = frozenset({Status.DONE, Status.ERROR, Status.CANCELLED})


class Side(StrEnum):
    """Who wrote: people and programs that plan here, or clients that push."""

    SERVER = "server"
    CLIENT = "client"


class PullState(StrEnum):
    """Where a task stands with those who pull."""

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
        PullState.IDLE: "Not to be pulled: a client's own, given up, expired, archived or deleted.",
        PullState.OFFERED: "The server wrote last and nobody has it: the next pull may take it.",
        PullState.HELD: "Pulled and not yet pushed: one client has it, under a lease.",
        PullState.CLOSED: "Pulled, and pushed back with a final status.",
    },
)
SHOWN = {
    PullState.IDLE: "unpulled",
    PullState.OFFERED: "unpulled",
    PullState.HELD: "pulled_not_pushed",
    PullState.CLOSED: "pulled",
}


class Outcome(StrEnum):
    """How a pull ended."""

    PUSHED = "pushed"
    RELEASED = "released"
    TIMED_OUT = "timed_out"
    REVOKED = "revoked"  # the server edited, reset or deleted the task


class Policy(StrEnum):
    """What a project does with a push of something that the server, or another holder, has changed since."""

    OVERWRITE = "overwrite"
    REJECT = "reject"


class Operation(StrEnum):
    """What can be done to a queue as a whole."""

    RESET = "reset"
    RESET_ERROR = "reset-error"
    RE_RUN = "re-run"


class Alarm(StrEnum):
    """What can be out of order in a project."""

    SUCCESS_RATE = "success_rate"  # too few pulls are pushed
    OVERDUE = "overdue"  # too many pulls time out
    REQUESTS = "requests"  # it is pulled from too often
    OPERATIONS = "operations"  # its queues are reset or run again too often


class ChangeKind(StrEnum):
    """What the feed says of a task."""

    CREATED = "created"
    EDITED = "edited"
    MOVED = "moved"
    DELETED = "deleted"
    RESTORED = "restored"  # a deletion was undone
    DROPPED = "dropped"  # a client left it out of its list
    PUSHED = "pushed"
    RESET = "reset"
    RERUN = "rerun"
    RELEASED = "released"
    TIMED_OUT = "timed_out"
    EXPIRED = "expired"
    ARCHIVED = "archived"


HIGHEST, LOWEST = 1, 10  # ranks: small first
WORDS = {"high": 8, "medium": 5, "low": 2}
MIDDLE = 5


def rank_of(priority: int) -> int:
    """A priority of 1 to 10, larger first, as the rank that databases sort by, smaller first."""
    return LOWEST + 1 - priority

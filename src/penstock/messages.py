"""Every message that one module may send to another: the map of the product.

A message is a frozen dataclass derived from `penstock.kernel.message.Message`. The `ModuleSpec` of a module names the
messages that it handles. `PUBLIC` names those that webhooks may receive; in these, `user_id` and `merchant_id` name the
owner: only webhooks of the owner and of admins receive the message.
"""

from dataclasses import dataclass, field
from typing import Any

from penstock.kernel.json_object import JsonObject
from penstock.kernel.message import Message


@dataclass(frozen=True, kw_only=True)
class WebhookPing(Message):
    """A test message, delivered to one webhook only."""

    webhook_id: str


@dataclass(frozen=True, kw_only=True)
class EtlTaskSubmitted(Message):
    """An etl task was queued, for the first time or for a retry (`run` counts them)."""

    task_id: int
    user_id: int
    project_id: int
    filename: str
    rule_id: int
    run: int

    def dedup_key(self) -> str:
        """A run is submitted once."""
        return f"{self.task_id}:{self.run}"


@dataclass(frozen=True, kw_only=True)
class EtlTaskEnded(Message):
    """A run of an etl task ended: completed, failed or cancelled."""

    task_id: int
    user_id: int
    project_id: int
    filename: str
    run: int
    status: str
    output_path: str | None = None
    error: str | None = None
    error_code: str | None = None
    error_stage: str | None = None

    def dedup_key(self) -> str:
        """A run ends once."""
        return f"{self.task_id}:{self.run}"


@dataclass(frozen=True, kw_only=True)
class EtlTaskRemoved(Message):
    """An etl task was deleted together with its artifacts."""

    task_id: int
    user_id: int
    project_id: int
    filename: str
    run: int


@dataclass(frozen=True, kw_only=True)
class EtlTaskReviewed(Message):
    """A person or an agent answered the review of an etl task; a failed task is completed by it."""

    task_id: int
    user_id: int
    project_id: int
    filename: str
    run: int
    status: str
    reviewed_by: str
    output_path: str | None = None

    def dedup_key(self) -> str:
        """A run is reviewed once."""
        return f"{self.task_id}:{self.run}"


@dataclass(frozen=True, kw_only=True)
class ReviewRequested(Message):
    """A module needs a person or an agent to answer a question; the tasks module offers it as a task."""

    request: str  # the id of this request, unique in the product: "etl:42:1:1"
    origin: str  # what the question is about: "etl:42"
    project_id: str  # where the task appears
    queue_id: str | None = None
    title: str
    prompt: str
    fields: Any = None  # the values so far, if there are any
    result_schema: JsonObject | None = None  # what the answer must satisfy
    replaces: str | None = None  # the request whose answer was refused; its task is offered again
    errors: list[str] = field(default_factory=list)  # why that answer was refused

    def dedup_key(self) -> str:
        """A request is sent once."""
        return self.request


@dataclass(frozen=True, kw_only=True)
class ReviewAnswered(Message):
    """The task of a review request was pushed as done; `result` is the answer, which its origin still validates."""

    request: str
    origin: str
    result: Any
    answered_by: str

    def dedup_key(self) -> str:
        """A request is answered once: a second push changes nothing."""
        return self.request


@dataclass(frozen=True, kw_only=True)
class ReviewWithdrawn(Message):
    """A review request needs no answer any more: its origin was cancelled, retried or deleted."""

    request: str
    origin: str

    def dedup_key(self) -> str:
        """A request is withdrawn once."""
        return self.request


# Messages that webhooks and Redis Streams may receive.
PUBLIC = frozenset(
    message.__name__ for message in (WebhookPing, EtlTaskSubmitted, EtlTaskEnded, EtlTaskReviewed, EtlTaskRemoved)
)

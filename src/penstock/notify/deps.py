"""The dependencies of the notify module; wiring builds them once."""

from dataclasses import dataclass

from penstock.kernel.db import Db
from penstock.kernel.queue import JobQueue
from penstock.notify.domain import WebhookClient


@dataclass(frozen=True, kw_only=True)
class Deps:
    """The dependencies of the notify module."""

    db: Db
    queue: JobQueue
    client: WebhookClient
    channels: frozenset[str]  # messages that webhooks may receive
    max_attempts: int
    user_agent: str

"""The base types of messages, which modules send to each other, and of events, which clients watch."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Message:
    """The base of every message; its fields are the payload and hold plain JSON values."""

    def dedup_key(self) -> str | None:
        """Messages of one class with the same key are sent once. None: never deduplicated."""
        return None


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened to its topic, for clients that watch it. `data` holds plain JSON values, no secrets."""

    topic: str  # the subject by its public id: "job:…", "etl:42"
    kind: str  # what happened: "page_done"
    audience: str = ""  # who may watch besides admins: "user:5", "merchant:9", "project:p"
    data: dict[str, Any] = field(default_factory=dict)

"""What is said: messages, which one room sends to another, and events, which people watch."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Message:
    """The base of every message; its fields are its payload and hold plain JSON values."""

    def dedup_key(self) -> str | None:
        """Two messages of one class with the same key are one message. None: every one is new."""
        return None


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened to a thing, for those who watch it. `data` holds plain JSON values and no secret."""

    topic: str  # the thing, by its outside id: "job:…", "etl:42"
    kind: str  # what happened: "page_done"
    audience: str = ""  # who may watch beside admins: "user:5", "merchant:9", "project:p"
    data: dict[str, Any] = field(default_factory=dict)

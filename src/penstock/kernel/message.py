"""What one room says to another."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Message:
    """The base of every message; its fields are its payload and hold plain JSON values."""

    def dedup_key(self) -> str | None:
        """Two messages of one class with the same key are one message. None: every one is new."""
        return None

"""What the verbs of notify work with; `wiring.py` puts it together once."""

from dataclasses import dataclass

from penstock.kernel.db import Db
from penstock.kernel.queue import Queue
from penstock.notify.domain import Poster


@dataclass(frozen=True, kw_only=True)
class Deps:
    """The tools of the room."""

    db: Db
    queue: Queue
    poster: Poster
    channels: frozenset[str]  # the messages that may leave the house
    most_attempts: int
    user_agent: str

"""When to try again, and after how long."""

import random
from dataclasses import dataclass

from penstock.kernel.errors import PenstockError, TooMany


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Waits that double from `first_seconds` up to `most_seconds`, spread by jitter."""

    first_seconds: float = 1.0
    most_seconds: float = 300.0
    jitter: float = 0.2  # a fifth either way keeps a crowd that failed together from coming back together

    def wait_seconds(self, attempt: int, *, chance: float | None = None) -> float:
        """How long to wait after that many failed attempts (the first is 1)."""
        doublings = min(max(attempt, 1) - 1, 32)  # past 2**32 the cap rules anyway, and floats stay finite
        middle = min(self.most_seconds, self.first_seconds * 2.0**doublings)
        chance = random.random() if chance is None else chance  # noqa: S311  (spread, not secrecy)
        return max(0.0, middle * (1 + self.jitter * (2 * chance - 1)))


def worth_retrying(error: BaseException) -> bool:
    """Whether the same call may succeed later. Errors we cannot name are bugs or outages: they may pass."""
    return error.retryable if isinstance(error, PenstockError) else True


def wait_before_retry(error: BaseException, *, attempt: int, backoff: Backoff) -> float:
    """The wait before the next attempt; a `TooMany` says itself how long at least."""
    wait = backoff.wait_seconds(attempt)
    if not isinstance(error, TooMany):
        return wait
    spread = random.random() * backoff.jitter  # noqa: S311  (never earlier than asked, and not all at once)
    return max(wait, error.wait_seconds * (1 + spread))

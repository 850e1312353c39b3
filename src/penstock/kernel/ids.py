"""Ids that sort by creation time, also when the clock is set back.

`job_` + 12 hex digits of milliseconds + 16 hex digits that start random and count up within one millisecond, so the ids
of one process sort in the order they were made, and those of two processes do not collide.
"""

import random
import secrets
from typing import Protocol

from penstock.kernel.clock import Clock

TAIL_BITS = 64
STEP_BITS = 16  # a random step, so that two processes that start at the same number diverge


class Ids(Protocol):
    """Generates unique ids."""

    def new(self, prefix: str) -> str:
        """A new id such as `job_0199…`."""
        ...


class TimeIds:
    """Ids from the clock and the system's random source."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._millis = 0
        self._tail = 0
        self._random = random.Random(secrets.randbits(128))  # noqa: S311  (ids must not collide; they are no secrets)

    def new(self, prefix: str) -> str:
        """A new id, larger than every id this object returned before."""
        millis = int(self._clock.now().timestamp() * 1000)
        if millis > self._millis:
            self._millis, self._tail = millis, self._random.getrandbits(TAIL_BITS - 1)
        else:
            self._count_up()
        return f"{prefix}_{self._millis:012x}{self._tail:016x}"

    def _count_up(self) -> None:
        self._tail += 1 + self._random.getrandbits(STEP_BITS)
        if self._tail >> TAIL_BITS:
            self._millis, self._tail = self._millis + 1, 0


def new_token() -> str:
    """A lease token: 128 random bits that nobody can guess."""
    return secrets.token_hex(16)

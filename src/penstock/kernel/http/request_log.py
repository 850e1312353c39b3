"""One line in the log about every request: what was asked, what was answered, how long it took, and for whom.

The lines are told together, a few times a second. What a line takes is little when many are made in a row; made after
each request, it would add a fifth to what a small request costs. A process that is killed loses the last of them.
"""

import asyncio
import logging
from time import perf_counter
from typing import NamedTuple

from penstock.kernel.clock import Clock
from penstock.kernel.http.exchange import HttpExchange
from penstock.kernel.logs import RequestLine, clean

log = logging.getLogger("penstock.access")

TOGETHER_SECONDS = 0.25
MOST_WAITING = 500
MOST_PATH = 200
MOST_NAME = 100


class Answered(NamedTuple):
    """What is kept of a request until its line is told."""

    at: float  # on the clock that only counts
    method: str
    path: str  # without its query, which nobody is to read
    status: int
    seconds: float
    bytes_out: int
    caller: str
    request_id: str


class RequestLog:
    """The lines of one app."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: list[Answered] = []

    def add(self, visit: HttpExchange) -> None:
        """Remember a request that was answered."""
        if not log.isEnabledFor(logging.INFO):
            return
        if not self._waiting:
            asyncio.get_running_loop().call_later(TOGETHER_SECONDS, self.tell)
        self._waiting.append(
            Answered(
                perf_counter(),
                visit.known_method,
                visit.scope["path"][:MOST_PATH],
                visit.status,
                visit.seconds,
                visit.bytes_out,
                visit.caller,
                visit.asked.request_id,
            )
        )
        if len(self._waiting) >= MOST_WAITING:
            self.tell()

    def tell(self) -> None:
        """Tell of every request that waits to be told of."""
        waiting, self._waiting = self._waiting, []
        offset = self._clock.now().timestamp() - perf_counter()
        for known in waiting:
            fields = {"status": known.status, "ms": round(known.seconds * 1000, 1), "bytes": known.bytes_out}
            caller = {"caller": clean(known.caller, MOST_NAME)} if known.caller else {}
            words = f"{known.method} {known.path}"
            log.handle(RequestLine(words, fields | caller, request_id=known.request_id, at=offset + known.at))

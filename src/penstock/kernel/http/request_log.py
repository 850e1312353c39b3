"""The logger `penstock.access`, one line per request: method, path, status, duration, size, the caller, their address.

The lines are written in batches, a few times a second: a line is cheap when many are written in a row; written after
each request, it would add a fifth to the cost of a small one. A process that is killed loses the last batch.
"""

import asyncio
import logging
from time import perf_counter
from typing import NamedTuple

from penstock.kernel.clock import Clock
from penstock.kernel.http.exchange import HttpExchange
from penstock.kernel.logs import RequestLine, clean

log = logging.getLogger("penstock.access")

FLUSH_SECONDS = 0.25
MAX_PENDING = 500
MAX_PATH = 200
MAX_NAME = 100


class _LogEntry(NamedTuple):
    at: float  # by perf_counter
    method: str
    path: str  # without its query, which must not be logged
    status: int
    seconds: float
    bytes_out: int
    caller: str
    address: str
    request_id: str


class RequestLog:
    """The request log of one app."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending: list[_LogEntry] = []

    def add(self, exchange: HttpExchange) -> None:
        """Queue the line of a finished request."""
        if not log.isEnabledFor(logging.INFO):
            return
        if not self._pending:
            asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
        self._pending.append(
            _LogEntry(
                perf_counter(),
                exchange.known_method,
                exchange.scope["path"][:MAX_PATH],
                exchange.status,
                exchange.seconds,
                exchange.bytes_out,
                exchange.caller,
                exchange.address,
                exchange.head.request_id,
            )
        )
        if len(self._pending) >= MAX_PENDING:
            self.flush()

    def flush(self) -> None:
        """Write the queued lines."""
        pending, self._pending = self._pending, []
        offset = self._clock.now().timestamp() - perf_counter()
        for entry in pending:
            fields = {"status": entry.status, "ms": round(entry.seconds * 1000, 1), "bytes": entry.bytes_out}
            caller = {"caller": clean(entry.caller, MAX_NAME)} if entry.caller else {}
            if entry.address:
                caller["address"] = entry.address
            text = f"{entry.method} {entry.path}"
            log.handle(RequestLine(text, fields | caller, request_id=entry.request_id, at=offset + entry.at))

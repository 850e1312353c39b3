"""Requests in flight, so that a shutdown can wait for them and cancel those that outlast the grace period."""

import asyncio
from typing import Any

from penstock.kernel.errors import Unavailable


class Stopping(Unavailable):
    """The server is shutting down, and the request did not finish in time."""

    code = "STOPPING"
    message = "The server is shutting down, and the request did not finish in time."
    message_zh = "服务器正在停止，请求未能及时完成。"
    hint = "Send the request again; another server, or this one after its restart, will handle it."
    hint_zh = "请重新发送；其他服务器或重启后的本服务器会处理。"
    internal_outage = True


Peer = tuple[str, int]  # address and port of the client's end of a connection


class InFlight:
    """The running requests of one app. `stopping` tells load balancers to send no new ones."""

    def __init__(self) -> None:
        self.stopping = False
        self._tasks: dict[asyncio.Task[Any], Peer | None] = {}
        self._finished_peers: set[Peer] | None = None  # kept only if somebody takes them
        self._cancelled: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, peer: Peer | None = None) -> asyncio.Task[Any]:
        """Register the current task as handling a request of this connection."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = peer
        return task

    def finish(self, task: asyncio.Task[Any]) -> None:
        """Remove a task whose request is done."""
        peer = self._tasks.pop(task, None)
        if self._finished_peers is not None and peer is not None:
            self._finished_peers.add(peer)

    def take_busy(self) -> frozenset[Peer]:
        """The peers of connections with a request now, or since the last call."""
        finished, self._finished_peers = self._finished_peers or set(), set()
        busy = finished.union(peer for peer in self._tasks.values() if peer is not None)
        return frozenset((address, int(port)) for address, port in busy)  # the server gives the port as a text

    def cancel_all(self) -> int:
        """Cancel the requests that still run; returns how many."""
        self._cancelled = set(self._tasks)
        for task in self._cancelled:
            task.cancel()
        return len(self._cancelled)

    def was_cancelled(self) -> bool:
        """Whether the current task was cancelled by `cancel_all`, and by nothing else."""
        return asyncio.current_task() in self._cancelled

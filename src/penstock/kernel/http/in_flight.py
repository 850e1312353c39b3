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


class InFlight:
    """The running requests of one app. `stopping` tells load balancers to send no new ones."""

    def __init__(self) -> None:
        self.stopping = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._cancelled: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self) -> asyncio.Task[Any]:
        """Register the current task as handling a request."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        return task

    def finish(self, task: asyncio.Task[Any]) -> None:
        """Remove a task whose request is done."""
        self._tasks.discard(task)

    def cancel_all(self) -> int:
        """Cancel the requests that still run; returns how many."""
        self._cancelled = set(self._tasks)
        for task in self._cancelled:
            task.cancel()
        return len(self._cancelled)

    def was_cancelled(self) -> bool:
        """Whether the current task was cancelled by `cancel_all`, and by nothing else."""
        return asyncio.current_task() in self._cancelled

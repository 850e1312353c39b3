"""The requests that are under way, so that a stop can wait for them and cut off those that do not end."""

import asyncio
from typing import Any

from penstock.kernel.errors import Unavailable


class Stopping(Unavailable):
    """The server stops, and the request did not end in time."""

    code = "STOPPING"
    message = "This server stops, and the request did not end in time."
    message_zh = "服务器正在停止，请求未能及时完成。"
    hint = "Send it again; another server, or this one once it is back, will take it."
    hint_zh = "请重新发送；其他服务器或重启后的本服务器会处理。"
    ours = True


class InFlight:
    """The requests of one app. `stopping` says that no new ones should be sent here."""

    def __init__(self) -> None:
        self.stopping = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._cut: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self) -> asyncio.Task[Any]:
        """The current task answers a request from now on."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        return task

    def end(self, task: asyncio.Task[Any]) -> None:
        """The task's request is over."""
        self._tasks.discard(task)

    def cut(self) -> int:
        """Cut off what is still under way; returns how many requests that was."""
        self._cut = set(self._tasks)
        for task in self._cut:
            task.cancel()
        return len(self._cut)

    def was_cut(self) -> bool:
        """Whether the current task was cancelled by `cut`, and by nobody else."""
        return asyncio.current_task() in self._cut

"""A job handler that blocks until it is opened, and `wait_until` for conditions that others fulfil."""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.kernel.queue import Job

TIMEOUT_SECONDS = 20  # for a busy machine; usually it takes milliseconds


class BlockingHandler:
    """A handler that waits until it is opened, and records started, finished and cancelled jobs."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.left: list[str] = []
        self.stopped: list[str] = []
        self.most_inside = 0
        self.opened = asyncio.Event()

    async def __call__(self, job: Job) -> None:
        self.entered.append(job.id)
        self.most_inside = max(self.most_inside, len(self.entered) - len(self.left) - len(self.stopped))
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.stopped.append(job.id)
            raise
        self.left.append(job.id)


async def wait_until(
    condition: Callable[[], bool | Awaitable[bool]], *, seconds: float = TIMEOUT_SECONDS, every_seconds: float = 0.001
) -> None:
    """Wait until the condition holds. Poll conditions of other processes less often."""
    async with asyncio.timeout(seconds):
        while True:
            holds = condition()
            if holds if isinstance(holds, bool) else await holds:
                return
            await asyncio.sleep(every_seconds)

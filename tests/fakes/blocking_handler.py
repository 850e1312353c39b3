"""A handler that lets jobs in and keeps them until it is opened, and how to wait for what others do."""

import asyncio
from collections.abc import Awaitable, Callable

from penstock.kernel.queue import Job

PATIENCE_SECONDS = 20  # on a crowded machine; what is waited for comes within milliseconds


class BlockingHandler:
    """A handler that waits until it is opened, and remembers who came, who left and how many were in at once."""

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
    condition: Callable[[], bool | Awaitable[bool]], *, seconds: float = PATIENCE_SECONDS, every_seconds: float = 0.001
) -> None:
    """Let the others run until it holds. What other processes do is looked at less often."""
    async with asyncio.timeout(seconds):
        while True:
            holds = condition()
            if holds if isinstance(holds, bool) else await holds:
                return
            await asyncio.sleep(every_seconds)

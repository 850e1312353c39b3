"""Running until told to stop: SIGINT and SIGTERM end the work in good order."""

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any


def run_until_signal(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine; the first signal cancels it, and it has its own grace to finish."""

    async def supervise() -> None:
        task = asyncio.ensure_future(main)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(supervise())

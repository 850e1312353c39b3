"""Run until SIGINT or SIGTERM."""

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from penstock.kernel.errors import PenstockError


def run_until_signal(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine. The first SIGINT or SIGTERM cancels it; its own grace period bounds how long it may take."""

    async def supervise() -> None:
        task = asyncio.ensure_future(main)
        loop = asyncio.get_running_loop()
        stopped = False

        def stop() -> None:
            nonlocal stopped
            if not stopped:  # a second signal must not interrupt the shutdown
                task.cancel()
            stopped = True

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        with suppress(asyncio.CancelledError):
            await task

    try:
        asyncio.run(supervise())
    except BaseExceptionGroup as group:
        raise _most_specific(group) from group


def _most_specific(group: BaseExceptionGroup) -> BaseException:
    """Of several tasks that failed together, the first PenstockError, or else the first error."""
    error: BaseException = group.subgroup(PenstockError) or group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error

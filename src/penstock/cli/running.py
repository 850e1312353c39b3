"""Running until told to stop: SIGINT and SIGTERM end the work in good order."""

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from penstock.kernel.errors import PenstockError


def run_until_signal(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine; the first signal cancels it, and it has its own grace to finish."""

    async def supervise() -> None:
        task = asyncio.ensure_future(main)
        loop = asyncio.get_running_loop()
        stopped = False

        def stop() -> None:
            nonlocal stopped
            if not stopped:  # a second signal must not cut short what the first one began
                task.cancel()
            stopped = True

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        with suppress(asyncio.CancelledError):
            await task

    try:
        asyncio.run(supervise())
    except BaseExceptionGroup as group:
        raise _first_named(group) from group


def _first_named(group: BaseExceptionGroup) -> BaseException:
    """Of several tasks that ended together, the error that says most: one of ours, or else the first."""
    named = group.subgroup(PenstockError)
    leaf: BaseException = named or group
    while isinstance(leaf, BaseExceptionGroup):
        leaf = leaf.exceptions[0]
    return leaf

"""Work that a cancellation must not interrupt. A claim cancelled during its commit would hold rows nobody knows of."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

SHIELD_SECONDS = 5.0  # how long a cancellation waits; work that is not done by then is cancelled


async def run_shielded(work: Coroutine[Any, Any, T], undo: Callable[[T], Awaitable[object]] | None = None) -> T:
    """Run a coroutine to its end. A cancellation waits for it, then calls `undo` with its result, then is raised."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            await asyncio.wait([task], timeout=SHIELD_SECONDS)
        if not task.done():
            task.cancel()
        elif undo is not None and not task.cancelled() and task.exception() is None:
            await undo(task.result())
        raise

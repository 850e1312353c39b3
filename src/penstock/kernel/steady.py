"""Work that a cancel must not cut in two. A claim that is cut in its commit holds rows that nobody knows of."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

LONGEST_SECONDS = 5.0  # how long a cancel waits; what is not over then is cut all the same


async def to_its_end(work: Coroutine[Any, Any, T], undo: Callable[[T], Awaitable[object]] | None = None) -> T:
    """Run something to its end. A cancel that comes meanwhile waits for it, undoes what came out, and goes on."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            await asyncio.wait([task], timeout=LONGEST_SECONDS)
        if not task.done():
            task.cancel()
        elif undo is not None and not task.cancelled() and task.exception() is None:
            await undo(task.result())
        raise

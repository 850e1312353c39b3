"""Waiting for what another task does: asked again and again, for ten seconds at most."""

import asyncio
from collections.abc import Awaitable, Callable


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    """Return when a look says yes."""
    async with asyncio.timeout(10):
        while not await look():  # noqa: ASYNC110  (what is waited for happens inside the code that is tried)
            await asyncio.sleep(0.005)

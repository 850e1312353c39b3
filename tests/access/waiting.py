"""Wait for what another task does: poll for ten seconds at most."""

import asyncio
from collections.abc import Awaitable, Callable


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return when the condition is true."""
    async with asyncio.timeout(10):
        while not await condition():  # noqa: ASYNC110  (what is waited for happens inside the code under test)
            await asyncio.sleep(0.005)

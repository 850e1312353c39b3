"""Cancels that the driver swallows.

On a connection with a socket timeout redis-py sends by `asyncio.wait_for`, which on Python 3.11 returns its result when a
cancel comes at the very moment at which it is done. Whoever loops over such calls has to look for himself.
"""

import asyncio


def raise_if_cancelled() -> None:
    """End the task if it was told to end and did not notice."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError

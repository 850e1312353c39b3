"""Disk work off the event loop. It belongs to no package, since the folder store and the staged writers share it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from penstock.kernel.blobs import BlobsUnavailable
from penstock.kernel.errors import DISK_FULL_ERRNOS, DiskFull, PenstockError

T = TypeVar("T")


async def in_thread(what: str, work: Callable[[], T], *, on_cancel: Callable[[], None] | None = None) -> T:
    """Run disk work off the event loop and map its `OSError` to a Blobs error.

    A cancelled caller returns only when the thread has ended: a thread left behind could replace an object
    after the next put. The future is not a task, so closing the loop does not cancel it.
    """
    running = asyncio.get_running_loop().run_in_executor(None, _with_mapped_errors, what, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if on_cancel is not None:
            on_cancel()
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        running.exception()  # retrieved, or asyncio logs that it never was
        raise


def _with_mapped_errors(what: str, work: Callable[[], T]) -> T:
    try:
        return work()
    except OSError as error:
        raise _map_error(what, error) from error


def _map_error(what: str, error: OSError) -> PenstockError:
    if error.errno in DISK_FULL_ERRNOS:
        return DiskFull(what=what)
    return BlobsUnavailable(reason=error.strerror or type(error).__name__)

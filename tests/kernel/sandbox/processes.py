"""Looking for the zygote and for whom it may have left behind."""

import asyncio
import time
from collections.abc import Callable

import psutil

MARK = "penstock.kernel.sandbox.zygote"
PATIENCE_SECONDS = 20  # for what other processes do; it takes milliseconds on a machine at rest


def zygotes(of: int | None = None) -> list[psutil.Process]:
    """Those of a process, or of this one."""
    return [each for each in psutil.Process(of).children() if any(MARK in word for word in _words(each))]


def zygote(of: int | None = None) -> psutil.Process:
    """The only one."""
    (found,) = zygotes(of)
    return found


def copies(original: list[str]) -> list[psutil.Process]:
    """Every process of the machine that still has the command line of a zygote: itself, its children, and any child
    of theirs, wherever they went. The number of the caller is part of it, so other tests do not disturb."""
    return [each for each in psutil.process_iter() if _words(each) == original]


def children_of(parent: psutil.Process) -> list[psutil.Process]:
    return parent.children(recursive=True)


async def until(holds: Callable[[], object]) -> None:
    """Wait for what another process does."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def gone(pid: int) -> bool:
    """Whether a process is dead, buried or not: in a container nobody may bury orphans."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []

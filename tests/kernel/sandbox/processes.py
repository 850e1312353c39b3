"""Finds zygote processes and what they may leave behind."""

import asyncio
import time
from collections.abc import Callable

import psutil

MARK = "penstock.kernel.sandbox.zygote"
TIMEOUT_SECONDS = 20  # for other processes; an idle machine takes milliseconds


def zygotes(of: int | None = None) -> list[psutil.Process]:
    """The zygotes of a process, by default of this one."""
    return [each for each in psutil.Process(of).children() if any(MARK in word for word in _words(each))]


def zygote(of: int | None = None) -> psutil.Process:
    """The only zygote of a process."""
    (found,) = zygotes(of)
    return found


def copies(original: list[str]) -> list[psutil.Process]:
    """Every process of the machine with the command line of a zygote: itself and all its descendants. The caller's pid
    is part of it, so other tests do not interfere."""
    return [each for each in psutil.process_iter() if _words(each) == original]


def children_of(parent: psutil.Process) -> list[psutil.Process]:
    return parent.children(recursive=True)


async def until(holds: Callable[[], object]) -> None:
    """Wait until a condition holds that another process brings about."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def gone(pid: int) -> bool:
    """Whether a process is dead, reaped or not: in a container nothing may reap orphans."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []

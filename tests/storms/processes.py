"""Processes for storms: quick to start (forked from a server that has imported everything), real to kill."""

import asyncio
import atexit
import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from typing import Any

from penstock.kernel.db import Db
from penstock.kernel.errors import Unavailable

PR_SET_PDEATHSIG = 1
_context = multiprocessing.get_context("forkserver")
STORMS = [
    f"tests.storms.{name}" for name in ("engines", "kills", "late", "listeners", "pullers", "relay_kills", "rivals")
]
COMMANDS = [f"penstock.cli.{name}" for name in ("process", "doctor", "demo.tour", "etl.submission", "etl.show")]
_context.set_forkserver_preload([*STORMS, *COMMANDS])
_started: list[ForkServerProcess] = []


def start(target: Callable[..., None], *args: Any) -> ForkServerProcess:
    """Run a function in a process of its own, which dies with us."""
    process = _context.Process(target=_die_with_parent, args=(target, *args), daemon=True)
    process.start()
    _started.append(process)
    return process


def kill(process: ForkServerProcess) -> None:
    """kill -9, and wait until it is gone."""
    process.kill()
    process.join()


@atexit.register
def end_all() -> None:
    """Kill the processes that a test left behind: the interpreter would wait forever for a frozen one."""
    while _started:
        kill(_started.pop())


def freeze(process: ForkServerProcess) -> None:
    """Stop a process where it stands, as a machine does that is out of memory or asleep."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)


async def freeze_between_writes(process: ForkServerProcess, db: Db) -> None:
    """Freeze it while it holds no lock: one asleep on SQLite's only lock keeps everyone out until it wakes."""
    while True:
        freeze(process)
        try:
            async with db.tx():
                return
        except Unavailable:
            thaw(process)
            await asyncio.sleep(0.05)  # let it end what it was writing


def thaw(process: ForkServerProcess) -> None:
    """Let a frozen process go on, unaware of the time that has passed."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGCONT)


def _die_with_parent(target: Callable[..., None], *args: Any) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    target(*args)

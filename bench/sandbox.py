"""A sandboxed call that does nothing, with a small and with a large zygote.

The reference of the ratio is the budget of 5 ms: for the whole call with a small zygote, and for what it takes beyond a
bare fork with either. A fork copies the tables of all memory in use, so its own cost grows with the zygote; the bare
fork has the same modules loaded. It has no limits, no isolation and no reply.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, replace

import psutil

from bench.comparison import ROUNDS, Finding, p95, summary
from penstock.kernel.sandbox.call import Sandbox
from tests.kernel.sandbox import payloads
from tests.kernel.sandbox.processes import zygote

CALLS = 300
BUDGET_MS = 5.0
SMALL = (payloads.__name__,)
# No parser of documents is installed yet; these together take about as much memory as one.
LARGE = (*SMALL, "fastapi", "sqlalchemy.ext.asyncio", "alembic.command", "cryptography.x509", "aiohttp", "rich.console")


@dataclass(frozen=True, kw_only=True)
class Round:
    """Cost of one round."""

    seconds: list[float]
    cpu_seconds: float
    memory_bytes: int

    @property
    def p50_ms(self) -> float:
        """The median."""
        return statistics.median(self.seconds) * 1000


def run() -> list[Finding]:
    """Both zygotes, three interleaved rounds each."""
    return [finding for preload in (SMALL, LARGE) for finding in asyncio.run(_compare(preload))]


async def _compare(preload: tuple[str, ...]) -> list[Finding]:
    async with Sandbox(preload=preload) as sandbox:
        await sandbox.guards()
        rounds = [(_forks(preload), await _calls(sandbox)) for _ in range(ROUNDS)]
    size = f"zygote of {rounds[0][1].memory_bytes / 1e6:.0f} MB"
    whole = [(BUDGET_MS, call.p50_ms) for _, call in rounds]
    beyond = [(BUDGET_MS, call.p50_ms - fork.p50_ms) for fork, call in rounds]
    notes = _notes("fork", [fork for fork, _ in rounds]) | _notes("call", [call for _, call in rounds])
    over = summary(f"a call beyond a bare fork, {size}, beside its budget", "ms", beyond, at_most=1)
    if preload != SMALL:
        return [replace(over, notes=notes)]
    return [summary(f"a whole call, {size}, beside its budget", "ms", whole, at_most=1), replace(over, notes=notes)]


def _notes(of: str, rounds: list[Round]) -> dict[str, float]:
    return {
        f"{of} p50 ms": statistics.median(each.p50_ms for each in rounds),
        f"{of} p95 ms": statistics.median(p95(each.seconds) for each in rounds),
        f"{of} CPU ms": statistics.median(each.cpu_seconds for each in rounds) / CALLS * 1000,
    }


async def _calls(sandbox: Sandbox) -> Round:
    parent, seconds = zygote(), []
    before = _cpu_seconds(parent) + time.process_time()
    for _ in range(CALLS):
        began = time.perf_counter()
        await sandbox.run(payloads.nothing)
        seconds.append(time.perf_counter() - began)
    cpu = _cpu_seconds(parent) + time.process_time() - before
    return Round(seconds=seconds, cpu_seconds=cpu, memory_bytes=parent.memory_info().rss)


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def _forks(preload: tuple[str, ...]) -> Round:
    """In a process with the same modules, so that a fork copies as much memory."""
    told = subprocess.run([sys.executable, "-m", __name__, *preload], check=True, capture_output=True).stdout
    return Round(**json.loads(told))


def _measure_forks(preload: list[str]) -> None:
    for name in preload:
        __import__(name)
    seconds, process = [], psutil.Process()
    before = _cpu_seconds(process)
    for _ in range(CALLS):
        began = time.perf_counter()
        if (pid := os.fork()) == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        seconds.append(time.perf_counter() - began)
    told = {"seconds": seconds, "cpu_seconds": _cpu_seconds(process) - before}
    print(json.dumps(told | {"memory_bytes": process.memory_info().rss}))


if __name__ == "__main__":
    _measure_forks(sys.argv[1:])

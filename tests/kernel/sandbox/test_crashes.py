"""When the zygote or the caller dies, no process of theirs is left, and the next call works."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from penstock.kernel.errors import Unavailable
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.sandbox.errors import SandboxLost, SandboxNotStarted
from tests.kernel.sandbox import lone_caller, payloads, weak_caller
from tests.kernel.sandbox.processes import children_of, copies, gone, until, zygote, zygotes

ROOT = Path(__file__).parents[3]


class TestADeadZygote:
    async def test_costs_its_calls_no_attempt_and_the_next_call_starts_another(self, sandbox: Sandbox):
        await sandbox.guards()
        first = zygote()
        calls = [asyncio.create_task(sandbox.run(payloads.hang_deaf)) for _ in range(3)]
        await until(lambda: len(children_of(first)) == 3)
        orphans = [each.pid for each in children_of(first)]
        first.kill()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(end) for end in ends] == [SandboxLost] * 3
        await until(lambda: all(map(gone, orphans)))
        assert await sandbox.run(payloads.echo, 1) == 1
        assert zygote() != first

    async def test_is_replaced_unnoticed_when_it_was_idle(self, sandbox: Sandbox):
        await sandbox.guards()
        first = zygote()
        first.kill()
        await until(lambda: gone(first.pid))
        assert await sandbox.run(payloads.echo, 1) == 1

    async def test_that_is_suspended_is_killed(self):
        async with Sandbox(preload=[payloads.__name__], zygote_timeout_seconds=0.2) as sandbox:
            await sandbox.guards()
            first = zygote()
            first.suspend()
            with pytest.raises(SandboxLost):
                await sandbox.run(payloads.echo, 1, limits=lone_caller.SHORT)
            assert gone(first.pid)
            assert await sandbox.run(payloads.echo, 1) == 1

    async def test_that_is_suspended_does_not_delay_a_cancel_or_a_close(self):
        sandbox = Sandbox(preload=[payloads.__name__], zygote_timeout_seconds=0.2)
        await sandbox.guards()
        first = zygote()
        call = asyncio.create_task(sandbox.run(payloads.hang))
        await until(lambda: children_of(first))
        below = [first.pid, *(each.pid for each in children_of(first))]
        first.suspend()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await sandbox.close()
        await until(lambda: all(map(gone, below)))

    @pytest.mark.parametrize("error", [SandboxLost, SandboxNotStarted])
    def test_is_an_internal_outage(self, error: type[Unavailable]):
        assert (error.status, error.retryable, error.internal_outage) == (503, True, True)


async def test_a_zygote_ignores_the_signals_of_a_shutdown(sandbox: Sandbox):
    """Process managers send SIGTERM to all at once, and a terminal SIGINT; running work must be able to end."""
    await sandbox.guards()
    before = zygote()
    for asked in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        before.send_signal(asked)
    assert await sandbox.run(payloads.echo, 1) == 1
    assert zygote() == before


async def test_a_killed_caller_leaves_no_process():
    caller = _start(lone_caller.__name__)
    try:
        await until(lambda: zygotes(caller.pid) and len(children_of(zygote(caller.pid))) == lone_caller.CALLS)
        command = zygote(caller.pid).cmdline()
        below = [each.pid for each in psutil.Process(caller.pid).children(recursive=True)]
    finally:
        caller.kill()
        caller.communicate()
    assert len(below) == 1 + lone_caller.CALLS
    await until(lambda: all(map(gone, below)) and not [each for each in copies(command) if not gone(each.pid)])


async def test_a_machine_without_isolation_is_logged_and_still_cleaned_up():
    """Seccomp, Landlock and namespaces are refused to this caller: limits and kills still work."""
    caller = _start(weak_caller.__name__)
    out, err = await asyncio.to_thread(caller.communicate, timeout=60)
    assert caller.returncode == 0, err
    report = json.loads(out)
    assert report["missing"] == ["seccomp", "landlock", "network namespace"]
    assert err.count(b"incomplete on this machine: no seccomp, no landlock, no network namespace") == 1
    assert report["value"] == 1
    assert report["ends"] == ["SANDBOX_TIMED_OUT", "SANDBOX_OUT_OF_MEMORY", "SANDBOX_CRASHED"]
    assert report["orphan"] == 0 or gone(report["orphan"])


def _start(module: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", module]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

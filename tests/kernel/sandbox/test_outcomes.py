"""However a child ends, the caller gets a result or an error, and the next call works."""

import signal
from collections.abc import Callable

import pytest

from penstock.kernel.errors import Invalid, PenstockError
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.sandbox.errors import (
    SandboxBadAnswer,
    SandboxCrashed,
    SandboxedFailure,
    SandboxKilled,
    SandboxOutOfCpu,
    SandboxOutOfMemory,
    SandboxTimedOut,
    SandboxTooMuch,
)
from penstock.kernel.sandbox.limits import SandboxLimits
from tests.kernel.sandbox import payloads
from tests.kernel.sandbox.processes import children_of, zygote

MIB = 1024 * 1024
TIGHT = SandboxLimits(memory_bytes=128 * MIB, seconds=20, cpu_seconds=20, result_bytes=100_000)

DEATHS: list[tuple[Callable[..., object], tuple[object, ...], type[PenstockError], str]] = [
    (payloads.segfault, (), SandboxCrashed, "SIGSEGV"),
    (payloads.abort, (), SandboxCrashed, "SIGABRT"),
    (payloads.overflow_the_stack, (), SandboxCrashed, "SIGSEGV"),
    (payloads.die_by, (int(signal.SIGTERM),), SandboxCrashed, "SIGTERM"),
    (payloads.die_by, (40,), SandboxCrashed, "signal 40"),
    (payloads.die_by, (int(signal.SIGXCPU),), SandboxOutOfCpu, "20 s"),
    (payloads.be_killed, (), SandboxKilled, "from outside"),
    (payloads.vanish, (3,), SandboxCrashed, "exit status 3"),
    (payloads.vanish, (0,), SandboxCrashed, "exit status 0"),
    (payloads.close_everything, (), SandboxCrashed, "exit status 0"),
    (payloads.leave, (), SandboxedFailure, "SystemExit: 5"),
    (payloads.recurse, (), SandboxedFailure, "RecursionError"),
    (payloads.raise_unspeakable, (), SandboxedFailure, "Exception"),
    (payloads.fork_bomb, (), SandboxedFailure, "PermissionError"),
    (payloads.run_a_program, (), SandboxedFailure, "PermissionError"),
    (payloads.thread_bomb, (), SandboxedFailure, "RuntimeError"),
    (payloads.exhaust_descriptors, (), SandboxedFailure, "Too many open files"),
    (payloads.return_unspeakable, (), SandboxedFailure, "TypeError"),
    (payloads.allocate, (), SandboxOutOfMemory, str(128 * MIB)),
    (payloads.allocate_in_small_pieces, (), SandboxOutOfMemory, str(128 * MIB)),
    (payloads.flood_answer, (), SandboxTooMuch, "100000 bytes"),
    (payloads.return_much, (100_000,), SandboxTooMuch, "100000 bytes"),
    (payloads.return_wrong, (), SandboxBadAnswer, "Expected `int`"),
    (payloads.answer_by_hand, (b"=\xc1",), SandboxBadAnswer, "cannot be decoded"),
    (payloads.answer_by_hand, (b"=" + b"\x91" * 90_000,), SandboxBadAnswer, "cannot be decoded"),
    (payloads.answer_by_hand, (b"=\xdd\xff\xff\xff\xff",), SandboxBadAnswer, "cannot be decoded"),
    (payloads.answer_by_hand, (b"!\x00",), SandboxBadAnswer, "cannot be decoded"),
    (payloads.answer_by_hand, (b"?",), SandboxBadAnswer, "unknown mark"),
    (payloads.answer_by_hand, (b"M",), SandboxOutOfMemory, str(128 * MIB)),
]


async def test_a_death_is_a_result(sandbox: Sandbox):
    await sandbox.guards()
    parent = zygote()
    for function, arguments, kind, words in DEATHS:
        with pytest.raises(kind, match=words):
            await sandbox.run(function, *arguments, limits=TIGHT)
        assert children_of(parent) == [], function
        assert await sandbox.run(payloads.echo, 1) == 1
    assert zygote() == parent


@pytest.mark.parametrize(
    "kind", dict.fromkeys([*(kind for _, _, kind, _ in DEATHS), SandboxTimedOut]), ids=lambda kind: kind.code
)
def test_errors_about_a_file_are_not_retryable_but_a_kill_is(kind: type[PenstockError]):
    expected = (503, True, False) if kind is SandboxKilled else (400, False, False)
    assert (kind.status, kind.retryable, kind.internal_outage) == expected


class TestTime:
    @pytest.mark.parametrize("function", [payloads.hang, payloads.hang_deaf, payloads.stop_itself])
    async def test_out_kills_a_child_whatever_it_does(self, sandbox: Sandbox, function):
        with pytest.raises(SandboxTimedOut, match=r"0\.5 s"):
            await sandbox.run(function, limits=SandboxLimits(seconds=0.5))
        assert children_of(zygote()) == []

    async def test_out_counts_though_a_result_was_written(self, sandbox: Sandbox):
        with pytest.raises(SandboxTimedOut):
            await sandbox.run(payloads.answer_and_hang, b"=\x01", limits=SandboxLimits(seconds=0.5))

    @pytest.mark.parametrize("function", [payloads.spin, payloads.spin_deaf])
    async def test_of_the_cpu_has_a_limit_of_its_own(self, sandbox: Sandbox, function):
        with pytest.raises(SandboxOutOfCpu, match="1 s"):
            await sandbox.run(function, limits=SandboxLimits(cpu_seconds=1, seconds=60))


class TestErrorTexts:
    async def test_have_the_type_and_the_message_of_the_error(self, sandbox: Sandbox):
        with pytest.raises(SandboxedFailure) as caught:
            await sandbox.run(payloads.raise_with, "第 3 页 is broken")
        assert caught.value.values == {"kind": "ValueError", "text": "第 3 页 is broken"}

    async def test_are_one_printable_line_cut_short(self, sandbox: Sandbox):
        with pytest.raises(SandboxedFailure) as caught:
            await sandbox.run(payloads.raise_escapes)
        text = str(caught.value.values["text"])
        assert text.startswith(" [2J ERROR forged \\0 {code}\\ud800xxx")
        assert len(text) == 501
        assert text.isprintable()

    async def test_are_not_trusted_when_a_child_forges_them(self, sandbox: Sandbox):
        long_name = b"!\x92\xda\x10\x00" + b"N" * 4096 + b"\xa1x"
        with pytest.raises(SandboxedFailure) as caught:
            await sandbox.run(payloads.answer_by_hand, long_name)
        assert len(str(caught.value.values["kind"])) == 101

    async def test_cannot_blame_the_sandbox(self, sandbox: Sandbox):
        """Whatever a child writes once it is isolated is about the file: nothing it writes is a retryable error."""
        for words in (b"", b"\x00", b"+", b"out of our memory"):
            with pytest.raises(Invalid):
                await sandbox.run(payloads.answer_by_hand, words)

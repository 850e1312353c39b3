"""Several calls about one file in one child, each with its own outcome and unaffected by the others."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from penstock.kernel.errors import PenstockError
from penstock.kernel.sandbox import wire
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.sandbox.errors import (
    SandboxArgumentsTooLarge,
    SandboxBadAnswer,
    SandboxCrashed,
    SandboxedFailure,
    SandboxFileUnreadable,
    SandboxKilled,
    SandboxLost,
    SandboxOutOfCpu,
    SandboxOutOfMemory,
    SandboxTimedOut,
    SandboxTooMuch,
)
from penstock.kernel.sandbox.limits import SandboxLimits
from penstock.kernel.sandbox.session import MAX_CALLS, SandboxSession
from tests.kernel.sandbox import payloads, session_payloads
from tests.kernel.sandbox.processes import children_of, until, zygote

LIMITS = SandboxLimits(memory_bytes=256 * 1024 * 1024, result_bytes=100_000)


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(preload=[payloads.__name__, session_payloads.__name__], max_children=2) as sandbox:
        yield sandbox


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "document"
    path.write_bytes(b"first and last")
    return path


@pytest.fixture
async def session(sandbox: Sandbox, file: Path) -> AsyncIterator[SandboxSession]:
    async with sandbox.session(file) as session:
        yield session


async def who(session: SandboxSession) -> int:
    return await session.run(session_payloads.who, limits=LIMITS)


class TestOneChild:
    async def test_serves_call_after_call(self, session: SandboxSession):
        first = await who(session)
        for value in (None, 7, "页", b"\x00" * 50_000, [1, {"a": None}]):
            assert await session.run(session_payloads.echo, value, limits=LIMITS) == value
        assert await who(session) == first

    async def test_finds_the_file_at_its_beginning_each_time(self, session: SandboxSession):
        assert [await session.run(session_payloads.first_byte, limits=LIMITS) for _ in range(3)] == [b"f"] * 3
        assert await session.run(session_payloads.close_it, limits=LIMITS)
        assert await session.run(session_payloads.first_byte, limits=LIMITS) == b"f"

    async def test_can_open_the_file_by_its_name_and_none_beside_it(
        self, sandbox: Sandbox, session: SandboxSession, file: Path
    ):
        other = file.with_name("other")
        other.write_bytes(b"secret")
        expected = {str(file): "done: 14", str(other): "PermissionError"}
        assert await session.run(session_payloads.read_by_name, [str(other)], limits=LIMITS) == expected
        assert await sandbox.run(session_payloads.read_by_name, [str(other)], file=file, limits=LIMITS) == expected

    async def test_is_replaced_after_many_calls(self, session: SandboxSession):
        seen = [await who(session) for _ in range(2 * MAX_CALLS)]
        assert seen == [seen[0]] * MAX_CALLS + [seen[-1]] * MAX_CALLS
        assert seen[0] != seen[-1]

    async def test_is_replaced_for_a_call_with_another_memory_limit(self, session: SandboxSession):
        first = await who(session)
        assert await session.run(session_payloads.who, limits=SandboxLimits(memory_bytes=128 * 1024 * 1024)) != first

    async def test_is_replaced_for_a_call_with_a_higher_cpu_limit(self, session: SandboxSession):
        quick = SandboxLimits(memory_bytes=LIMITS.memory_bytes, cpu_seconds=1)
        first = await session.run(session_payloads.who, limits=quick)
        second = await who(session)
        assert second != first
        assert await session.run(session_payloads.who, limits=quick) == second

    async def test_is_gone_at_the_end_of_the_block_with_its_descriptors(self, sandbox: Sandbox, file: Path):
        await sandbox.guards()
        here, there = psutil.Process(), zygote()
        before = here.num_fds(), there.num_fds()
        for _ in range(5):
            async with sandbox.session(file) as session:
                await who(session)
                assert len(children_of(there)) == 1
            assert children_of(there) == []
        assert (here.num_fds(), there.num_fds()) == before

    async def test_is_not_started_before_a_call(self, sandbox: Sandbox, file: Path):
        await sandbox.guards()
        async with sandbox.session(file):
            assert children_of(zygote()) == []

    async def test_is_isolated_like_every_child(self, session: SandboxSession):
        with pytest.raises(SandboxedFailure, match="PermissionError"):
            await session.run(session_payloads.fork, limits=LIMITS)

    async def test_has_the_same_argument_limit_as_a_call(self, session: SandboxSession):
        fits = b"x" * (wire.MAX_ARGUMENT_BYTES - 10)
        large = SandboxLimits(result_bytes=wire.MAX_ARGUMENT_BYTES)
        assert await session.run(session_payloads.echo, fits, limits=large) == fits
        assert await session.run(session_payloads.echo, fits, limits=large) == fits
        with pytest.raises(SandboxArgumentsTooLarge):
            await session.run(session_payloads.echo, fits + fits, limits=large)

    async def test_needs_an_existing_file(self, sandbox: Sandbox, tmp_path: Path):
        async with sandbox.session(tmp_path / "lost") as session:
            for _ in range(3):  # a slot that was not released would be missed
                with pytest.raises(SandboxFileUnreadable):
                    await who(session)


ENDS: list[tuple[Callable[..., object], tuple[object, ...], type[PenstockError]]] = [
    (session_payloads.fail, (), SandboxedFailure),
    (session_payloads.crash, (), SandboxCrashed),
    (session_payloads.allocate, (), SandboxOutOfMemory),
    (session_payloads.return_much, (100_000,), SandboxTooMuch),
    (session_payloads.return_wrong, (), SandboxBadAnswer),
    (session_payloads.say_by_hand, (bytes(8),), SandboxBadAnswer),
    (session_payloads.say_by_hand, (b"\xff" * 120_000,), SandboxTooMuch),
]


class TestFailures:
    @pytest.mark.parametrize("is_used", [False, True], ids=["fresh", "used"])
    async def test_are_raised_and_the_next_call_gets_another_child(self, session: SandboxSession, *, is_used: bool):
        for function, arguments, kind in ENDS:
            if is_used:
                await who(session)
            with pytest.raises(kind):
                await session.run(function, *arguments, limits=LIMITS)
            assert children_of(zygote()) == [], function
        assert await session.run(session_payloads.echo, 1, limits=LIMITS) == 1

    async def test_the_time_limit_is_per_call(self, session: SandboxSession):
        limits = SandboxLimits(memory_bytes=LIMITS.memory_bytes, seconds=2)
        first = await who(session)
        for _ in range(5):  # together longer than the limit, each far from it
            assert await session.run(session_payloads.sleep_for, 0.5, limits=limits) == first
        with pytest.raises(SandboxTimedOut, match="2 s"):
            await session.run(session_payloads.hang, limits=limits)
        assert children_of(zygote()) == []

    async def test_the_cpu_limit_is_per_call(self, session: SandboxSession):
        one_second = SandboxLimits(memory_bytes=LIMITS.memory_bytes, cpu_seconds=1, seconds=60)
        first = await who(session)
        for _ in range(2):  # together more than the limit
            assert await session.run(session_payloads.spin_for, 0.7, limits=one_second) == first
        with pytest.raises(SandboxOutOfCpu, match="1 s"):
            await session.run(session_payloads.spin_for, 60.0, limits=one_second)

    @pytest.mark.parametrize("function", [session_payloads.crash_when_used, session_payloads.fill_when_used])
    async def test_caused_by_an_earlier_call_are_retried_in_a_fresh_child(self, session: SandboxSession, function):
        first = await session.run(function, limits=LIMITS)
        assert await session.run(function, limits=LIMITS) != first

    async def test_by_a_kill_from_outside_are_raised(self, session: SandboxSession):
        await session.run(session_payloads.kill_when_used, limits=LIMITS)
        with pytest.raises(SandboxKilled):
            await session.run(session_payloads.kill_when_used, limits=LIMITS)

    async def test_of_an_idle_child_go_unnoticed(self, sandbox: Sandbox, session: SandboxSession):
        first = await who(session)
        psutil.Process(first).kill()
        await until(lambda: children_of(zygote()) == [])
        await sandbox.run(payloads.nothing)  # reports arrive in order
        assert await who(session) != first

    async def test_an_idle_child_that_floods_its_pipe_is_killed(self, session: SandboxSession):
        await session.run(session_payloads.flood_later, 1.0, limits=LIMITS)
        await until(lambda: children_of(zygote()) == [])
        assert await session.run(session_payloads.echo, 1, limits=LIMITS) == 1

    async def test_a_child_that_replies_unasked_is_replaced(self, session: SandboxSession):
        await session.run(session_payloads.answer_unasked, 10, limits=LIMITS)
        assert await session.run(session_payloads.echo, 1, limits=LIMITS) == 1

    async def test_a_child_that_does_not_read_its_calls_fails(self, session: SandboxSession):
        async def call_often() -> None:
            await session.run(session_payloads.answer_without_reading, limits=LIMITS)
            for _ in range(9):
                await session.run(session_payloads.echo, bytes(wire.MAX_ARGUMENT_BYTES - 10), limits=LIMITS)

        with pytest.raises(SandboxBadAnswer, match="does not read"):
            await call_often()
        assert children_of(zygote()) == []

    async def test_of_a_child_that_never_starts_are_ours(self, file: Path):
        async with (
            Sandbox(preload=[session_payloads.__name__], zygote_timeout_seconds=0.2) as impatient,
            impatient.session(file) as late,
        ):
            await impatient.guards()
            zygote().suspend()
            with pytest.raises(SandboxLost):
                await late.run(session_payloads.who, limits=SandboxLimits(seconds=0.2))
            assert await who(late)

    async def test_a_cancel_kills_the_child(self, session: SandboxSession):
        await who(session)
        call = asyncio.create_task(session.run(session_payloads.hang, limits=LIMITS))
        await asyncio.sleep(0)  # the call is sent
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert children_of(zygote()) == []
        assert await session.run(session_payloads.echo, 1, limits=LIMITS) == 1

    async def test_of_the_zygote_are_not_about_the_file(self, sandbox: Sandbox, session: SandboxSession):
        await who(session)
        call = asyncio.create_task(session.run(session_payloads.hang, limits=LIMITS))
        await asyncio.sleep(0)  # the call is sent
        zygote().kill()
        with pytest.raises(SandboxLost):
            await call
        assert await session.run(session_payloads.echo, 1, limits=LIMITS) == 1
        await sandbox.close()
        with pytest.raises(SandboxLost, match="closed"):
            await who(session)


def single_slot() -> Sandbox:
    return Sandbox(preload=[payloads.__name__, session_payloads.__name__], max_children=1)


class TestSlots:
    async def test_an_idle_session_gives_up_its_slot_to_a_waiting_call(self, file: Path):
        async with single_slot() as sandbox, sandbox.session(file) as one, sandbox.session(file) as other:
            first, second = await who(one), await who(other)
            assert [each.pid for each in children_of(zygote())] == [second]
            assert await sandbox.run(payloads.echo, 1) == 1
            assert children_of(zygote()) == []
            assert len({first, second, await who(one), await who(other)}) == 4

    async def test_the_longest_idle_session_gives_up_its_slot_first(self, sandbox: Sandbox, file: Path):
        async with sandbox.session(file) as one, sandbox.session(file) as other:
            await who(one)
            second = await who(other)
            await who(one)
            assert await sandbox.run(payloads.echo, 1) == 1
            assert await who(other) != second

    async def test_a_session_gives_up_its_slot_between_calls_when_a_call_waits(self, file: Path):
        async with single_slot() as sandbox, sandbox.session(file) as session:
            first = await who(session)
            call = asyncio.create_task(session.run(session_payloads.spin_for, 0.2, limits=LIMITS))
            await asyncio.sleep(0)  # the call is sent
            waiting = asyncio.create_task(sandbox.run(payloads.echo, 1))
            assert await call == first
            assert await waiting == 1
            assert await who(session) != first

    async def test_many_sessions_take_turns(self, sandbox: Sandbox, file: Path):
        async def call_often(number: int) -> list[object]:
            async with sandbox.session(file) as session:
                return [await session.run(session_payloads.echo, (number, each), limits=LIMITS) for each in range(10)]

        async with asyncio.timeout(60):
            answers = await asyncio.gather(*map(call_often, range(8)))
        assert answers == [[[number, each] for each in range(10)] for number in range(8)]
        assert children_of(zygote()) == []

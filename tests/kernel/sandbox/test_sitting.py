"""Several calls about one file in one child, each with its own end, and nothing of one in the next."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from penstock.kernel.errors import PenstockError
from penstock.kernel.sandbox import wire
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.sandbox.ends import (
    Bounds,
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
from penstock.kernel.sandbox.session import MOST_CALLS, SandboxSession
from tests.kernel.sandbox import payloads
from tests.kernel.sandbox import sitting_payloads as asks
from tests.kernel.sandbox.processes import children_of, until, zygote

USUAL = Bounds(memory_bytes=256 * 1024 * 1024, result_bytes=100_000)


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(preload=[payloads.__name__, asks.__name__], most_children=2) as sandbox:
        yield sandbox


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "paper"
    path.write_bytes(b"first and last")
    return path


@pytest.fixture
async def sitting(sandbox: Sandbox, file: Path) -> AsyncIterator[SandboxSession]:
    async with sandbox.sitting(file) as sitting:
        yield sitting


async def who(sitting: SandboxSession) -> int:
    return await sitting.run(asks.who, limits=USUAL)


class TestOneChild:
    async def test_answers_call_after_call(self, sitting: SandboxSession):
        first = await who(sitting)
        for value in (None, 7, "页", b"\x00" * 50_000, [1, {"a": None}]):
            assert await sitting.run(asks.echo, value, limits=USUAL) == value
        assert await who(sitting) == first

    async def test_finds_the_file_at_its_beginning_each_time(self, sitting: SandboxSession):
        assert [await sitting.run(asks.first_byte, limits=USUAL) for _ in range(3)] == [b"f"] * 3
        assert await sitting.run(asks.close_it, limits=USUAL)
        assert await sitting.run(asks.first_byte, limits=USUAL) == b"f"

    async def test_is_relieved_after_many_calls(self, sitting: SandboxSession):
        seen = [await who(sitting) for _ in range(2 * MOST_CALLS)]
        assert seen == [seen[0]] * MOST_CALLS + [seen[-1]] * MOST_CALLS
        assert seen[0] != seen[-1]

    async def test_is_not_kept_for_a_call_that_may_have_other_memory(self, sitting: SandboxSession):
        first = await who(sitting)
        assert await sitting.run(asks.who, limits=Bounds(memory_bytes=128 * 1024 * 1024)) != first

    async def test_is_not_kept_for_a_call_that_may_use_more_of_the_processor(self, sitting: SandboxSession):
        quick = Bounds(memory_bytes=USUAL.memory_bytes, cpu_seconds=1)
        first = await sitting.run(asks.who, limits=quick)
        second = await who(sitting)
        assert second != first
        assert await sitting.run(asks.who, limits=quick) == second

    async def test_is_gone_at_the_end_of_the_block_and_so_is_all_it_was_lent(self, sandbox: Sandbox, file: Path):
        await sandbox.guards()
        here, there = psutil.Process(), zygote()
        before = here.num_fds(), there.num_fds()
        for _ in range(5):
            async with sandbox.sitting(file) as sitting:
                await who(sitting)
                assert len(children_of(there)) == 1
            assert children_of(there) == []
        assert (here.num_fds(), there.num_fds()) == before

    async def test_is_not_made_for_nothing(self, sandbox: Sandbox, file: Path):
        await sandbox.guards()
        async with sandbox.sitting(file):
            assert children_of(zygote()) == []

    async def test_has_what_every_child_has_around_it(self, sitting: SandboxSession):
        with pytest.raises(SandboxedFailure, match="PermissionError"):
            await sitting.run(asks.fork, limits=USUAL)

    async def test_takes_arguments_as_large_as_any(self, sitting: SandboxSession):
        fits = b"x" * (wire.MOST_ARGUMENT_BYTES - 10)
        large = Bounds(result_bytes=wire.MOST_ARGUMENT_BYTES)
        assert await sitting.run(asks.echo, fits, limits=large) == fits
        assert await sitting.run(asks.echo, fits, limits=large) == fits
        with pytest.raises(SandboxArgumentsTooLarge):
            await sitting.run(asks.echo, fits + fits, limits=large)

    async def test_is_not_given_a_file_that_is_missing(self, sandbox: Sandbox, tmp_path: Path):
        async with sandbox.sitting(tmp_path / "lost") as sitting:
            for _ in range(3):  # a seat that was not given back would be missed
                with pytest.raises(SandboxFileUnreadable):
                    await who(sitting)


ENDS: list[tuple[Callable[..., object], tuple[object, ...], type[PenstockError]]] = [
    (asks.fail, (), SandboxedFailure),
    (asks.crash, (), SandboxCrashed),
    (asks.allocate, (), SandboxOutOfMemory),
    (asks.return_much, (100_000,), SandboxTooMuch),
    (asks.return_wrong, (), SandboxBadAnswer),
    (asks.say_by_hand, (bytes(8),), SandboxBadAnswer),
    (asks.say_by_hand, (b"\xff" * 120_000,), SandboxTooMuch),
]


class TestABadEnd:
    @pytest.mark.parametrize("is_used", [False, True], ids=["fresh", "used"])
    async def test_is_told_and_the_next_call_gets_another_child(self, sitting: SandboxSession, *, is_used: bool):
        for function, arguments, kind in ENDS:
            if is_used:
                await who(sitting)
            with pytest.raises(kind):
                await sitting.run(function, *arguments, limits=USUAL)
            assert children_of(zygote()) == [], function
        assert await sitting.run(asks.echo, 1, limits=USUAL) == 1

    async def test_by_the_clock_is_that_of_one_call(self, sitting: SandboxSession):
        quick = Bounds(memory_bytes=USUAL.memory_bytes, seconds=1)
        first = await who(sitting)
        for _ in range(4):
            assert await sitting.run(asks.spin_for, 0.4, limits=quick) == first
        with pytest.raises(SandboxTimedOut, match="1 s"):
            await sitting.run(asks.hang, limits=quick)
        assert children_of(zygote()) == []

    async def test_by_the_processor_is_that_of_one_call(self, sitting: SandboxSession):
        one_second = Bounds(memory_bytes=USUAL.memory_bytes, cpu_seconds=1, seconds=60)
        first = await who(sitting)
        for _ in range(4):
            assert await sitting.run(asks.spin_for, 0.8, limits=one_second) == first
        with pytest.raises(SandboxOutOfCpu, match="1 s"):
            await sitting.run(asks.spin_for, 60.0, limits=one_second)

    @pytest.mark.parametrize("function", [asks.crash_when_used, asks.fill_when_used])
    async def test_that_an_earlier_call_is_to_blame_for_is_none(self, sitting: SandboxSession, function):
        first = await sitting.run(function, limits=USUAL)
        assert await sitting.run(function, limits=USUAL) != first

    async def test_by_a_kill_from_outside_is_not_hidden(self, sitting: SandboxSession):
        await sitting.run(asks.kill_when_used, limits=USUAL)
        with pytest.raises(SandboxKilled):
            await sitting.run(asks.kill_when_used, limits=USUAL)

    async def test_while_nobody_asks_is_no_answer(self, sandbox: Sandbox, sitting: SandboxSession):
        first = await who(sitting)
        psutil.Process(first).kill()
        await until(lambda: children_of(zygote()) == [])
        await sandbox.run(payloads.nothing)  # reports come one after another
        assert await who(sitting) != first

    async def test_of_one_that_floods_us_while_nobody_asks_comes_soon(self, sitting: SandboxSession):
        await sitting.run(asks.flood_later, 1.0, limits=USUAL)
        await until(lambda: children_of(zygote()) == [])
        assert await sitting.run(asks.echo, 1, limits=USUAL) == 1

    async def test_is_near_for_one_that_answers_unasked(self, sitting: SandboxSession):
        await sitting.run(asks.answer_unasked, 10, limits=USUAL)
        assert await sitting.run(asks.echo, 1, limits=USUAL) == 1

    async def test_of_one_that_does_not_read_what_it_is_asked_is_its_own_fault(self, sitting: SandboxSession):
        async def ask_much() -> None:
            await sitting.run(asks.answer_without_reading, limits=USUAL)
            for _ in range(9):
                await sitting.run(asks.echo, bytes(wire.MOST_ARGUMENT_BYTES - 10), limits=USUAL)

        with pytest.raises(SandboxBadAnswer, match="does not read"):
            await ask_much()
        assert children_of(zygote()) == []

    async def test_of_a_child_that_never_begins_is_ours(self, file: Path):
        async with Sandbox(preload=[asks.__name__], patience_seconds=0.2) as impatient, impatient.sitting(file) as late:
            await impatient.guards()
            zygote().suspend()
            with pytest.raises(SandboxLost):
                await late.run(asks.who, limits=Bounds(seconds=0.2))
            assert await who(late)

    async def test_by_a_cancel_ends_the_child(self, sitting: SandboxSession):
        await who(sitting)
        asked = asyncio.create_task(sitting.run(asks.hang, limits=USUAL))
        await asyncio.sleep(0)  # it is asked
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert children_of(zygote()) == []
        assert await sitting.run(asks.echo, 1, limits=USUAL) == 1

    async def test_of_the_sandbox_is_no_fault_of_the_file(self, sandbox: Sandbox, sitting: SandboxSession):
        await who(sitting)
        asked = asyncio.create_task(sitting.run(asks.hang, limits=USUAL))
        await asyncio.sleep(0)  # it is asked
        zygote().kill()
        with pytest.raises(SandboxLost):
            await asked
        assert await sitting.run(asks.echo, 1, limits=USUAL) == 1
        await sandbox.close()
        with pytest.raises(SandboxLost, match="closed"):
            await who(sitting)


def only_seat() -> Sandbox:
    return Sandbox(preload=[payloads.__name__, asks.__name__], most_children=1)


class TestASeat:
    async def test_of_an_idle_child_is_given_up_to_whoever_wants_it(self, file: Path):
        async with only_seat() as sandbox, sandbox.sitting(file) as one, sandbox.sitting(file) as other:
            first, second = await who(one), await who(other)
            assert [each.pid for each in children_of(zygote())] == [second]
            assert await sandbox.run(payloads.echo, 1) == 1
            assert children_of(zygote()) == []
            assert len({first, second, await who(one), await who(other)}) == 4

    async def test_of_the_child_that_is_idle_longest_goes_first(self, sandbox: Sandbox, file: Path):
        async with sandbox.sitting(file) as one, sandbox.sitting(file) as other:
            await who(one)
            second = await who(other)
            await who(one)
            assert await sandbox.run(payloads.echo, 1) == 1
            assert await who(other) != second

    async def test_is_given_up_between_two_calls_when_somebody_waits(self, file: Path):
        async with only_seat() as sandbox, sandbox.sitting(file) as sitting:
            first = await who(sitting)
            asked = asyncio.create_task(sitting.run(asks.spin_for, 0.2, limits=USUAL))
            await asyncio.sleep(0)  # it is asked
            waiting = asyncio.create_task(sandbox.run(payloads.echo, 1))
            assert await asked == first
            assert await waiting == 1
            assert await who(sitting) != first

    async def test_is_there_for_many_who_take_turns(self, sandbox: Sandbox, file: Path):
        async def ask_often(number: int) -> list[object]:
            async with sandbox.sitting(file) as sitting:
                return [await sitting.run(asks.echo, (number, each), limits=USUAL) for each in range(10)]

        async with asyncio.timeout(60):
            answers = await asyncio.gather(*map(ask_often, range(8)))
        assert answers == [[[number, each] for each in range(10)] for number in range(8)]
        assert children_of(zygote()) == []

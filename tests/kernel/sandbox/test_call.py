"""One call: a function by name, plain arguments, a file; its return value, or an error for a mistake of the caller."""

import asyncio
import gc
import os
import sys
from pathlib import Path

import psutil
import pytest

from penstock.kernel.sandbox import wire
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.sandbox.errors import (
    SandboxArgumentsTooLarge,
    SandboxFileUnreadable,
    SandboxLost,
    SandboxNotStarted,
    SandboxUnsupported,
)
from penstock.kernel.sandbox.limits import SandboxLimits
from tests.kernel.sandbox import payloads
from tests.kernel.sandbox.processes import children_of, copies, gone, until, zygote, zygotes

PLAIN = [None, True, 0, -(2**63), 2**64 - 1, 1.5, "", "页 📄", b"\x00\xff", [1, [2, {"a": None}]], {"k": [b"v"]}]


class TestAValue:
    async def test_goes_in_and_comes_back(self, sandbox: Sandbox):
        for value in PLAIN:
            assert await sandbox.run(payloads.echo, value) == value

    async def test_comes_back_as_the_annotated_return_type(self, sandbox: Sandbox):
        page = await sandbox.run(payloads.read_page, 7, "第七页")
        assert page == payloads.read_page(7, "第七页")

    async def test_may_be_as_large_as_its_limit(self, sandbox: Sandbox):
        size, limits = (
            3_000_000,
            SandboxLimits(result_bytes=3_000_005),
        )  # five bytes are MessagePack's header
        assert await sandbox.run(payloads.return_much, size, limits=limits) == bytes(size)

    async def test_of_none_is_a_value(self, sandbox: Sandbox):
        done = asyncio.create_task(sandbox.run(payloads.nothing))
        assert await asyncio.wait_for(done, 20) is None  # type: ignore[func-returns-value]  # none is the point

    async def test_is_random_in_every_child(self, sandbox: Sandbox):
        drawn = [await sandbox.run(payloads.random_number) for _ in range(3)]
        assert len(set(drawn)) == 3


class TestAFile:
    async def test_is_read_in_place_however_large(self, sandbox: Sandbox, tmp_path: Path):
        large = tmp_path / "large"
        with large.open("wb") as file:
            file.truncate(8 * 1024**3)
            file.seek(0, os.SEEK_END)
            file.write(b"the end")
        assert await sandbox.run(payloads.read_tail, 7, file=large) == b"the end"

    async def test_can_be_mapped(self, sandbox: Sandbox, tmp_path: Path):
        small = tmp_path / "small"
        small.write_bytes(b"\x01" * 50)
        assert await sandbox.run(payloads.sum_of_mapped, file=small) == 50

    async def test_that_is_missing_is_named(self, sandbox: Sandbox, tmp_path: Path):
        with pytest.raises(SandboxFileUnreadable, match=r"lost\.pdf.*No such file"):
            await sandbox.run(payloads.sum_of_mapped, file=tmp_path / "lost.pdf")

    @pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
    async def test_that_is_not_regular_is_refused_without_blocking(self, sandbox: Sandbox, tmp_path: Path, make):
        make(tmp_path / "odd")
        with pytest.raises(SandboxFileUnreadable, match="not a regular file"):
            await sandbox.run(payloads.sum_of_mapped, file=tmp_path / "odd")


class TestTheCaller:
    async def test_must_name_a_function_of_a_module(self, sandbox: Sandbox):
        with pytest.raises(TypeError, match="by its name"):
            await sandbox.run(lambda: 1)

    async def test_must_pass_a_function_with_a_return_annotation(self, sandbox: Sandbox):
        with pytest.raises(TypeError, match="has no return annotation"):
            await sandbox.run(payloads.unannotated, 1)

    async def test_passes_large_inputs_as_a_file(self, sandbox: Sandbox):
        fits = b"x" * (wire.MAX_ARGUMENT_BYTES - 10)
        assert await sandbox.run(payloads.echo, fits) == fits
        with pytest.raises(SandboxArgumentsTooLarge):
            await sandbox.run(payloads.echo, b"x" * wire.MAX_ARGUMENT_BYTES)

    @pytest.mark.parametrize("field", ["memory_bytes", "cpu_seconds", "seconds", "result_bytes"])
    def test_sets_limits_above_zero(self, field: str):
        with pytest.raises(ValueError, match="above zero"):
            SandboxLimits(**{field: 0})

    async def test_leaves_no_descriptor_open_after_any_number_of_calls(self, sandbox: Sandbox, tmp_path: Path):
        small = tmp_path / "small"
        small.write_bytes(b"\x01")
        await sandbox.guards()
        gc.collect()  # what earlier tests left must not be closed while we count
        here, there = psutil.Process(), zygote()
        before = here.num_fds(), there.num_fds()
        for _ in range(20):
            await sandbox.run(payloads.sum_of_mapped, file=small)
        assert (here.num_fds(), there.num_fds()) == before


class TestManyAtOnce:
    async def test_run_concurrently_and_get_their_own_results(self, sandbox: Sandbox):
        values = list(range(40))
        assert await asyncio.gather(*(sandbox.run(payloads.echo, each) for each in values)) == values

    async def test_wait_when_the_zygote_cannot_receive_all_requests_at_once(self):
        async with Sandbox(preload=[payloads.__name__], max_children=20) as sandbox:
            values = [bytes([each]) * (wire.MAX_ARGUMENT_BYTES - 10) for each in range(20)]
            assert await asyncio.gather(*(sandbox.run(payloads.echo, each) for each in values)) == values

    async def test_never_exceed_the_limit_of_children(self):
        async with Sandbox(preload=[payloads.__name__], max_children=2) as sandbox:
            await sandbox.guards()
            parent = zygote()
            waiting = [asyncio.create_task(sandbox.run(payloads.hang)) for _ in range(5)]
            await until(lambda: len(children_of(parent)) == 2)
            waiting[0].cancel()  # the third takes its slot
            await until(lambda: waiting[0].done() and len(children_of(parent)) == 2)
            await asyncio.sleep(0.05)  # time for a fourth to start, if it could
            assert len(children_of(parent)) == 2
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)


class TestTheEnd:
    async def test_of_the_waiting_task_kills_its_child(self, sandbox: Sandbox):
        await sandbox.guards()
        parent = zygote()
        task = asyncio.create_task(sandbox.run(payloads.hang_deaf))
        await until(lambda: children_of(parent))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert children_of(parent) == []
        assert await sandbox.run(payloads.echo, 1) == 1

    async def test_by_a_timeout_of_the_caller_kills_its_child(self, sandbox: Sandbox):
        await sandbox.guards()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await sandbox.run(payloads.spin)
        assert children_of(zygote()) == []

    async def test_of_the_sandbox_kills_everything(self):
        sandbox = Sandbox(preload=[payloads.__name__])
        await sandbox.guards()
        parent = zygote()
        command = parent.cmdline()
        calls = [asyncio.create_task(sandbox.run(payloads.hang)) for _ in range(3)]
        await until(lambda: len(children_of(parent)) == 3)
        await sandbox.close()
        assert copies(command) == []
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(end) for end in ends] == [SandboxLost] * 3
        with pytest.raises(SandboxLost, match="closed"):
            await sandbox.run(payloads.nothing)

    async def test_works_when_nothing_was_started(self):
        async with Sandbox() as sandbox:
            assert sandbox is not None
        await sandbox.close()


class TestTheStart:
    async def test_happens_once_for_many_first_calls(self):
        async with Sandbox(preload=[payloads.__name__]) as sandbox:
            found = await asyncio.gather(*(sandbox.run(payloads.ids) for _ in range(4)))
        assert len({parent for _, _, parent in found}) == 1

    async def test_needs_no_preload(self):
        async with Sandbox(readable=[Path(payloads.__file__).parents[3]]) as sandbox:
            assert await sandbox.run(payloads.echo, 1) == 1

    async def test_fails_with_the_reason_when_a_module_is_missing(self):
        async with Sandbox(preload=["penstock.no_such_module"]) as sandbox:
            with pytest.raises(SandboxNotStarted, match="no_such_module"):
                await sandbox.run(payloads.nothing)
            assert zygotes() == []

    async def test_refuses_a_module_that_starts_a_thread(self):
        async with Sandbox(preload=["tests.kernel.sandbox.threaded"]) as sandbox:
            with pytest.raises(SandboxNotStarted, match="starts a thread"):
                await sandbox.guards()

    async def test_that_is_cancelled_leaves_nothing_behind(self):
        sandbox = Sandbox(preload=[payloads.__name__])
        starting = asyncio.create_task(sandbox.guards())
        await until(zygotes)
        command = zygote().cmdline()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert copies(command) == []
        await sandbox.close()

    async def test_is_refused_on_other_systems_than_linux(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(sys, "platform", "darwin")
        async with Sandbox() as sandbox:
            with pytest.raises(SandboxUnsupported, match="darwin"):
                await sandbox.run(payloads.nothing)


async def test_the_zygote_is_gone_after_a_close():
    async with Sandbox(preload=[payloads.__name__]) as sandbox:
        await sandbox.guards()
        pid = zygote().pid
    assert gone(pid)

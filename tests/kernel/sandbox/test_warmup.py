"""The warm-up of a zygote, and what a sandbox can allow on request."""

import errno

import pytest

from penstock.kernel.sandbox.call import Sandbox, Warmup
from penstock.kernel.sandbox.errors import SandboxedFailure, SandboxNotStarted
from tests.kernel.sandbox import payloads, warmup_payloads
from tests.kernel.sandbox.processes import zygote, zygotes


class TestWarmup:
    async def test_runs_once_and_all_children_inherit_it(self):
        warmup = Warmup(function=warmup_payloads.made_ready, arguments=("engine",))
        async with Sandbox(preload=[warmup_payloads.__name__], warmup=warmup) as sandbox:
            made = [await sandbox.run(warmup_payloads.who_made, "engine") for _ in range(3)]
            assert {maker for maker, _ in made} == {zygote().pid}
            assert len({child for _, child in made}) == 3

    async def test_is_not_run_unless_configured(self, sandbox: Sandbox):
        maker, child = await sandbox.run(warmup_payloads.who_made, "engine")
        assert maker == child

    async def test_fails_with_the_reason(self):
        async with Sandbox(
            preload=[warmup_payloads.__name__], warmup=Warmup(function=warmup_payloads.make_badly)
        ) as sandbox:
            with pytest.raises(SandboxNotStarted, match="no model of that name"):
                await sandbox.guards()
            assert zygotes() == []

    async def test_may_not_start_a_thread(self):
        async with Sandbox(
            preload=[warmup_payloads.__name__], warmup=Warmup(function=warmup_payloads.start_a_thread)
        ) as sandbox:
            with pytest.raises(SandboxNotStarted, match=r"start_a_thread.*fork is not safe"):
                await sandbox.guards()

    def test_needs_a_function_of_a_module(self):
        with pytest.raises(TypeError, match="by its name"):
            Sandbox(warmup=Warmup(function=lambda: None))


class TestSocketpair:
    async def test_is_refused_by_default(self, sandbox: Sandbox):
        with pytest.raises(SandboxedFailure, match="PermissionError"):
            await sandbox.run(warmup_payloads.use_a_pair)

    async def test_can_be_allowed_to_libraries_that_need_one(self):
        async with Sandbox(preload=[warmup_payloads.__name__], allow_socketpair=True) as sandbox:
            assert await sandbox.run(warmup_payloads.use_a_pair) == b"hello"

    async def test_is_limited_to_unix_sockets(self):
        async with Sandbox(preload=[warmup_payloads.__name__], allow_socketpair=True) as sandbox:
            assert await sandbox.run(warmup_payloads.pair_of_another_family) == errno.EPERM


class TestNativeLibraries:
    async def test_are_set_to_one_thread_and_no_telemetry(self, sandbox: Sandbox):
        names = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ORT_DISABLE_TELEMETRY", "HOME"]
        assert await sandbox.run(warmup_payloads.environment, names) == ["1", "1", "1", ""]

    async def test_that_would_start_threads_can_be_preloaded(self):
        async with Sandbox(preload=["numpy", "cv2", "onnxruntime", payloads.__name__]) as sandbox:
            assert await sandbox.run(payloads.echo, 1) == 1

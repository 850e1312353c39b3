"""A hundred hostile payloads: nothing is left behind, and the next call is not delayed."""

import asyncio
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable

from penstock.kernel.errors import Invalid
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.sandbox.errors import SandboxTimedOut
from penstock.kernel.sandbox.limits import SandboxLimits
from tests.kernel.sandbox import payloads
from tests.kernel.sandbox.processes import copies, zygote

SEED = 20261116
LIMITS = SandboxLimits(memory_bytes=256 * 1024 * 1024, cpu_seconds=1, seconds=1, result_bytes=1024 * 1024)
DELAY_SECONDS = 0.1

Payload = tuple[Callable[..., object], tuple[object, ...]]
# The slow ones take their whole second, so they come less often.
SLOW: list[Payload] = [
    (payloads.hang, ()),
    (payloads.spin, ()),
    (payloads.hang_deaf, ()),
    (payloads.spin_deaf, ()),
    (payloads.stop_itself, ()),
    (payloads.flood_output, ()),
]
QUICK: list[Payload] = [
    (payloads.allocate, ()),
    (payloads.segfault, ()),
    (payloads.abort, ()),
    (payloads.overflow_the_stack, ()),
    (payloads.vanish, (0,)),
    (payloads.vanish, (9,)),
    (payloads.leave, ()),
    (payloads.recurse, ()),
    (payloads.fork_bomb, ()),
    (payloads.run_a_program, ()),
    (payloads.thread_bomb, ()),
    (payloads.flood_answer, ()),
    (payloads.return_much, (2_000_000,)),
    (payloads.exhaust_descriptors, ()),
]
ROW: list[Payload] = [*SLOW * 2, *QUICK * 6, (payloads.hang, ()), *QUICK[:3]]


async def test_a_hundred_hostile_payloads_leave_nothing_behind_and_do_not_delay_the_next_call(
    sandbox: Sandbox,
):
    assert len(ROW) == 100
    await sandbox.guards()
    parent = zygote()
    command = parent.cmdline()
    usual = statistics.median([await seconds_of_a_call(sandbox) for _ in range(20)])
    next_calls: dict[str, list[float]] = defaultdict(list)
    for function, arguments in random.Random(SEED).sample(ROW, len(ROW)):
        assert isinstance(await end_of(sandbox, function, *arguments), Invalid), function
        next_calls[function.__name__].append(await seconds_of_a_call(sandbox))
        assert copies(command) == [parent], function
    # By the median of each kind, since a busy machine may delay any single call.
    late = {name: took for name, took in next_calls.items() if statistics.median(took) > usual + DELAY_SECONDS}
    assert late == {}


async def test_concurrent_hostile_payloads_do_not_delay_others():
    async with Sandbox(preload=[payloads.__name__], max_children=12) as sandbox:
        await sandbox.guards()
        command = zygote().cmdline()
        usual = statistics.median([await seconds_of_a_call(sandbox) for _ in range(20)])
        hanging = [asyncio.create_task(end_of(sandbox, payloads.hang_deaf)) for _ in range(10)]
        beside = statistics.median([await seconds_of_a_call(sandbox) for _ in range(20)])
        ends = await asyncio.gather(*hanging)
        assert [type(end) for end in ends] == [SandboxTimedOut] * 10
        assert beside < usual + DELAY_SECONDS
        assert copies(command) == [zygote()]


async def end_of(sandbox: Sandbox, function: Callable[..., object], *arguments: object) -> object:
    try:
        return await sandbox.run(function, *arguments, limits=LIMITS)
    except Invalid as error:
        return error


async def seconds_of_a_call(sandbox: Sandbox) -> float:
    began = time.perf_counter()
    assert await sandbox.run(payloads.echo, 1) == 1
    return time.perf_counter() - began

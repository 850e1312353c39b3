"""What `kernel/shielding.py` promises."""

import asyncio

import pytest

from penstock.kernel.shielding import run_shielded


async def cancelled_in_the_middle(work, undo=None) -> bool:
    begun = asyncio.ensure_future(run_shielded(work, undo))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    begun.cancel()
    with pytest.raises(asyncio.CancelledError):
        await begun
    return begun.cancelled()


async def test_what_it_gives_is_given():
    assert await run_shielded(asyncio.sleep(0, "result")) == "result"


async def test_an_error_is_an_error():
    async def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await run_shielded(fails())


async def test_a_cancel_waits_for_the_end_and_what_came_out_is_undone():
    undone: list[str] = []

    async def slow() -> str:
        await asyncio.sleep(0.02)
        return "claimed"

    async def undo(result: str) -> None:
        undone.append(result)

    assert await cancelled_in_the_middle(slow(), undo)
    assert undone == ["claimed"]


async def test_a_cancel_after_a_failure_undoes_nothing():
    async def fails_late() -> str:
        await asyncio.sleep(0.02)
        raise ValueError("no")

    async def undo(result: str) -> None:
        raise AssertionError("nothing came out")

    assert await cancelled_in_the_middle(fails_late(), undo)

"""`retry_while_unavailable` waits for what is down, and raises every other error."""

import asyncio
from functools import partial

import pytest

from penstock.kernel.clock import ManualClock
from penstock.kernel.errors import Invalid, Unavailable
from penstock.kernel.retry import OUTAGE_BACKOFF, retry_while_unavailable
from tests.fakes.blocking_handler import wait_until


class Away:
    """Is away so many times, and then there."""

    def __init__(self, times: int) -> None:
        self.left = times

    def has_left(self, times: int) -> bool:
        return self.left == times

    async def __call__(self) -> str:
        self.left -= 1
        if self.left >= 0:
            raise Unavailable(reason="away")
        return "there"


async def test_a_call_is_retried_while_unavailable(clock: ManualClock):
    away = Away(3)
    doing = asyncio.create_task(retry_while_unavailable(clock, away, warning="nothing is done for now"))
    for left in (2, 1, 0):
        await wait_until(partial(away.has_left, left))
        assert not doing.done()
        clock.advance(seconds=OUTAGE_BACKOFF.max_seconds * 2)
    assert await doing == "there"


async def test_other_errors_are_raised_at_once(clock: ManualClock):
    async def wrong() -> None:
        raise Invalid(reason="wrong")

    with pytest.raises(Invalid):
        await retry_while_unavailable(clock, wrong, warning="nothing is done for now")

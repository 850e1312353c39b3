"""What `clock.py` promises."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from penstock.kernel.clock import ManualClock, SystemClock

START = datetime(2026, 1, 1, tzinfo=UTC)


async def let_others_run() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_the_system_clock_tells_the_time_in_utc():
    before = datetime.now(UTC)
    now = SystemClock().now()
    assert now.tzinfo is UTC
    assert before <= now <= datetime.now(UTC)


async def test_the_system_clock_returns_from_a_sleep():
    loop = asyncio.get_running_loop()
    before = loop.time()
    await SystemClock().sleep(0.01)
    assert loop.time() - before >= 0.009  # the loop may wake one tick of its own clock early


def test_a_manual_clock_stands_still_until_it_is_advanced():
    clock = ManualClock(START)
    assert clock.now() == clock.now() == START
    clock.advance(seconds=90.5)
    assert clock.now() == START + timedelta(seconds=90.5)


def test_a_manual_clock_shows_utc_wherever_it_was_started():
    clock = ManualClock(datetime(2026, 1, 1, 8, tzinfo=timezone(timedelta(hours=8))))
    assert clock.now() == START
    assert clock.now().tzinfo is UTC


def test_a_manual_clock_refuses_to_start_without_a_zone():
    with pytest.raises(ValueError, match="zone"):
        ManualClock(datetime(2026, 1, 1))  # noqa: DTZ001  (the zone is what is missing)


async def test_a_sleeper_wakes_when_its_time_has_come_and_not_before():
    clock = ManualClock(START)
    sleeper = asyncio.create_task(clock.sleep(10))
    await let_others_run()
    for step in (5, 4.9, 0.099999):
        clock.advance(seconds=step)
        await let_others_run()
        assert not sleeper.done()
    clock.advance(seconds=0.000001)
    await let_others_run()
    assert sleeper.done()


async def test_one_advance_wakes_every_sleeper_it_passes():
    clock = ManualClock(START)
    sleepers = [asyncio.create_task(clock.sleep(seconds)) for seconds in (1, 2, 3)]
    await let_others_run()
    clock.advance(seconds=2)
    await let_others_run()
    assert [sleeper.done() for sleeper in sleepers] == [True, True, False]
    clock.advance(seconds=1)
    await let_others_run()
    assert sleepers[2].done()


@pytest.mark.parametrize("seconds", [0, -1])
async def test_a_sleep_of_no_time_returns_at_once(seconds: float):
    await ManualClock(START).sleep(seconds)


async def test_a_sleeper_can_be_cancelled():
    sleeper = asyncio.create_task(ManualClock(START).sleep(10))
    await let_others_run()
    sleeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeper

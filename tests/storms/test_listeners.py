"""Event streams on two servers, disconnected at random: every client gets every event of its own once and in order."""

import pytest

from tests.storms.listeners import Storm, go_deaf, storm

MEGABYTE = 1024 * 1024


@pytest.mark.timeout(400)
async def test_five_hundred_listeners_on_two_servers_hear_everything_once_and_in_order(postgres_url: str):
    size = Storm(listeners=500, events=2000, seconds=8, seed=2026)
    verdict = await storm(postgres_url, size)
    assert verdict.told == size.events
    assert verdict.wrong == []
    assert verdict.odd == []
    assert verdict.cuts > 100, "too few were cut to prove anything"
    assert verdict.dropped > 0, "the deaf listeners were not deaf for long enough to prove anything"
    beside, elsewhere = verdict.wait_seconds
    assert beside < 2 * elsewhere + 1, "some who did not read cost the others time"
    assert max(verdict.grown_bytes) < 64 * MEGABYTE


@pytest.mark.timeout(240)
async def test_memory_stays_flat_while_a_hundred_thousand_events_pass_a_listener_that_does_not_read(postgres_url: str):
    events = 100_000
    deafness = await go_deaf(postgres_url, events=events)
    assert len(deafness.told) == events
    assert deafness.heard_meanwhile == deafness.told
    assert deafness.heard_late == deafness.told
    assert deafness.dropped > events // 2
    assert deafness.grown_bytes < 16 * MEGABYTE, "all of it is more than 20 MB of text, and far more as objects"

"""Relays killed with -9 and frozen under load lose no message and double no effect."""

from pathlib import Path

import pytest

from tests.storms.relay_kills import relay_storm


@pytest.mark.timeout(240)
async def test_killed_relays_lose_and_double_no_message(db_url: str, tmp_path: Path):
    verdict = await relay_storm(db_url, tmp_path, kills=15, freezes=3, seed=2026)
    assert verdict.states == {"sent": verdict.messages}
    assert verdict.wrong_effects == []
    assert verdict.wrong_deliveries == []
    assert (verdict.not_in_sink, verdict.unknown_in_sink) == ([], [])
    assert verdict.sink_repeats > 0  # kills did strike between a sink's work and the mark

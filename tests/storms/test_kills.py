"""Workers killed -9 under load lose nothing and settle nothing twice."""

from pathlib import Path

import pytest

from tests.storms.kills import storm


@pytest.mark.timeout(180)
async def test_killed_workers_lose_no_job_and_settle_none_twice(db_url: str, tmp_path: Path):
    verdict = await storm(db_url, tmp_path, kills=20, freezes=3, seed=2026)
    assert verdict.not_done == 0
    assert verdict.without_effect == 0
    assert verdict.with_two_effects == 0
    assert verdict.wrong_histories == []
    assert verdict.late_workers_refused > 0, "the frozen workers came back too early to be late"

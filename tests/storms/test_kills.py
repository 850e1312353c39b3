"""Workers killed with -9 and frozen under load lose no job and settle none twice; a late worker is refused."""

from pathlib import Path

import pytest

from tests.storms.kills import storm
from tests.storms.late import come_late


@pytest.mark.timeout(180)
async def test_killed_workers_lose_no_job_and_settle_none_twice(db_url: str, tmp_path: Path):
    verdict = await storm(db_url, tmp_path, kills=20, freezes=3, seed=2026)
    assert verdict.not_done == 0
    assert verdict.without_effect == 0
    assert verdict.with_two_effects == 0
    assert verdict.wrong_histories == []


async def test_a_worker_that_was_frozen_and_comes_back_late_is_refused(db_url: str, tmp_path: Path):
    effects, log = await come_late(db_url, tmp_path)
    assert effects == ["second"]
    assert "no longer held" in log or "lost the lease" in log  # refused at the settle, or cancelled by the renewer

"""Whatever happens to clients, every task is done once and nobody holds what another holds."""

from pathlib import Path

import aiohttp
import pytest

from tests.conftest import open_db
from tests.journeys.command import Serving
from tests.journeys.profiles import ADMIN_KEY, Profile
from tests.storms.pullers import LEASE_SECONDS, Storm, judge, plan, storm

SIZE = Storm(tasks=400, clients=5, kills=5, seed=2026)


@pytest.mark.timeout(300)
async def test_every_task_is_done_once_whatever_clients_do(profile: Profile, tmp_path: Path):
    journals = tmp_path / "journals"
    journals.mkdir()
    serving = Serving(**profile.settings, PULL_TIMEOUT=str(LEASE_SECONDS))
    try:
        async with aiohttp.ClientSession(headers={"X-API-Key": ADMIN_KEY}) as session:
            await serving.ready(session)
            await plan(session, serving.url, SIZE.tasks)
            verdict = await storm(session, [serving.url], ADMIN_KEY, journals, SIZE)
    finally:
        serving.stop()
    db = open_db(profile.database_url)
    await judge(db, verdict)
    await db.close()
    assert verdict.not_done == []
    assert verdict.pushed_not_once == []
    assert verdict.held_by_two == []
    assert verdict.taken_from_two == []
    assert verdict.kills == SIZE.kills
    assert verdict.given_back > 0
    assert verdict.refused > 0, "nobody came late, so nothing is proven about latecomers"

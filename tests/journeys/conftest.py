"""What journeys share: a profile to run on, and a client."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.journeys import profiles
from tests.journeys.profiles import Profile


@pytest.fixture(params=["laptop", "scale"])
def profile(request: pytest.FixtureRequest, tmp_path: Path) -> Profile:
    """Every journey that asks for it runs on both. Databases are migrated, which takes longer than most journeys."""
    if request.param == "laptop":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "penstock.db")
        return profiles.laptop(tmp_path)
    engines = [request.getfixturevalue(name) for name in ("postgres_url", "redis_url", "s3_bucket")]
    return profiles.scale(tmp_path, *engines)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """A client."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as opened:
        yield opened

"""What journeys share: a profile to run on, and a client."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.journeys import profiles
from tests.journeys.profiles import Profile


@pytest.fixture(params=["laptop", "scale"])
def profile(request: pytest.FixtureRequest, tmp_path: Path) -> Profile:
    """Every journey that asks for it runs on both."""
    if request.param == "laptop":
        return profiles.laptop(tmp_path)
    engines = [request.getfixturevalue(name) for name in ("postgres_url", "redis_url", "s3_place")]
    return profiles.scale(tmp_path, *engines)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """A client."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as opened:
        yield opened

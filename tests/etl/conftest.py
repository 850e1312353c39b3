"""The room in every set-up that it must work in."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.kernel.clock import ManualClock
from tests.etl.workshop import Grounds, Workshop, open_workshop


@pytest.fixture(params=["sqlite", "scale"])
def grounds(request: pytest.FixtureRequest, tmp_path: Path) -> Grounds:
    """`sqlite`: one file and one folder. `scale`: PostgreSQL, Redis, ARQ and S3. `postgres`: without a Redis."""
    if request.param != "scale":
        return Grounds(database=request.getfixturevalue(f"{request.param}_url"), scratch=tmp_path)
    return Grounds(
        database=request.getfixturevalue("postgres_url"),
        scratch=tmp_path,
        redis=request.getfixturevalue("redis_url"),
        bucket=request.getfixturevalue("s3_place"),
    )


@pytest.fixture
async def shop(grounds: Grounds, clock: ManualClock) -> AsyncIterator[Workshop]:
    """An empty room."""
    async with open_workshop(grounds, clock) as shop:
        yield shop

"""The etl module on the profiles that it supports."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.kernel.clock import ManualClock
from tests.etl.harness import EtlHarness, EtlProfile, open_harness


@pytest.fixture(params=["sqlite", "scale"])
def profile(request: pytest.FixtureRequest, tmp_path: Path) -> EtlProfile:
    """`sqlite`: one file and one folder. `scale`: PostgreSQL, Redis, ARQ and S3. `postgres`: without a Redis."""
    if request.param != "scale":
        return EtlProfile(database=request.getfixturevalue(f"{request.param}_url"), scratch=tmp_path)
    return EtlProfile(
        database=request.getfixturevalue("postgres_url"),
        scratch=tmp_path,
        redis=request.getfixturevalue("redis_url"),
        bucket=request.getfixturevalue("s3_bucket"),
    )


@pytest.fixture
async def harness(profile: EtlProfile, clock: ManualClock) -> AsyncIterator[EtlHarness]:
    """The etl module, without tasks."""
    async with open_harness(profile, clock) as harness:
        yield harness

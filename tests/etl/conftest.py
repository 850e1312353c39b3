"""The etl module on the profiles that it supports."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from penstock.etl import correction_check, rule_validation
from penstock.kernel.clock import ManualClock
from penstock.kernel.sandbox.call import Sandbox
from tests.conftest import open_db
from tests.etl.harness import EtlHarness, EtlProfile, open_harness
from tests.etl.review_client import ReviewClient, open_review_client


@pytest.fixture(params=["sqlite"])
def profile(request: pytest.FixtureRequest, tmp_path: Path) -> EtlProfile:
    """`sqlite`: one file and one folder. `postgres`: without Redis. `scale`: PostgreSQL, Redis, ARQ and S3.

    Tests run on SQLite unless they are marked with one of the profiles of `harness.py`.
    """
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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    """A sandbox for rules and corrections, shared by the tests of a module."""
    async with Sandbox(preload=(*rule_validation.PRELOAD, *correction_check.PRELOAD)) as sandbox:
        yield sandbox


@pytest_asyncio.fixture(loop_scope="module")
async def reviews(db_url: str, clock: ManualClock, tmp_path: Path, sandbox: Sandbox) -> AsyncIterator[ReviewClient]:
    """A review client, in the event loop of the module, where the sandbox runs."""
    db = open_db(db_url, clock)
    async with open_review_client(db, tmp_path, sandbox) as opened:
        yield opened
    await db.close()

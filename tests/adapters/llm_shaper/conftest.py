"""One sandbox for each file of tests, and a study for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from penstock.adapters.disk import DiskBlobs
from penstock.adapters.llm_shaper import PRELOAD
from penstock.kernel.sandbox.call import Sandbox
from tests.adapters.llm_shaper.study import Study


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(preload=(*PRELOAD, "tests.fakes.grounding")) as opened:
        yield opened


@pytest.fixture
def study(sandbox: Sandbox, tmp_path: Path) -> Study:
    return Study(blobs=DiskBlobs(tmp_path / "blobs"), sandbox=sandbox, scratch=tmp_path / "scratch")

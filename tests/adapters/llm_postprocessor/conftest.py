"""One sandbox per file of tests, and a harness per test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from penstock.adapters.disk import DiskBlobs
from penstock.adapters.llm_postprocessor import PRELOAD
from penstock.kernel.sandbox.call import Sandbox
from tests.adapters.llm_postprocessor.harness import LlmHarness


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(preload=(*PRELOAD, "tests.fakes.grounding")) as opened:
        yield opened


@pytest.fixture
def llm_harness(sandbox: Sandbox, tmp_path: Path) -> LlmHarness:
    return LlmHarness(blobs=DiskBlobs(tmp_path / "blobs"), sandbox=sandbox, scratch=tmp_path / "scratch")

"""Fixtures for the provider `mineru`: one sandbox per file of tests, and a harness per test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from penstock.kernel.sandbox.call import Sandbox
from tests.adapters.mineru.harness import PRELOAD, ReaderHarness, harness_in
from tests.fakes.mineru_server import MineruApi, MineruCloud


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(preload=PRELOAD) as sandbox:
        yield sandbox


@pytest.fixture
def harness(sandbox: Sandbox, tmp_path: Path) -> ReaderHarness:
    return harness_in(tmp_path, sandbox)


@pytest_asyncio.fixture(loop_scope="module")
async def cloud() -> AsyncIterator[MineruCloud]:
    async with MineruCloud() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def server() -> AsyncIterator[MineruApi]:
    async with MineruApi() as server:
        yield server

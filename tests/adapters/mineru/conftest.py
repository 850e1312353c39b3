"""What the tests of the provider `mineru` share: one sandbox for a file of tests, and a place of each test's own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from penstock.kernel.sandbox.call import Sandbox
from tests.adapters.mineru.reading import PRELOAD, Place, place_in
from tests.fakes.mineru_server import MineruApi, MineruCloud


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(preload=PRELOAD) as sandbox:
        yield sandbox


@pytest.fixture
def place(sandbox: Sandbox, tmp_path: Path) -> Place:
    return place_in(tmp_path, sandbox)


@pytest_asyncio.fixture(loop_scope="module")
async def cloud() -> AsyncIterator[MineruCloud]:
    async with MineruCloud() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def server() -> AsyncIterator[MineruApi]:
    async with MineruApi() as server:
        yield server

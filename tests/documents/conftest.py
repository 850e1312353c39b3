"""A sandbox for the readers of text and office formats, shared by the tests of a module."""

from collections.abc import AsyncIterator

import pytest_asyncio

from penstock.documents.text.document import PRELOAD
from penstock.kernel.sandbox.call import Sandbox


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(preload=PRELOAD) as sandbox:
        yield sandbox

"""A sandbox that knows the payloads."""

from collections.abc import AsyncIterator

import pytest

from penstock.kernel.sandbox.call import Sandbox
from tests.kernel.sandbox import payloads, warmup_payloads


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(preload=[payloads.__name__, warmup_payloads.__name__]) as sandbox:
        yield sandbox

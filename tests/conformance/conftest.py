"""What the conformance suites share."""

from collections.abc import AsyncIterator, Callable
from typing import Protocol

import pytest


class Closing(Protocol):
    """An implementation of a port that a test opened."""

    async def close(self) -> None:
        """Give its connections back."""
        ...


@pytest.fixture
async def connect(implementation: Callable[[], Closing]) -> AsyncIterator[Callable[[], Closing]]:
    """Opens what `implementation` names again and again, as several processes would."""
    opened: list[Closing] = []

    def open_one() -> Closing:
        opened.append(implementation())
        return opened[-1]

    yield open_one
    for one in opened:
        await one.close()

"""A fake model server, and clients of it that are closed after the test."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack

import pytest

from penstock.adapters.llm import ChatCompletions, ChatConfig, ModelServer
from penstock.kernel.clock import Clock, ManualClock
from penstock.kernel.rate_limits import RateLimits
from tests.adapters.llm.questions import OpenLimits, server_at
from tests.fakes.llm_server import LlmServer
from tests.servers.small_model import SmallModel

Open = Callable[..., ChatCompletions]


@pytest.fixture
async def server() -> AsyncIterator[LlmServer]:
    async with LlmServer() as server:
        yield server


@pytest.fixture
def limits() -> OpenLimits:
    return OpenLimits()


@pytest.fixture
async def opened(server: LlmServer, limits: OpenLimits, clock: ManualClock) -> AsyncIterator[Open]:
    """Opens clients, of the fake server by default; keywords are those of `ChatConfig`."""
    async with AsyncExitStack() as closing:

        def open_one(
            *servers: ModelServer, at: RateLimits = limits, by: Clock = clock, **terms: object
        ) -> ChatCompletions:
            known = servers or [server_at(server.base_url)]
            chat = ChatCompletions(known, ChatConfig(**terms), limits=at, clock=by)  # type: ignore[arg-type]  # fields of ChatConfig
            closing.push_async_callback(chat.close)
            return chat

        yield open_one


@pytest.fixture
def chat(opened: Open) -> ChatCompletions:
    return opened()


@pytest.fixture(scope="session")
def small_model() -> Iterator[SmallModel]:
    """A real model, started once."""
    with SmallModel.start() as model:
        yield model

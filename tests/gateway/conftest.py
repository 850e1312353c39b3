"""The gateway behind real servers: on a laptop, and at scale with two server processes' worth of runtimes."""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import aiohttp
import msgspec
import pytest

from penstock.cli.process import ensure_admin_key
from penstock.settings.environment import load
from penstock.web.app import build_app
from penstock.wiring import Runtime, open_runtime
from tests.gateway.tus_client import TusClient
from tests.journeys import profiles
from tests.journeys.profiles import ADMIN_KEY, Profile
from tests.servers.http import serving

on_both_profiles = pytest.mark.parametrize("profile", ["laptop", "scale"], indirect=True)
SETTINGS = {"GW_TUS_MAX_SIZE_GB": "0.1", "GW_MAX_OPEN_UPLOADS": "20"}


@pytest.fixture(params=["laptop"])
def profile(request: pytest.FixtureRequest, tmp_path: Path) -> Profile:
    """A laptop, unless a test is marked with `on_both_profiles`."""
    if request.param == "laptop":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "penstock.db")
        return profiles.laptop(tmp_path)
    engines = [request.getfixturevalue(name) for name in ("postgres_url", "redis_url", "s3_bucket")]
    return profiles.scale(tmp_path, *engines)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(timeout=timeout) as opened:
        yield opened


class Servers:
    """Server processes of one installation; each has a runtime of its own."""

    def __init__(self, profile: Profile, session: aiohttp.ClientSession, stack: AsyncExitStack) -> None:
        self._profile = profile
        self._session = session
        self._stack = stack
        self.runtimes: list[Runtime] = []

    async def start(self, **settings: str) -> TusClient:
        """Start one more; returns a client of it with the admin's key."""
        loaded = load(self._profile.settings | SETTINGS | settings)
        runtime = await self._stack.enter_async_context(open_runtime(loaded))
        await ensure_admin_key(runtime)
        self.runtimes.append(runtime)
        url = await self._stack.enter_async_context(serving(build_app(runtime)))
        return TusClient(session=self._session, url=url, key=ADMIN_KEY)

    async def work(self) -> None:
        """Run the jobs of the gateway that wait."""
        runtime = self.runtimes[0]
        while await runtime.relay.deliver():
            pass
        await runtime.workers(runtime.modules.jobs, ["gateway"]).run_until_empty()


@pytest.fixture
async def servers(profile: Profile, session: aiohttp.ClientSession) -> AsyncIterator[Servers]:
    async with AsyncExitStack() as stack:
        yield Servers(profile, session, stack)


@pytest.fixture
async def tus(servers: Servers) -> TusClient:
    """The admin at the only server."""
    return await servers.start()


@pytest.fixture
def new_user(tus: TusClient, session: aiohttp.ClientSession) -> Callable[[int], Awaitable[TusClient]]:
    """Makes a client with the key of another user."""

    async def make(user_id: int) -> TusClient:
        wanted = {"name": f"user {user_id}", "scope": "write", "userId": user_id}
        async with session.post(f"{tus.url}/api/v1/api-keys", json=wanted, headers={"X-API-Key": ADMIN_KEY}) as answer:
            made = msgspec.json.decode(await answer.read())
        return replace(tus, key=made["data"]["key"])

    return make

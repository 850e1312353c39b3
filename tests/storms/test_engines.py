"""Redis killed, flushed and paused, PostgreSQL killed, S3 down: nothing is lost or duplicated, and health shows it.

The servers are the storm's own; the API is `penstock serve` twice, the workers are two processes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest

from penstock.settings import Settings
from penstock.wiring import Runtime, open_runtime
from tests.journeys.command import Serving
from tests.servers.postgres import PostgresServer
from tests.servers.seaweed import S3Server
from tests.servers.valkey import ValkeyServer
from tests.storms import engines, processes

JOBS = 150
SEEN_SECONDS = 60  # for health to see what happened
DONE_SECONDS = 90

pytestmark = pytest.mark.timeout(300)


class Scale:
    """Servers of our own and the settings that lead to them."""

    def __init__(self, postgres: PostgresServer, redis: ValkeyServer, s3: S3Server, folder: Path) -> None:
        self.postgres, self.redis, self.s3 = postgres, redis, s3
        bucket = s3.bucket("storm")
        self.settings = Settings(
            data_dir=folder,
            database_url=postgres.url("storm"),
            redis_url=redis.url,
            blobs_url=f"s3://{bucket}/storm",
            aws_access_key_id=s3.access_key,
            aws_secret_access_key=s3.secret_key,
            aws_region=s3.region,
            aws_endpoint_url=s3.endpoint,
            lease_seconds=5,
        )


@pytest.fixture
def scale(tmp_path: Path) -> Iterator[Scale]:
    with PostgresServer.start() as postgres, ValkeyServer.start(appendonly=True) as redis, S3Server.start() as s3:
        postgres.create_database("storm")
        found = Scale(postgres, redis, s3, tmp_path)
        engines.migrate_all(found.settings)
        yield found


@pytest.fixture
async def runtime(scale: Scale) -> AsyncIterator[Runtime]:
    async with open_runtime(scale.settings) as opened:
        await engines.make_table(opened.db)
        keeping = asyncio.create_task(opened.relay.run())
        yield opened
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


@pytest.fixture
def serving(scale: Scale, runtime: Runtime) -> Iterator[list[Serving]]:
    servers = [Serving("--no-workers", **engines.as_environment(scale.settings)) for _ in range(2)]
    yield servers
    for server in servers:
        server.kill()


@pytest.fixture
def workers(scale: Scale, runtime: Runtime) -> Iterator[None]:
    started = [processes.start(engines.work, scale.settings) for _ in range(2)]
    yield
    for process in started:
        processes.kill(process)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as opened:
        yield opened


async def until_health(session: aiohttp.ClientSession, servers: list[Serving], part: str, *, ok: bool) -> None:
    """Every server's health says this of a part, and as a whole."""
    async with asyncio.timeout(SEEN_SECONDS):
        for server in servers:
            while await health(session, server, part) != (ok, 200 if ok else 503):  # noqa: ASYNC110
                await asyncio.sleep(0.1)  # the server is another process


async def health(session: aiohttp.ClientSession, server: Serving, part: str) -> tuple[bool, int]:
    async with session.get(f"{server.url}/api/v1/health") as answer:
        return (await answer.json())["checks"][part]["ok"], answer.status


async def until_done(runtime: Runtime, least: int) -> None:
    async with asyncio.timeout(DONE_SECONDS):
        while await engines.count_done(runtime.db) < least:  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # the workers are other processes


async def storm(scale: Scale, runtime: Runtime, strike: Callable[[], object], *, at: int) -> None:
    """Add jobs, let some be done, strike, and add the rest."""
    await engines.add_jobs(runtime, range(JOBS // 2))
    await until_done(runtime, at)
    strike()


async def end_well(runtime: Runtime) -> None:
    await engines.add_jobs(runtime, range(JOBS // 2, JOBS))
    await until_done(runtime, JOBS)
    assert await engines.wrongs(runtime, JOBS) == {}


@pytest.mark.usefixtures("workers")
class TestStorms:
    async def test_redis_is_killed_and_comes_back(self, scale: Scale, runtime: Runtime, serving, session):
        await ready(serving, session)
        await storm(scale, runtime, scale.redis.kill, at=10)
        await until_health(session, serving, "redis", ok=False)
        scale.redis.start_again()
        await until_health(session, serving, "redis", ok=True)
        await end_well(runtime)

    async def test_redis_forgets_everything(self, scale: Scale, runtime: Runtime):
        await storm(scale, runtime, scale.redis.flush, at=10)
        await end_well(runtime)

    async def test_redis_hangs_for_a_while(self, scale: Scale, runtime: Runtime, serving, session):
        await ready(serving, session)
        await storm(scale, runtime, scale.redis.pause, at=10)
        await until_health(session, serving, "redis", ok=False)
        scale.redis.resume()
        await until_health(session, serving, "redis", ok=True)
        await end_well(runtime)

    async def test_postgres_is_killed_and_comes_back(self, scale: Scale, runtime: Runtime, serving, session):
        await ready(serving, session)
        await storm(scale, runtime, scale.postgres.kill, at=10)
        await until_health(session, serving, "database", ok=False)
        scale.postgres.start_again()
        await until_health(session, serving, "database", ok=True)
        await end_well(runtime)

    async def test_the_object_store_is_gone_for_a_while(self, scale: Scale, runtime: Runtime, serving, session):
        await ready(serving, session)
        await storm(scale, runtime, scale.s3.kill, at=10)
        await until_health(session, serving, "blobs", ok=False)
        scale.s3.start_again()
        await until_health(session, serving, "blobs", ok=True)
        await end_well(runtime)


async def ready(servers: list[Serving], session: aiohttp.ClientSession) -> None:
    for server in servers:
        await server.ready(session)

"""Maximum of model calls in any second, by four workers that call as fast as they may. The reference is the rate limit.

The server is a stub that notes when each call arrives. Every second counts, wherever it begins, so the figure is the
most calls in any window of one second. Half of the workers ask a model that refuses the first response format, since
such calls count too. Rates are kept in each of the engines that wiring may choose.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from bench import databases
from bench.comparison import ROUNDS, Finding
from penstock.adapters.llm import DEFAULT, ChatCompletions, ChatConfig, ModelServer
from penstock.adapters.redis.client import RedisClient
from penstock.adapters.redis.rate_limits import RedisRateLimits
from penstock.documents.chat_model import ChatMessage, ChatRequest
from penstock.kernel.clock import SystemClock
from penstock.kernel.db import Db
from penstock.kernel.fallback_limits import FallbackLimits
from penstock.kernel.rate_limits import RateLimits, SqlRateLimits
from tests.conftest import open_db
from tests.fakes.blocking_handler import wait_until
from tests.fakes.llm_server import LlmServer
from tests.servers.valkey import ValkeyServer
from tests.storms import processes

WORKERS, ASKERS = 4, 4
LIMIT = 10.0  # calls per second
SECONDS = 8.0
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.05
GO = "go"
QUESTION = ChatRequest(messages=(ChatMessage(role="user", text="What is it?"),), schema={"type": "object"})


def run() -> list[Finding]:
    """Three rounds on each engine."""
    with databases.postgres() as server, databases.folder() as folder, ValkeyServer.start() as redis:
        asyncio.run(databases.new_database(server, "llm_rate"))
        sqlite_url, postgres_url = f"sqlite:///{folder / 'llm_rate.db'}", server.url("llm_rate")
        asyncio.run(databases.migrated(sqlite_url))
        return [
            _measured("SQLite", sqlite_url),
            _measured("PostgreSQL", postgres_url),
            _measured("PostgreSQL and Redis", postgres_url, redis.url),
        ]


def _measured(engine: str, database_url: str, redis_url: str | None = None) -> Finding:
    """The worst round counts: the limit must never be exceeded."""
    rounds = [asyncio.run(_arrivals(database_url, redis_url)) for _ in range(ROUNDS)]
    busiest = sorted(most_in_a_second(arrivals) for arrivals in rounds)
    rates = [(len(arrivals) - 1) / (arrivals[-1] - arrivals[0]) for arrivals in rounds]
    found = Finding(
        what=f"most calls in any second, {WORKERS} workers, {engine}",
        unit="calls",
        ours=busiest[-1],
        reference=LIMIT,
        ratio=busiest[-1] / LIMIT,
        spread=(busiest[0] / LIMIT, busiest[-1] / LIMIT),
        at_most=1.0,
    )
    return found.noted(calls_a_second_on_average=sum(rates) / ROUNDS, calls=sum(map(len, rounds)))


def most_in_a_second(arrivals: Sequence[float]) -> int:
    """The maximum number within any second."""
    first, most = 0, 0
    for last, at in enumerate(arrivals):
        while at - arrivals[first] >= 1:
            first += 1
        most = max(most, last - first + 1)
    return most


async def _arrivals(database_url: str, redis_url: str | None) -> list[float]:
    """Arrival times of the calls of one round. Workers begin together, after all have started."""
    async with LlmServer() as server:
        with databases.folder() as folder:
            models = ["good", "no-json-schema"] * (WORKERS // 2)
            places = [(server.base_url, model, database_url, redis_url) for model in models]
            workers = [processes.start(work, *place, str(folder / str(n))) for n, place in enumerate(places)]
            await _looked_for(lambda: len(list(folder.iterdir())) == WORKERS)
            (folder / GO).touch()
            await _looked_for(partial(_all_ended, workers))
        return sorted(call.at for call in server.calls)


async def _looked_for(condition: Callable[[], bool]) -> None:
    """Poll a condition that other processes fulfil."""
    await wait_until(condition, seconds=PATIENCE_SECONDS, every_seconds=POLL_SECONDS)


def _all_ended(workers: Sequence[ForkServerProcess]) -> bool:
    assert not any(worker.exitcode for worker in workers), "a worker died of an error"
    return not any(worker.is_alive() for worker in workers)


def work(base_url: str, model: str, database_url: str, redis_url: str | None, ready: str) -> None:
    """Main function of a worker process."""
    asyncio.run(_work(ModelServer(name=DEFAULT, base_url=base_url, model=model), database_url, redis_url, Path(ready)))


async def _work(server: ModelServer, database_url: str, redis_url: str | None, ready: Path) -> None:
    clock = SystemClock()
    db, link = open_db(database_url, clock), RedisClient(redis_url) if redis_url else None
    limits = _limits(db, link)
    chat = ChatCompletions([server], ChatConfig(calls_per_second=LIMIT, concurrency=ASKERS), limits=limits, clock=clock)
    ready.touch()
    await _looked_for(ready.with_name(GO).exists)
    end = time.monotonic() + SECONDS
    await asyncio.gather(*(_ask_on(chat, end) for _ in range(ASKERS)))
    await chat.close()
    if link is not None:
        await link.close()
    await db.close()


def _limits(db: Db, link: RedisClient | None) -> RateLimits:
    engine = RedisRateLimits(link, db.clock, SqlRateLimits(db)) if link else SqlRateLimits(db)
    return FallbackLimits(engine, clock=db.clock)


async def _ask_on(chat: ChatCompletions, end: float) -> None:
    while time.monotonic() < end:
        await chat.complete(QUESTION)

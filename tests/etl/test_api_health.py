"""GET /health of the etl module."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from penstock.adapters.disk import DiskBlobs
from penstock.kernel.blobs import BlobsUnavailable
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.errors import Unavailable
from penstock.kernel.processes import Heartbeat, ProcessKind
from tests.conftest import open_db
from tests.etl.api_client import EtlClient, client_with, open_client
from tests.etl.harness import on_sqlite


class BlobsThatAreAway(DiskBlobs):
    """A blob store that is unavailable."""

    async def check(self) -> None:
        raise BlobsUnavailable(reason="not mounted")


pytestmark = on_sqlite


@pytest.fixture
async def client(db: Db, tmp_path: Path) -> AsyncIterator[EtlClient]:
    async with open_client(db, tmp_path) as opened:
        yield opened


async def beat(db: Db, *, owner: str, modules: list[str]) -> None:
    await Heartbeat(db, owner=owner, kind=ProcessKind.WORK, modules=modules, version="1").beat()


async def test_it_counts_what_waits_and_who_works(client: EtlClient, clock: ManualClock):
    await beat(client.deps.db, owner="old", modules=["etl"])
    clock.advance(seconds=60)
    await beat(client.deps.db, owner="one", modules=["", "etl"])
    await beat(client.deps.db, owner="other", modules=["tasks"])
    await client.submit()
    answer = await client.call("GET", "/health")
    assert answer.status == 200
    assert answer.json == {
        "status": "ok",
        "queue_depth": 1,
        "queue_size": 1000,
        "workers": 1,
        "redis": "unused",
        "database": "ok",
        "object_store": "ok",
    }


async def test_without_workers_it_is_degraded_and_still_serves(client: EtlClient):
    answer = await client.call("GET", "/health")
    assert (answer.status, answer.json["status"], answer.json["workers"]) == (200, "degraded", 0)


async def ping() -> str:
    return "PONG"


async def no_ping() -> str:
    raise Unavailable(reason="nobody answers")


@pytest.mark.parametrize(("asked", "status", "word"), [(ping, 200, "ok"), (no_ping, 503, "unwell")])
async def test_redis_is_looked_at_where_it_is_used(client: EtlClient, asked: Callable[[], str], status: int, word: str):
    answer = await client_with(client.deps, ping_redis=asked).call("GET", "/health")
    assert (answer.status, answer.json["redis"]) == (status, word)


async def test_a_store_that_is_away_is_unwell(client: EtlClient, tmp_path: Path):
    answer = await client_with(client.deps, blobs=BlobsThatAreAway(tmp_path / "none")).call("GET", "/health")
    assert (answer.status, answer.json["status"], answer.json["object_store"]) == (503, "unwell", "unwell")
    assert "mounted" not in answer.body.decode()


async def test_a_database_that_is_away_is_unwell(client: EtlClient, tmp_path: Path, clock: ManualClock):
    away = open_db(f"sqlite:///{tmp_path}/no/such/folder.db", clock)
    answer = await client_with(client.deps, db=away).call("GET", "/health")
    await away.close()
    assert (answer.status, answer.json["database"], answer.json["queue_depth"]) == (503, "unwell", None)

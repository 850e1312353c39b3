"""How the room tells of itself."""

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
from tests.etl.asking import Room, open_room, room_of


class BlobsThatAreAway(DiskBlobs):
    """A store that nobody can reach."""

    async def check(self) -> None:
        raise BlobsUnavailable(reason="not mounted")


@pytest.fixture
async def room(db: Db, tmp_path: Path) -> AsyncIterator[Room]:
    async with open_room(db, tmp_path) as opened:
        yield opened


async def beat(db: Db, *, owner: str, modules: list[str]) -> None:
    await Heartbeat(db, owner=owner, kind=ProcessKind.WORK, modules=modules, version="1").beat()


async def test_it_counts_what_waits_and_who_works(room: Room, clock: ManualClock):
    await beat(room.tools.db, owner="old", modules=["etl"])
    clock.advance(seconds=60)
    await beat(room.tools.db, owner="one", modules=["", "etl"])
    await beat(room.tools.db, owner="other", modules=["tasks"])
    await room.submit()
    answer = await room.call("GET", "/health")
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


async def test_without_workers_it_is_degraded_and_still_serves(room: Room):
    answer = await room.call("GET", "/health")
    assert (answer.status, answer.json["status"], answer.json["workers"]) == (200, "degraded", 0)


async def ping() -> str:
    return "PONG"


async def no_ping() -> str:
    raise Unavailable(reason="nobody answers")


@pytest.mark.parametrize(("asked", "status", "word"), [(ping, 200, "ok"), (no_ping, 503, "unwell")])
async def test_redis_is_looked_at_where_it_is_used(room: Room, asked: Callable[[], str], status: int, word: str):
    answer = await room_of(room.tools, ping_redis=asked).call("GET", "/health")
    assert (answer.status, answer.json["redis"]) == (status, word)


async def test_a_store_that_is_away_is_unwell(room: Room, tmp_path: Path):
    answer = await room_of(room.tools, blobs=BlobsThatAreAway(tmp_path / "none")).call("GET", "/health")
    assert (answer.status, answer.json["status"], answer.json["object_store"]) == (503, "unwell", "unwell")
    assert "mounted" not in answer.body.decode()


async def test_a_database_that_is_away_is_unwell(room: Room, tmp_path: Path, clock: ManualClock):
    away = open_db(f"sqlite:///{tmp_path}/no/such/folder.db", clock)
    answer = await room_of(room.tools, db=away).call("GET", "/health")
    await away.close()
    assert (answer.status, answer.json["database"], answer.json["queue_depth"]) == (503, "unwell", None)

"""Health tells the truth, quickly, to anybody, and gives nothing away."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from sqlalchemy import text

from penstock.adapters.disk import DiskBlobs
from penstock.adapters.redis.link import RedisLink
from penstock.kernel.blobs import BlobsUnavailable
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.errors import Unavailable
from penstock.kernel.migrations import migrate
from penstock.kernel.processes import Heartbeat, ProcessKind
from penstock.kernel.queue import NewJob, Queue
from penstock.kernel.scheduler import PeriodicTask, Scheduler
from penstock.settings import Settings
from penstock.web import probes
from penstock.web.app import build_app
from penstock.web.health import FRESH_SECONDS, PATIENCE_SECONDS, Checkup, Finding, Probe
from penstock.wiring import Runtime, open_runtime
from tests.conftest import open_db
from tests.kernel.http.asking import ask
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyServer


async def found(probe: Probe) -> Any:
    """What health says of one part."""
    return (await Checkup([probe], version="1").everything()).checks[probe.name]


async def said(probe: Probe) -> tuple[bool, str]:
    check = await found(probe)
    return check.ok, check.detail


class StuckBreaker:
    """A breaker that is open."""

    name = "redis"
    open = True
    reason = "no answer came in time"


class BlobsThatAreAway(DiskBlobs):
    """A store that says where it is when it fails."""

    async def check(self) -> None:
        raise BlobsUnavailable(reason="s3.internal:9000 refused AKIAIOSFODNN7EXAMPLE")


async def hang() -> Finding:
    await asyncio.Event().wait()
    return Finding()


class TestTheRoute:
    async def test_a_fresh_house_is_well_part_by_part(self, house: Runtime):
        answer = await ask(build_app(house), "GET", "/api/v1/health")
        parts = ["database", "migrations", "blobs", "disk", "workers", "rooms", "duties", "breakers", "console"]
        assert answer.status == 200
        assert list(answer.json["checks"]) == parts
        assert all(answer.json["checks"][part]["ok"] for part in parts if part != "workers")
        assert answer.json["checks"]["console"]["detail"] == "this build has no console"

    async def test_a_needed_part_that_is_unwell_makes_it_503(self, house: Runtime, tmp_path: Path):
        answer = await ask(build_app(replace(house, blobs=BlobsThatAreAway(tmp_path))), "GET", "/api/v1/health")
        assert (answer.status, answer.json["status"]) == (503, "unwell")
        assert answer.json["checks"]["blobs"] == {
            "ok": False,
            "needed": True,
            "detail": "does not answer as it should",
        }
        assert b"s3.internal" not in answer.body

    async def test_another_part_only_degrades_it(self, house: Runtime):
        answer = await ask(build_app(house), "GET", "/api/v1/health")
        assert (answer.status, answer.json["status"]) == (200, "degraded")
        workers = answer.json["checks"]["workers"]
        assert workers == {"ok": False, "needed": False, "detail": "nobody takes up jobs"}

    async def test_redis_is_looked_at_where_there_is_one(self, settings: Settings, redis_url: str):
        async with open_runtime(replace(settings, redis_url=redis_url)) as house:
            answer = await ask(build_app(house), "GET", "/api/v1/health")
        assert answer.json["checks"]["redis"] == {"ok": True, "needed": True, "detail": ""}

    async def test_ready_asks_for_the_database_alone_and_not_while_stopping(self, house: Runtime, tmp_path: Path):
        app = build_app(replace(house, blobs=BlobsThatAreAway(tmp_path)))
        ready = await ask(app, "GET", "/readyz")
        assert (ready.status, ready.json) == (200, {"status": "ready"})
        app.state.under_way.stopping = True
        stopping = await ask(app, "GET", "/readyz")
        assert (stopping.status, stopping.json) == (503, {"status": "stopping"})
        assert (await ask(app, "GET", "/livez")).status == 200

    async def test_figures_are_shown_to_anybody(self, house: Runtime):
        app = build_app(house)
        await ask(app, "GET", "/livez")
        answer = await ask(app, "GET", "/metrics")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert b'penstock_http_requests_total{method="GET",route="/livez",status="200"} 1.0' in answer.body


class TestCheckup:
    async def test_a_part_that_hangs_is_given_up_on_and_holds_up_no_other(self):
        async def well() -> Finding:
            return Finding(detail="fine")

        checkup = Checkup(
            [Probe(name="silent", look=hang), Probe(name="silent too", look=hang), Probe(name="well", look=well)],
            version="1",
        )
        began = monotonic()
        health = await checkup.everything()
        assert PATIENCE_SECONDS <= monotonic() - began < 2 * PATIENCE_SECONDS
        assert {name: check.detail for name, check in health.checks.items()} == {
            "silent": "no answer in time",
            "silent too": "no answer in time",
            "well": "fine",
        }

    async def test_a_flood_of_questions_is_one_look(self):
        looks = 0

        async def count() -> Finding:
            nonlocal looks
            looks += 1
            return Finding()

        checkup = Checkup([Probe(name="counted", look=count)], version="1")
        await asyncio.gather(*(checkup.everything() for _ in range(1000)))
        assert looks == 1

    async def test_a_probe_with_a_bug_is_one_unwell_part_and_a_line_in_the_log(self, caplog: pytest.LogCaptureFixture):
        async def bug() -> Finding:
            raise KeyError("oops")

        checkup = Checkup([Probe(name="odd", look=bug)], version="1")
        assert (await checkup.everything()).checks["odd"].detail == "could not be looked at"
        assert "odd is unwell: KeyError('oops')" in caplog.text

    async def test_the_log_hears_of_a_change_and_not_of_every_look(self, caplog: pytest.LogCaptureFixture):
        async def away() -> Finding:
            raise Unavailable(reason="gone")

        caplog.set_level(logging.WARNING)
        checkup = Checkup([Probe(name="odd", look=away)], version="1")
        for _ in range(5):
            await checkup._see(checkup._probes["odd"])
        assert caplog.text.count("odd is unwell") == 1


class TestDatabase:
    async def test_it_is_well_when_it_answers_and_is_migrated(self, db: Db):
        assert await said(probes.database(db)) == (True, "")
        assert await said(probes.migrations(db)) == (True, "")

    async def test_steps_to_take_are_named(self, tmp_path: Path):
        db = open_db(f"sqlite:///{tmp_path / 'bare.db'}")
        ok, detail = await said(probes.migrations(db))
        assert not ok
        assert detail.startswith("steps to take: 0001")
        await db.close()

    async def test_a_database_that_is_newer_is_named(self, db: Db):
        async with db.tx() as tx:
            await tx.conn.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        assert await said(probes.migrations(db)) == (False, "newer than this program")

    async def test_where_it_is_stays_untold(self, caplog: pytest.LogCaptureFixture):
        db = open_db("postgresql://me:hunter2@127.0.0.1:1/secret_name")
        assert await said(probes.database(db)) == (False, "cannot be reached")
        await db.close()

    @pytest.mark.timeout(120)
    async def test_a_paused_database_cannot_hang_it_and_is_seen_when_it_is_back(self):
        with PostgresServer.start() as postgres:
            postgres.create_database("paused")
            db = open_db(postgres.url("paused"))
            await migrate(db)
            checkup = Checkup([probes.database(db), probes.migrations(db)], version="1")
            assert await checkup.is_ready()
            postgres.pause()
            began = monotonic()
            while await checkup.is_ready():  # noqa: ASYNC110  (what was seen before is kept for a second)
                await asyncio.sleep(0.05)
            assert monotonic() - began < FRESH_SECONDS + 2 * PATIENCE_SECONDS
            postgres.resume()
            async with asyncio.timeout(60):
                while not await checkup.is_ready():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            await db.close()


class TestRedis:
    @pytest.mark.timeout(120)
    async def test_a_paused_redis_cannot_hang_it_and_is_seen_when_it_is_back(self):
        with ValkeyServer.start() as valkey:
            link = RedisLink(valkey.url)

            async def ping() -> object:
                return await link.call("PING")

            checkup = Checkup([probes.redis(ping)], version="1")
            assert (await checkup.everything()).status == "ok"
            valkey.pause()
            began = monotonic()
            while (await checkup.everything()).status == "ok":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert monotonic() - began < FRESH_SECONDS + 2 * PATIENCE_SECONDS
            valkey.resume()
            async with asyncio.timeout(60):
                while (await checkup.everything()).status != "ok":  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            await link.close()


class TestBlobsAndOthers:
    async def test_what_is_left_alone_is_named(self):
        told = "left alone: redis (no answer came in time)"
        assert await said(probes.breakers([StuckBreaker()])) == (False, told)
        assert await said(probes.breakers([])) == (True, "")

    async def test_a_store_that_answers_is_well(self, tmp_path: Path):
        assert await said(probes.blobs(DiskBlobs(tmp_path))) == (True, "")

    async def test_what_a_store_says_stays_untold(self, tmp_path: Path):
        assert await said(probes.blobs(BlobsThatAreAway(tmp_path))) == (False, "does not answer as it should")

    @pytest.mark.parametrize(
        ("total", "free", "ok"),
        [
            (10_000_000_000, 100_000_000, True),
            (10_000_000_000, 99_999_999, False),
            (1_000_000_000_000, 9_999_999_999, False),
            (1_000_000_000_000, 10_000_000_000, True),
        ],
    )
    def test_a_disk_is_unwell_under_100_megabytes_or_one_per_cent(self, total: int, free: int, ok: bool):
        assert probes.is_room(free=free, total=total) is ok

    async def test_a_folder_that_is_still_to_be_made_is_on_the_disk_above_it(self, tmp_path: Path):
        assert (await said(probes.disk(tmp_path / "not" / "yet")))[0]


class TestWork:
    async def test_workers_are_those_who_take_up_jobs(self, db: Db, clock: ManualClock):
        assert await said(probes.workers(db)) == (False, "nobody takes up jobs")
        await Heartbeat(db, owner="api", kind=ProcessKind.SERVE, rooms=[], version="1").beat()
        assert await said(probes.workers(db)) == (False, "nobody takes up jobs")
        await Heartbeat(db, owner="worker", kind=ProcessKind.WORK, rooms=["etl"], version="1").beat()
        assert await said(probes.workers(db)) == (True, "1 alive")
        clock.advance(seconds=31)
        assert await said(probes.workers(db)) == (False, "nobody takes up jobs")

    async def test_a_room_with_work_that_nobody_works_in_is_named(self, db: Db, clock: ManualClock):
        async with db.tx() as tx:
            await Queue().enqueue(tx, NewJob(kind="k", room="etl"), NewJob(kind="k", room="tasks"), NewJob(kind="k"))
        assert await said(probes.rooms(db)) == (True, "")
        clock.advance(seconds=11)
        await Heartbeat(db, owner="worker", kind=ProcessKind.WORK, rooms=["tasks"], version="1").beat()
        assert await said(probes.rooms(db)) == (False, "work waits and nobody works in: the default room, etl")
        await Heartbeat(db, owner="other", kind=ProcessKind.WORK, rooms=["etl", ""], version="1").beat()
        assert await said(probes.rooms(db)) == (True, "")

    async def test_a_duty_that_failed_is_named_when_it_is_one_of_ours(self, db: Db):
        async def fail() -> None:
            raise Unavailable(reason="postgresql://me:hunter2@db")

        keeper = Scheduler(db, [PeriodicTask(name="sweep", every_seconds=60, run=fail)], owner="o")
        await keeper.enrol()
        await keeper.tick()
        assert await said(probes.periodic_tasks(db, keeper.names)) == (False, "failed last time: sweep")
        assert await said(probes.periodic_tasks(db, frozenset())) == (True, "")

"""Health checks: correct, fast, public, and without leaking addresses or names."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from sqlalchemy import text

from penstock.access import keys
from penstock.adapters.disk import DiskBlobs
from penstock.adapters.redis.client import RedisClient
from penstock.adapters.s3 import S3Blobs, S3Bucket
from penstock.kernel.blobs import BlobsUnavailable
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.kernel.errors import Unavailable
from penstock.kernel.migrations import migrate
from penstock.kernel.processes import Heartbeat, ProcessKind
from penstock.kernel.queue import JobQueue, NewJob
from penstock.kernel.scheduler import PeriodicTask, Scheduler
from penstock.settings import Settings
from penstock.web import health, probes
from penstock.web.app import build_app
from penstock.web.health import CACHE_SECONDS, TIMEOUT_SECONDS, HealthChecker, Probe, ProbeResult
from penstock.wiring import Runtime, open_runtime
from tests.asgi import send_request
from tests.conftest import open_db
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyServer


async def found(probe: Probe) -> Any:
    """The check of one probe."""
    return (await HealthChecker([probe], version="1").check_all()).checks[probe.name]


async def result_of(probe: Probe) -> tuple[bool, str]:
    check = await found(probe)
    return check.ok, check.detail


class OpenBreaker:
    """An open circuit breaker."""

    name = "redis"
    open = True
    reason = "no answer came in time"


class UnavailableBlobs(DiskBlobs):
    """A store whose error names its address."""

    async def check(self) -> None:
        raise BlobsUnavailable(reason="s3.internal:9000 refused AKIAIOSFODNN7EXAMPLE")


async def hang() -> ProbeResult:
    await asyncio.Event().wait()
    return ProbeResult()


@pytest.fixture
def patient_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """No check times out, however busy the machine is."""
    monkeypatch.setattr(health, "TIMEOUT_SECONDS", 60)


@pytest.mark.usefixtures("patient_checks")
class TestTheRoute:
    async def test_a_new_runtime_passes_every_check(self, runtime: Runtime):
        answer = await send_request(build_app(runtime), "GET", "/api/v1/health")
        parts = [
            "database",
            "migrations",
            "blobs",
            "data_folder",
            "disk",
            "workers",
            "rooms",
            "duties",
            "breakers",
            "console",
        ]
        assert answer.status == 200
        assert list(answer.json["checks"]) == parts
        assert all(answer.json["checks"][part]["ok"] for part in parts if part != "workers")
        assert {check["detail"] for check in answer.json["checks"].values()} == {""}

    async def test_details_that_name_something_are_for_callers_with_a_key(self, runtime: Runtime):
        app = build_app(runtime)
        async with runtime.db.tx() as tx:
            key = await keys.first_admin_key(tx)
        assert key is not None
        answer = await send_request(app, "GET", "/api/v1/health", X_API_Key=key)
        assert answer.json["checks"]["console"]["detail"] == "this build has no console"
        assert answer.json["checks"]["disk"]["detail"].endswith("GB free")
        wrong = await send_request(app, "GET", "/api/v1/health", X_API_Key="sk-wrong")
        assert {check["detail"] for check in wrong.json["checks"].values()} == {""}

    async def test_without_a_key_nothing_of_a_breaker_is_shown_but_that_it_is_open(self, runtime: Runtime):
        async def opened() -> ProbeResult:
            return ProbeResult(ok=False, detail="open: llm at https://10.0.0.7 (version 3)")

        app = build_app(runtime)
        app.state.health = HealthChecker([Probe(name="breakers", check=opened, needed=False)], version="1")
        answer = await send_request(app, "GET", "/api/v1/health")
        assert answer.json["checks"] == {"breakers": {"ok": False, "needed": False, "detail": ""}}

    async def test_a_failing_needed_check_makes_it_503(self, runtime: Runtime, tmp_path: Path):
        answer = await send_request(
            build_app(replace(runtime, blobs=UnavailableBlobs(tmp_path))), "GET", "/api/v1/health"
        )
        assert (answer.status, answer.json["status"]) == (503, "unwell")
        assert answer.json["checks"]["blobs"] == {
            "ok": False,
            "needed": True,
            "detail": "unavailable",
        }
        assert b"s3.internal" not in answer.body

    async def test_any_other_failing_check_only_degrades_it(self, runtime: Runtime):
        answer = await send_request(build_app(runtime), "GET", "/api/v1/health")
        assert (answer.status, answer.json["status"]) == (200, "degraded")
        workers = answer.json["checks"]["workers"]
        assert workers == {"ok": False, "needed": False, "detail": ""}

    async def test_redis_is_checked_where_it_is_configured(self, settings: Settings, redis_url: str):
        async with open_runtime(replace(settings, redis_url=redis_url)) as runtime:
            answer = await send_request(build_app(runtime), "GET", "/api/v1/health")
        assert answer.json["checks"]["redis"] == {"ok": True, "needed": True, "detail": ""}

    async def test_ready_needs_no_remote_store_and_fails_while_stopping(self, runtime: Runtime):
        bucket = S3Bucket.at("s3://nowhere", keys=None, region="x", endpoint="http://127.0.0.1:1")
        app = build_app(replace(runtime, blobs=S3Blobs(bucket, clock=runtime.clock)))
        ready = await send_request(app, "GET", "/readyz")
        assert (ready.status, ready.json) == (200, {"status": "ready"})
        app.state.in_flight.stopping = True
        stopping = await send_request(app, "GET", "/readyz")
        assert (stopping.status, stopping.json) == (503, {"status": "stopping"})
        assert (await send_request(app, "GET", "/livez")).status == 200

    async def test_metrics_are_public(self, runtime: Runtime):
        app = build_app(runtime)
        await send_request(app, "GET", "/livez")
        answer = await send_request(app, "GET", "/metrics")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert b'penstock_http_requests_total{method="GET",route="/livez",status="200"} 1.0' in answer.body


class TestHealthChecker:
    async def test_a_check_that_hangs_times_out_and_delays_no_other(self):
        async def passing() -> ProbeResult:
            return ProbeResult(detail="fine")

        checker = HealthChecker(
            [
                Probe(name="silent", check=hang),
                Probe(name="silent too", check=hang),
                Probe(name="passing", check=passing),
            ],
            version="1",
        )
        began = monotonic()
        health = await checker.check_all()
        assert TIMEOUT_SECONDS <= monotonic() - began < 2 * TIMEOUT_SECONDS
        assert {name: check.detail for name, check in health.checks.items()} == {
            "silent": "no answer in time",
            "silent too": "no answer in time",
            "passing": "fine",
        }

    async def test_concurrent_requests_share_one_check(self):
        checks = 0

        async def count() -> ProbeResult:
            nonlocal checks
            checks += 1
            return ProbeResult()

        checker = HealthChecker([Probe(name="counted", check=count)], version="1")
        await asyncio.gather(*(checker.check_all() for _ in range(1000)))
        assert checks == 1

    async def test_a_probe_with_a_bug_is_one_failed_check_and_one_log_line(self, caplog: pytest.LogCaptureFixture):
        async def bug() -> ProbeResult:
            raise KeyError("oops")

        checker = HealthChecker([Probe(name="odd", check=bug)], version="1")
        assert (await checker.check_all()).checks["odd"].detail == "check failed"
        assert "health check odd failed: KeyError('oops')" in caplog.text

    async def test_a_failure_is_logged_once_and_not_at_every_check(self, caplog: pytest.LogCaptureFixture):
        async def unavailable() -> ProbeResult:
            raise Unavailable(reason="gone")

        caplog.set_level(logging.WARNING)
        checker = HealthChecker([Probe(name="odd", check=unavailable)], version="1")
        for _ in range(5):
            await checker._run(checker._probes["odd"])
        assert caplog.text.count("health check odd failed") == 1


class TestDatabase:
    async def test_it_passes_when_it_answers_and_is_migrated(self, db: Db):
        assert await result_of(probes.database(db)) == (True, "")
        assert await result_of(probes.migrations(db)) == (True, "")

    async def test_pending_migrations_are_named(self, tmp_path: Path):
        db = open_db(f"sqlite:///{tmp_path / 'bare.db'}")
        ok, detail = await result_of(probes.migrations(db))
        assert not ok
        assert detail.startswith("pending migrations: 0001")
        await db.close()

    async def test_a_database_that_is_newer_is_named(self, db: Db):
        async with db.tx() as tx:
            await tx.conn.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        assert await result_of(probes.migrations(db)) == (False, "newer than this program")

    async def test_its_address_is_not_shown(self, caplog: pytest.LogCaptureFixture):
        db = open_db("postgresql://me:hunter2@127.0.0.1:1/secret_name")
        assert await result_of(probes.database(db)) == (False, "cannot be reached")
        await db.close()

    @pytest.mark.timeout(120)
    async def test_a_paused_database_cannot_hang_it_and_recovers(self):
        with PostgresServer.start() as postgres:
            postgres.create_database("paused")
            db = open_db(postgres.url("paused"))
            await migrate(db)
            checker = HealthChecker([probes.database(db), probes.migrations(db)], version="1")
            assert not await checker.find_unready()
            postgres.pause()
            began = monotonic()
            while not await checker.find_unready():  # noqa: ASYNC110  (results are cached for a second)
                await asyncio.sleep(0.05)
            assert monotonic() - began < CACHE_SECONDS + 2 * TIMEOUT_SECONDS
            postgres.resume()
            async with asyncio.timeout(60):
                while await checker.find_unready():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            await db.close()


class TestRedis:
    @pytest.mark.timeout(120)
    async def test_a_paused_redis_cannot_hang_it_and_recovers(self):
        with ValkeyServer.start() as valkey:
            link = RedisClient(valkey.url)

            async def ping() -> object:
                return await link.execute("PING")

            checker = HealthChecker([probes.redis(ping)], version="1")
            assert (await checker.check_all()).status == "ok"
            valkey.pause()
            began = monotonic()
            while (await checker.check_all()).status == "ok":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert monotonic() - began < CACHE_SECONDS + 2 * TIMEOUT_SECONDS
            valkey.resume()
            async with asyncio.timeout(60):
                while (await checker.check_all()).status != "ok":  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            await link.close()


class TestBlobsAndOthers:
    async def test_open_breakers_are_named(self):
        detail = "open: redis (no answer came in time)"
        assert await result_of(probes.breakers([OpenBreaker()])) == (False, detail)
        assert await result_of(probes.breakers([])) == (True, "")

    async def test_a_store_that_answers_passes(self, tmp_path: Path):
        assert await result_of(probes.blobs(DiskBlobs(tmp_path))) == (True, "")

    async def test_the_message_of_a_store_is_not_shown(self, tmp_path: Path):
        assert await result_of(probes.blobs(UnavailableBlobs(tmp_path))) == (False, "unavailable")

    @pytest.mark.parametrize(
        ("total", "free", "ok"),
        [
            (10_000_000_000, 100_000_000, True),
            (10_000_000_000, 99_999_999, False),
            (1_000_000_000_000, 9_999_999_999, False),
            (1_000_000_000_000, 10_000_000_000, True),
        ],
    )
    def test_a_disk_fails_under_100_megabytes_or_one_per_cent(self, total: int, free: int, ok: bool):
        assert probes.has_space(free=free, total=total) is ok

    async def test_a_folder_that_does_not_exist_yet_is_on_the_disk_of_its_parent(self, tmp_path: Path):
        assert (await result_of(probes.disk(tmp_path / "not" / "yet")))[0]


class TestWork:
    async def test_workers_are_live_processes_with_modules(self, db: Db, clock: ManualClock):
        assert await result_of(probes.workers(db)) == (False, "no worker is running")
        await Heartbeat(db, owner="api", kind=ProcessKind.SERVE, modules=[], version="1").beat()
        assert await result_of(probes.workers(db)) == (False, "no worker is running")
        await Heartbeat(db, owner="worker", kind=ProcessKind.WORK, modules=["etl"], version="1").beat()
        assert await result_of(probes.workers(db)) == (True, "1 alive")
        clock.advance(seconds=31)
        assert await result_of(probes.workers(db)) == (False, "no worker is running")

    async def test_a_module_with_waiting_jobs_and_no_worker_is_named(self, db: Db, clock: ManualClock):
        async with db.tx() as tx:
            await JobQueue().enqueue(
                tx, NewJob(kind="k", module="etl"), NewJob(kind="k", module="tasks"), NewJob(kind="k")
            )
        assert await result_of(probes.modules(db)) == (True, "")
        clock.advance(seconds=11)
        await Heartbeat(db, owner="worker", kind=ProcessKind.WORK, modules=["tasks"], version="1").beat()
        assert await result_of(probes.modules(db)) == (False, "jobs wait and no worker serves: the default module, etl")
        await Heartbeat(db, owner="other", kind=ProcessKind.WORK, modules=["etl", ""], version="1").beat()
        assert await result_of(probes.modules(db)) == (True, "")

    async def test_a_failed_periodic_task_is_named_when_it_is_known(self, db: Db):
        async def fail() -> None:
            raise Unavailable(reason="postgresql://me:hunter2@db")

        scheduler = Scheduler(db, [PeriodicTask(name="sweep", every_seconds=60, run=fail)], owner="o")
        await scheduler.register()
        await scheduler.tick()
        assert await result_of(probes.periodic_tasks(db, scheduler.names)) == (False, "failed last time: sweep")
        assert await result_of(probes.periodic_tasks(db, frozenset())) == (True, "")

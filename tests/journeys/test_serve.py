"""`penstock serve`, from outside."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from penstock.kernel.processes import ProcessKind, list_processes
from penstock.kernel.queue import JobQueue, JobState, NewJob, get_job
from tests.conftest import open_db
from tests.journeys.command import Serving, run
from tests.servers.postgres import PostgresServer


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


@pytest.fixture
async def serving(tmp_path: Path, session: aiohttp.ClientSession) -> AsyncIterator[Serving]:
    server = Serving("--data-dir", str(tmp_path / "data"))
    try:
        await server.ready(session)
        yield server
    finally:
        server.kill()


async def test_a_fresh_server_is_well_and_keeps_its_data_in_the_folder(
    serving: Serving, session: aiohttp.ClientSession, tmp_path: Path
):
    health = await serving.health(session, until="ok")
    assert health["checks"]["database"] == {"ok": True, "needed": True, "detail": ""}
    assert health["checks"]["workers"] == {"ok": True, "needed": False, "detail": ""}
    assert (tmp_path / "data" / "penstock.db").exists()


async def test_the_first_start_shows_a_key_and_no_console_and_workers_tell_what_they_run(
    session: aiohttp.ClientSession, tmp_path: Path
):
    output = tmp_path / "output"
    server = Serving("--data-dir", str(tmp_path / "data"), output=str(output))
    try:
        await server.ready(session)
        await server.health(session, until="ok")  # which needs a worker that has started
    finally:
        server.kill()
    said = output.read_text()
    assert "admin key (shown only once): sk-" in said
    assert "console:" not in said
    assert "/#key=" not in said
    assert f"data in {tmp_path / 'data'}" in said
    started = next(line for line in said.splitlines() if " started; " in line)
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO penstock\.wiring\.runtime: worker ", started)
    assert "etl: " in started
    assert "slots; job queue SQL, database sqlite, redis no, blobs disk" in started


async def test_what_is_not_served_is_a_problem_with_code_and_hint(serving: Serving, session: aiohttp.ClientSession):
    async with session.get(f"{serving.url}/nope") as answer:
        assert answer.status == 404
        assert answer.content_type == "application/problem+json"
        problem = json.loads(await answer.text())
    assert (problem["code"], problem["retryable"]) == ("NO_SUCH_PATH", False)
    async with session.post(f"{serving.url}/livez") as answer:
        assert answer.status == 405


async def test_a_stop_is_quick_and_in_good_order(serving: Serving, session: aiohttp.ClientSession, tmp_path: Path):
    await serving.health(session, until="ok")
    db = open_db(f"sqlite:///{tmp_path / 'data' / 'penstock.db'}")
    async with db.read() as tx:
        [process] = await list_processes(tx)
    assert process.kind is ProcessKind.SERVE
    assert serving.stop() == 0
    async with db.read() as tx:
        assert await list_processes(tx) == []
    await db.close()


async def test_every_answer_names_its_request_and_figures_are_shown(serving: Serving, session: aiohttp.ClientSession):
    async with session.get(f"{serving.url}/livez", headers={"X-Request-Id": "mine"}) as answer:
        assert answer.headers["X-Request-Id"] == "mine"
    async with session.get(f"{serving.url}/metrics") as answer:
        figures = await answer.text()
    assert 'penstock_http_requests_total{method="GET",route="/livez",status="200"} 1.0' in figures
    assert "penstock_work_known 1.0" in figures


async def test_a_second_server_on_the_same_port_is_told_so(serving: Serving, tmp_path: Path):
    second = run("serve", "--port", str(serving.port), "--data-dir", str(tmp_path / "second"))
    assert second.returncode == 1
    assert f"Cannot listen on 127.0.0.1:{serving.port}" in second.stderr
    assert "Traceback" not in second.stderr
    assert "serves" not in second.stdout
    assert not (tmp_path / "second").exists()


@pytest.mark.timeout(180)
async def test_health_tells_when_the_database_is_away_and_when_it_is_back(session: aiohttp.ClientSession):
    with PostgresServer.start() as postgres:
        postgres.create_database("served")
        url = postgres.url("served")
        assert run("migrate", PENSTOCK_DATABASE_URL=url).returncode == 0
        serving = Serving(PENSTOCK_DATABASE_URL=url)
        try:
            await serving.ready(session)
            postgres.kill()
            health = await serving.health(session, until="unwell")
            assert health["checks"]["database"]["detail"] == "cannot be reached"
            async with session.get(f"{serving.url}/readyz") as answer:
                assert answer.status == 503
            async with session.get(f"{serving.url}/livez") as answer:
                assert answer.status == 200
            postgres.start_again()
            await serving.ready(session)
        finally:
            serving.kill()


async def test_a_database_that_is_not_migrated_is_not_served(postgres_server: object, tmp_path: Path):
    with PostgresServer.start() as postgres:
        postgres.create_database("bare")
        refused = run("serve", PENSTOCK_DATABASE_URL=postgres.url("bare"))
    assert refused.returncode == 1
    assert "penstock migrate" in refused.stderr


async def test_work_that_was_waiting_is_kept_over_a_kill(
    serving: Serving, session: aiohttp.ClientSession, tmp_path: Path
):
    db = open_db(f"sqlite:///{tmp_path / 'data' / 'penstock.db'}")
    async with db.tx() as tx:
        await JobQueue().enqueue(tx, NewJob(kind="nobody's", id="a"))
    serving.kill()
    async with db.read() as tx:
        assert (await tx.conn.exec_driver_sql("PRAGMA integrity_check")).scalar() == "ok"
        assert (await get_job(tx, "a")).state is JobState.WAITING
    await db.close()
    again = Serving("--data-dir", str(tmp_path / "data"))
    try:
        await again.ready(session)
    finally:
        again.kill()

"""The databases every test may ask for: `db` runs a test on SQLite and on PostgreSQL."""

import asyncio
import itertools
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.adapters.disk import DiskBlobs
from penstock.adapters.s3 import S3Blobs, S3Bucket
from penstock.kernel import events, outbox
from penstock.kernel.blobs import Blobs
from penstock.kernel.clock import Clock, ManualClock, SystemClock
from penstock.kernel.db import Db, Tx
from penstock.kernel.ids import TimeIds
from penstock.kernel.migrations import migrate
from penstock.kernel.sequencer import Sequencer
from tests.budget import CpuBudget
from tests.compiled import share_compiled
from tests.servers import seaweed, valkey
from tests.servers.clean import CleanDatabases
from tests.servers.postgres import Databases, quick_place, shared_server
from tests.storms import processes

NUMBERS = itertools.count(1)
WAITING_FOLDERS = {"journeys", "adapters", "cli", "servers", "web"}
TEMPLATE = "penstock_template"


def open_db(url: str, clock: Clock | None = None, **options: bool | int) -> Db:
    """A database with the outbox and the events attached, as wiring would open it."""
    clock = clock or SystemClock()
    seams = {"post": outbox.post, "publish": events.insert_events}
    db = Db.open(url, clock=clock, ids=TimeIds(clock), **seams, **options)  # type: ignore[arg-type]  # options are keywords of Db.open
    share_compiled(db)
    return db


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make test` passes it when it runs everything."""
    parser.addoption("--cpu-budget", action="store_true", help="fail when a folder is over its CPU budget")


def pytest_configure(config: pytest.Config) -> None:
    """Measure what the tests cost."""
    config.pluginmanager.register(CpuBudget(config))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with storm in their path are for `make storm`. Folders whose tests wait most come first."""
    items.sort(key=lambda item: not WAITING_FOLDERS & set(item.path.parts))
    for item in items:
        if "storm" in item.path.as_posix():
            item.add_marker(pytest.mark.storm)


def pytest_runtest_teardown() -> None:
    """No process of a test outlives it."""
    processes.end_all()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Half characters in what a test logged are shown as what they are: no process could tell another of them."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report


class _Undo(Exception):
    """Ends a transaction that must leave nothing behind."""


@asynccontextmanager
async def rolled_back(db: Db) -> AsyncIterator[Tx]:
    """A transaction that ends in a roll-back."""
    with suppress(_Undo):
        async with db.tx() as tx:
            yield tx
            raise _Undo


async def sequence(db: Db) -> None:
    """Give every committed event its id, as a hub does before it reads."""
    await Sequencer(db).catch_up()


async def _migrate(url: str) -> None:
    db = open_db(url)
    await migrate(db)
    await db.close()


@pytest.fixture
def clock() -> ManualClock:
    """A clock that moves when told."""
    return ManualClock(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Databases]:
    """The PostgreSQL of this test run, with a migrated database to copy from."""
    with shared_server() as server:
        server.drop_database(TEMPLATE)
        server.create_database(TEMPLATE)
        asyncio.run(_migrate(server.url(TEMPLATE)))
        yield server
        server.drop_database(TEMPLATE)


@pytest.fixture(scope="session")
def clean_databases(postgres_server: Databases) -> Iterator[CleanDatabases]:
    """Migrated PostgreSQL databases, one for each test at a time."""
    databases = CleanDatabases(postgres_server, TEMPLATE)
    yield databases
    databases.close()


@pytest.fixture
def postgres_url(clean_databases: CleanDatabases) -> Iterator[str]:
    """A migrated PostgreSQL database of this test's own."""
    with clean_databases.one() as url:
        yield url


@pytest.fixture(scope="session")
def redis_server() -> Iterator[valkey.AnyRedis]:
    """The Redis of this test run. Tests that kill or pause one start a `ValkeyServer` of their own."""
    with valkey.shared_server() as server:
        yield server


@pytest.fixture
def redis_url(redis_server: valkey.AnyRedis) -> str:
    """An empty Redis database."""
    redis_server.flush()
    return redis_server.url


@pytest.fixture(scope="session")
def s3_server() -> Iterator[seaweed.AnyS3]:
    """The S3 of this test run. Tests that kill or pause one start an `S3Server` of their own."""
    with seaweed.shared_server() as server:
        yield server


@pytest.fixture(scope="session")
def s3_run(s3_server: seaweed.AnyS3) -> S3Bucket:
    """A place in a bucket that no other run of the tests has used."""
    return s3_server.bucket_config(s3_server.bucket("penstock-tests"), prefix=secrets.token_hex(4))


@pytest.fixture
def s3_bucket(s3_run: S3Bucket) -> S3Bucket:
    """A prefix of this test's own."""
    return replace(s3_run, prefix=f"{s3_run.prefix}/{next(NUMBERS)}")


@pytest.fixture(params=["disk", "s3"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    """An empty store: every test that asks for it runs on each kind."""
    if request.param == "disk":
        return DiskBlobs(tmp_path / "blobs")
    return S3Blobs(request.getfixturevalue("s3_bucket"), clock=SystemClock())


@pytest.fixture(scope="session")
def sqlite_template() -> Iterator[Path]:
    """A migrated SQLite file to copy from. In memory if possible: some disks take 10 ms for each commit."""
    with tempfile.TemporaryDirectory(prefix="penstock-sqlite-", dir=quick_place()) as folder:
        path = Path(folder, "penstock.db")
        asyncio.run(_migrate(f"sqlite:///{path}"))
        yield path


@pytest.fixture
def sqlite_url(sqlite_template: Path) -> Iterator[str]:
    """A migrated SQLite file of this test's own."""
    folder = sqlite_template.with_name(f"{next(NUMBERS)}")
    folder.mkdir()
    shutil.copy(sqlite_template, folder)
    yield f"sqlite:///{folder / sqlite_template.name}"
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgres"])
def db_url(request: pytest.FixtureRequest) -> str:
    """The URL of a migrated database: every test that asks for it runs on both."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture(params=["sqlite", "postgres", "pooled"])
def plan_url(request: pytest.FixtureRequest) -> tuple[str, bool]:
    """The URL of a migrated database for tests of plans, and whether it is as behind a transaction pooler: sessions of
    PostgreSQL then have no settings, and every statement is planned anew."""
    pooled = request.param == "pooled"
    return request.getfixturevalue("postgres_url" if pooled else f"{request.param}_url"), pooled


@pytest.fixture
async def plan_db(plan_url: tuple[str, bool], clock: ManualClock) -> AsyncIterator[Db]:
    """An open database for tests of plans."""
    url, pooled = plan_url
    db = open_db(url, clock, pooled=pooled)
    yield db
    await db.close()


@pytest.fixture
async def db(db_url: str, clock: ManualClock) -> AsyncIterator[Db]:
    """An open database on the test's clock."""
    db = open_db(db_url, clock)
    yield db
    await db.close()

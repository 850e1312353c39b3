"""A database that is down, full, hanging or not migrated: a clear error and no partial data, and then it recovers."""

import asyncio
import threading
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from asyncpg import PostgresError
from sqlalchemy import func, insert, select, text
from sqlalchemy.exc import DBAPIError

from penstock.kernel.clock import ManualClock
from penstock.kernel.database_errors import DatabaseBusy, DatabaseNotMigrated, DatabaseUnavailable
from penstock.kernel.db import Db, Tx
from penstock.kernel.dialect import engines
from penstock.kernel.dialect.engines import BadDatabaseFolder, BadDatabaseUrl
from penstock.kernel.errors import DiskFull, Unavailable
from penstock.kernel.migrations import migrate
from penstock.kernel.queue import Job, JobQueue, JobState, NewJob, get_job, job
from penstock.kernel.rate_limits import rate_bucket
from penstock.kernel.workers import Settle, Workers
from tests.conftest import open_db
from tests.servers.postgres import PostgresServer

PATIENCE_SECONDS = 30
SECRET = "s3cr3t-pa55"


async def enqueue(db: Db, job_id: str) -> None:
    async with db.tx() as tx:
        await JobQueue().enqueue(tx, NewJob(kind="k", id=job_id))


async def job_ids(db: Db) -> list[str]:
    async with db.read() as tx:
        return sorted((await tx.conn.scalars(select(job.c.id))).all())


async def patiently(work: Callable[[], Awaitable[object]]) -> object:
    """What a caller does who is told to try again; a pool may hold several connections that broke."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                return await work()
            except DatabaseUnavailable:
                await asyncio.sleep(0.01)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of our own, which may be killed."""
    with PostgresServer.start() as started:
        yield started


class TestKilledPostgres:
    @pytest.fixture
    async def db(self, server: PostgresServer, clock: ManualClock) -> AsyncIterator[Db]:
        server.create_database("mortal")
        db = open_db(server.url("mortal"), clock)
        await migrate(db)
        yield db
        await db.close()
        server.drop_database("mortal")

    @pytest.fixture
    def down(self, server: PostgresServer) -> Iterator[None]:
        server.kill()
        yield
        server.start_again()

    async def test_a_transaction_raises_database_unavailable(self, db: Db, down: None):
        with pytest.raises(DatabaseUnavailable, match="The database cannot be reached") as raised:
            await enqueue(db, "a")
        error = raised.value
        assert (error.code, error.status, error.retryable) == ("DB_UNAVAILABLE", 503, True)
        assert "Check that the database is running" in error.hint
        assert isinstance(error.__cause__, OSError | DBAPIError | PostgresError)

    async def test_a_read_says_so_too(self, db: Db, down: None):
        for _ in range(3):
            with pytest.raises(DatabaseUnavailable):
                await job_ids(db)

    async def test_it_says_so_at_the_first_use_when_it_was_never_there(self, server: PostgresServer, down: None):
        db = open_db(server.url("mortal"))
        with pytest.raises(DatabaseUnavailable):
            await enqueue(db, "a")
        await db.close()

    async def test_the_first_call_after_a_restart_in_a_quiet_moment_succeeds(self, db: Db, server: PostgresServer):
        await enqueue(db, "before")
        assert await job_ids(db) == ["before"]
        server.kill()
        server.start_again()
        for _ in range(5):  # a few turns of the loop, in which it notices that the connections are gone
            await asyncio.sleep(0)
        await enqueue(db, "after")
        assert await job_ids(db) == ["after", "before"]

    @pytest.mark.parametrize("moment", ["between two statements", "before the commit"])
    async def test_a_transaction_that_was_cut_off_leaves_nothing_behind(
        self, db: Db, server: PostgresServer, moment: str
    ):
        await enqueue(db, "before")
        with pytest.raises(DatabaseUnavailable):
            await cut_off(db, server, moment)
        server.start_again()
        assert await patiently(lambda: job_ids(db)) == ["before"]
        await patiently(lambda: enqueue(db, "after"))
        assert await job_ids(db) == ["after", "before"]

    async def test_every_connection_of_the_pool_comes_back_to_life(self, db: Db, server: PostgresServer):
        await asyncio.gather(*(enqueue(db, f"before-{number}") for number in range(10)))
        server.kill()
        server.start_again()
        await asyncio.gather(*(patiently(lambda name=f"after-{number}": enqueue(db, name)) for number in range(10)))  # type: ignore[misc]  # a lambda with a default
        assert len(await job_ids(db)) == 20

    async def test_workers_recover_by_themselves_and_every_job_takes_effect_once(
        self, db: Db, server: PostgresServer, clock: ManualClock
    ):
        queue = JobQueue()

        async def handler(held: Job) -> Settle:
            await asyncio.sleep(0)

            async def settle(tx: Tx) -> None:
                await tx.conn.execute(insert(job).values(effect(tx, held.id)))

            return settle

        async with db.tx() as tx:
            names = await queue.enqueue(tx, *(NewJob(kind="k", max_attempts=1000) for _ in range(200)))
        workers = [
            asyncio.create_task(Workers(db, JobQueue(), {"k": handler}, owner=f"w{number}", slots=4).run())
            for number in range(3)
        ]
        for share in (20, 80, 140):
            await until_done(db, clock, share)
            server.kill()
            server.start_again()
        await until_done(db, clock, 200)
        for task in workers:
            task.cancel()
        await asyncio.wait(workers)
        assert await effects(db) == Counter(names)


async def cut_off(db: Db, server: PostgresServer, moment: str) -> None:
    async with db.tx() as tx:
        await JobQueue().enqueue(tx, NewJob(kind="k", id="first half"))
        server.kill()
        if moment == "between two statements":
            await JobQueue().enqueue(tx, NewJob(kind="k", id="second half"))


def effect(tx: Tx, name: str) -> dict[str, object]:
    """A row that does not run, and may be there more than once for one name."""
    row = {"id": tx.new_id("effect"), "kind": name, "payload": {}, "state": "cancelled", "scheduled_at": tx.now}
    return row | {"most_attempts": 1, "timeout_seconds": 1, "created_at": tx.now, "created_by": "me"}


async def effects(db: Db) -> Counter[str]:
    async with db.read() as tx:
        return Counter((await tx.conn.scalars(select(job.c.kind).where(job.c.state == "cancelled"))).all())


async def until_done(db: Db, clock: ManualClock, count: int) -> None:
    """Time goes by and lost jobs are rescued until that many are done."""
    done = select(func.count()).select_from(job).where(job.c.state == JobState.DONE)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            clock.advance(seconds=0.5)
            try:
                async with db.tx() as tx:
                    await JobQueue().rescue(tx)
                    if (await tx.conn.scalar(done) or 0) >= count:
                        return
            except DatabaseUnavailable:
                pass
            await asyncio.sleep(0.001)


class TestSilentPostgres:
    async def test_a_server_that_does_not_answer_is_not_waited_for_without_end(
        self, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setitem(engines.POSTGRES_TIMEOUTS, "command_timeout", 0.3)
        monkeypatch.setitem(engines.POSTGRES_TIMEOUTS, "timeout", 0.3)
        db = open_db(server.url("postgres"))
        async with db.tx() as tx, db.read() as reading:
            await asyncio.gather(tx.conn.scalar(text("SELECT 1")), reading.conn.scalar(text("SELECT 1")))
        server.pause()
        try:
            async with asyncio.timeout(10):
                for session in (db.tx, db.read, db.tx, db.read):
                    with pytest.raises(Unavailable, match=r"did not answer in time|cannot be reached"):
                        await say_hello(session)
        finally:
            server.resume()
        assert await patiently(lambda: say_hello(db.tx)) == 1
        await db.close()

    def test_the_timeouts_are_finite(self):
        assert set(engines.POSTGRES_TIMEOUTS) == {"timeout", "command_timeout"}
        assert all(0 < seconds <= 60 for seconds in engines.POSTGRES_TIMEOUTS.values())


async def say_hello(session: Callable[[], object]) -> object:
    async with session() as tx:  # type: ignore[attr-defined]  # db.tx or db.read
        return await tx.conn.scalar(text("SELECT 1"))


class TestSqlite:
    @pytest.fixture
    async def db(self, sqlite_url: str, clock: ManualClock) -> AsyncIterator[Db]:
        db = open_db(sqlite_url, clock)
        yield db
        await db.close()

    async def test_a_full_disk_is_named_and_nothing_half_written_is_kept(self, db: Db):
        await enqueue(db, "before")
        await allow_pages(db, 2)
        with pytest.raises(DiskFull, match="no space left") as raised:
            await write_much(db)
        assert (raised.value.status, raised.value.retryable, raised.value.internal_outage) == (503, True, True)
        assert await job_ids(db) == ["before"]
        await allow_pages(db, 100_000)
        await write_much(db)
        assert len(await job_ids(db)) == 1001

    async def test_a_job_that_ends_while_the_disk_is_full_is_settled_when_there_is_space(
        self, db: Db, clock: ManualClock
    ):
        await enqueue(db, "writes")
        tried = asyncio.Event()

        async def write(_job: Job) -> Settle:
            await allow_pages(db, 0)

            async def settle(tx: Tx) -> None:
                tried.set()
                many = (NewJob(kind="k", payload={"text": "x" * 2000}, delay_seconds=3600) for _ in range(50))
                await JobQueue().enqueue(tx, *many)

            return settle

        working = asyncio.create_task(Workers(db, JobQueue(), {"k": write}, owner="w").run_until_empty())
        await tried.wait()
        await allow_pages(db, 100_000)
        while not working.done():
            clock.advance(seconds=1)
            await asyncio.sleep(0)
        assert await working == 1
        async with db.read() as tx:
            settled = await get_job(tx, "writes")
        assert (settled.state, settled.attempts, settled.error) == (JobState.DONE, 1, None)

    async def test_a_file_that_cannot_be_opened_is_named(self, tmp_path: Path):
        (tmp_path / "penstock.db").mkdir()
        db = open_db(f"sqlite:///{tmp_path}/penstock.db")
        before = set(threading.enumerate())
        with pytest.raises(DatabaseUnavailable, match="unable to open database file"):
            await enqueue(db, "a")
        await db.close()
        for thread in set(threading.enumerate()) - before:  # the driver does not wait for its own
            thread.join(PATIENCE_SECONDS)

    async def test_a_folder_that_cannot_be_written_to_is_named(self):
        with pytest.raises(BadDatabaseFolder, match="cannot be stored in /proc/self"):
            open_db("sqlite:////proc/self/penstock.db")

    async def test_a_folder_that_cannot_be_made_is_named(self, tmp_path: Path):
        (tmp_path / "file").write_text("not a folder")
        with pytest.raises(BadDatabaseFolder, match="Not a directory"):
            open_db(f"sqlite:///{tmp_path}/file/penstock.db")

    async def test_a_writer_who_gets_no_turn_is_told_that_the_database_is_busy(
        self, db: Db, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
    ):
        hasty = tuple(line for line in engines.SQLITE_PRAGMAS if "busy_timeout" not in line)
        monkeypatch.setattr(engines, "SQLITE_PRAGMAS", (*hasty, "PRAGMA busy_timeout = 10"))
        other = open_db(sqlite_url)
        async with db.tx():
            with pytest.raises(DatabaseBusy, match="locked") as raised:
                await enqueue(other, "a")
        assert raised.value.retryable
        await patiently(lambda: enqueue(other, "a"))
        await other.close()


async def allow_pages(db: Db, more: int) -> None:
    async with db.tx() as tx:
        pages = await tx.conn.scalar(text("PRAGMA page_count")) or 0
        await tx.conn.execute(text(f"PRAGMA max_page_count = {pages + more}"))


async def write_much(db: Db) -> None:
    async with db.tx() as tx:
        await JobQueue().enqueue(tx, *(NewJob(kind="k", payload={"text": "x" * 200}) for _ in range(1000)))


class TestNotReady:
    @pytest.fixture(params=["sqlite", "postgres"])
    def empty_url(self, request: pytest.FixtureRequest, tmp_path: Path, server: PostgresServer) -> str:
        return f"sqlite:///{tmp_path}/empty.db" if request.param == "sqlite" else server.url("postgres")

    async def test_a_database_without_our_tables_says_what_to_run(self, empty_url: str):
        db = open_db(empty_url)
        for use in (enqueue(db, "a"), job_ids(db)):
            with pytest.raises(DatabaseNotMigrated, match="job") as raised:
                await use
            assert raised.value.hint == "Run: penstock migrate"
            assert not raised.value.retryable
        await db.close()

    async def test_a_database_that_does_not_exist_is_named(self, server: PostgresServer):
        db = open_db(server.url("nowhere"))
        with pytest.raises(DatabaseUnavailable, match="nowhere"):
            await enqueue(db, "a")
        await db.close()

    async def test_a_user_whom_the_database_does_not_know_is_named(self, server: PostgresServer):
        db = open_db(server.url("postgres").replace("postgres@", f"stranger:{SECRET}@"))
        with pytest.raises(DatabaseUnavailable, match="stranger") as raised:
            await enqueue(db, "a")
        assert SECRET not in everything_said(raised.value)
        await db.close()


class TestBadUrls:
    @pytest.mark.parametrize(
        ("url", "reason"),
        [
            ("", "not a URL"),
            ("penstock.db", "not a URL"),
            (f"postgresql://ann:{SECRET}@host:port/name", "not a URL"),
            (f"mysql://ann:{SECRET}@host/name", "mysql is neither"),
            (f"https://ann:{SECRET}@host/name", "https is neither"),
            (f"postgresql://ann:{SECRET}@host/name?sslmode=require&colour=red", "option colour"),
            ("sqlite://", "needs a file"),
            ("sqlite:///:memory:", "needs a file"),
        ],
    )
    def test_a_url_that_cannot_be_used_is_refused_with_its_reason_and_without_its_password(self, url: str, reason: str):
        with pytest.raises(BadDatabaseUrl, match=reason) as raised:
            open_db(url)
        assert "postgresql://" in raised.value.hint
        assert SECRET not in everything_said(raised.value)

    @pytest.mark.parametrize("place", ["127.0.0.1:1", "nowhere.invalid"])
    async def test_a_server_that_cannot_be_reached_is_named_without_the_password(self, place: str):
        db = open_db(f"postgresql://ann:{SECRET}@{place}/name")
        with pytest.raises(DatabaseUnavailable) as raised:
            await enqueue(db, "a")
        assert SECRET not in everything_said(raised.value)
        assert SECRET not in repr(db._writer)
        await db.close()


def everything_said(error: BaseException) -> str:
    """The error and all its causes, as a log would show them, but for the lines of this file."""
    said = traceback.TracebackException.from_exception(error)
    parts = [repr(error), *said.format_exception_only()]
    while said.__cause__ is not None or said.__context__ is not None:
        said = said.__cause__ or said.__context__  # type: ignore[assignment]  # one of them is there
        parts += said.format_exception_only()
    return "\n".join(parts)


async def test_a_failing_statement_is_shown_without_its_values(db: Db):
    async with db.tx() as tx:
        await tx.conn.execute(insert(rate_bucket).values(key=SECRET, full_at=0))
    with pytest.raises(DBAPIError) as raised:
        async with db.tx() as tx:
            await tx.conn.execute(insert(rate_bucket).values(key=SECRET, full_at=0))
    assert SECRET not in str(raised.value).partition("DETAIL")[0]  # PostgreSQL's own words may name the key

"""What `db.py` promises: all or nothing, one time per transaction, and writers that wait for each other."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import chain

import pytest
from sqlalchemy import delete, func, insert, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

from penstock.kernel import outbox
from penstock.kernel.clock import ManualClock
from penstock.kernel.database_errors import DatabaseUnavailable
from penstock.kernel.db import Db, Tx
from penstock.kernel.dialect.engines import PLANNER_SETTINGS
from penstock.kernel.errors import Conflict, Invalid
from penstock.kernel.ids import TimeIds
from penstock.kernel.message import Message
from penstock.kernel.migrations import migrate, pending
from penstock.kernel.queue import JobQueue, JobState, NewJob, get_job
from penstock.kernel.rate_limits import rate_bucket
from penstock.kernel.relay import Relay
from penstock.kernel.runstate import RunSnapshot, SqlRunState
from penstock.kernel.workers import Workers
from tests.conftest import open_db
from tests.fakes.pooler import TransactionPooler
from tests.servers.postgres import PostgresServer


@dataclass(frozen=True, kw_only=True)
class Said(Message):
    word: str


async def note(tx: Tx, key: str) -> None:
    """A row in the plainest table there is."""
    await tx.conn.execute(insert(rate_bucket).values(key=key, full_at=0))


async def notes(db: Db) -> list[str]:
    async with db.read() as tx:
        return list((await tx.conn.scalars(select(rate_bucket.c.key).order_by(rate_bucket.c.key))).all())


async def sent(db: Db) -> int:
    async with db.read() as tx:
        return await tx.conn.scalar(select(func.count()).select_from(outbox.outbox)) or 0


async def note_and_raise(db: Db, error: BaseException) -> None:
    async with db.tx() as tx:
        await note(tx, "a")
        tx.send(Said(word="a"))
        tx.wake("work")
        raise error


async def note_and_say(db: Db) -> None:
    async with db.tx() as tx:
        await note(tx, "a")
        tx.send(Said(word="a"))


async def let_others_run() -> None:
    """Long enough for whoever was woken to wake."""
    for _ in range(20):
        await asyncio.sleep(0)


class TestTransactions:
    async def test_a_transaction_is_kept_when_its_block_ends(self, db: Db):
        async with db.tx() as tx:
            await note(tx, "a")
            await note(tx, "b")
            assert await notes(db) == []
        assert await notes(db) == ["a", "b"]

    @pytest.mark.parametrize("error", [Invalid(reason="no"), ValueError("no"), asyncio.CancelledError()])
    async def test_nothing_of_it_is_kept_when_its_block_raises(self, db: Db, error: BaseException):
        with pytest.raises(type(error)):
            await note_and_raise(db, error)
        assert (await notes(db), await sent(db)) == ([], 0)

    async def test_an_error_of_ours_passes_through_as_it_is(self, db: Db):
        ours = Conflict(reason="someone was first")
        with pytest.raises(Conflict) as raised:
            await note_and_raise(db, ours)
        assert raised.value is ours

    async def test_a_bug_is_not_dressed_up_as_an_outage(self, db: Db):
        with pytest.raises(Exception, match="syntax") as raised:
            async with db.tx() as tx:
                await tx.conn.execute(text("SELEKT 1"))
        assert not isinstance(raised.value, DatabaseUnavailable)

    async def test_the_time_is_read_once(self, db: Db, clock: ManualClock):
        began_at = clock.now()
        async with db.tx() as tx:
            clock.advance(seconds=5)
            assert tx.now == began_at
        async with db.tx() as tx:
            assert tx.now == clock.now()

    async def test_new_ids_sort_in_the_order_they_were_made(self, db: Db):
        async with db.tx() as tx:
            ids = [tx.new_id("job") for _ in range(1000)]
        assert ids == sorted(set(ids))

    async def test_messages_are_kept_with_the_transaction(self, db: Db):
        async with db.tx() as tx:
            tx.send(Said(word="one"))
            tx.send(Said(word="two"))
            assert await sent(db) == 0
        assert await sent(db) == 2

    async def test_nothing_can_be_sent_without_an_outbox_and_nothing_is_kept_then(
        self, db_url: str, clock: ManualClock
    ):
        plain = Db.open(db_url, clock=clock, ids=TimeIds(clock))
        with pytest.raises(RuntimeError, match="without an outbox"):
            await note_and_say(plain)
        assert await notes(plain) == []
        await plain.close()

    async def test_what_is_said_while_only_reading_is_refused_not_lost(self, db: Db):
        with pytest.raises(RuntimeError, match="sent outside a transaction"):
            async with db.read() as tx:
                tx.send(Said(word="x"))

    async def test_those_who_wait_are_woken_by_the_commit_and_not_before(self, db: Db):
        listener = db.wakeups.listen(["work"])
        waiting = asyncio.create_task(listener.wait(seconds=3600))
        async with db.tx() as tx:
            tx.wake("work")
            await note(tx, "a")
            await let_others_run()
            assert not waiting.done()
        async with asyncio.timeout(5):
            await waiting

    async def test_a_rollback_wakes_nobody(self, db: Db):
        listener = db.wakeups.listen(["work"])
        waiting = asyncio.create_task(listener.wait(seconds=3600))
        with pytest.raises(Invalid):
            await note_and_raise(db, Invalid(reason="no"))
        await let_others_run()
        assert not waiting.done()
        waiting.cancel()

    async def test_fifty_transactions_at_once_all_succeed(self, db: Db):
        async def write(number: int) -> None:
            async with db.tx() as tx:
                await note(tx, f"{number:02}")
                await tx.conn.execute(select(func.count()).select_from(rate_bucket))

        await asyncio.gather(*(write(number) for number in range(50)))
        assert await notes(db) == [f"{number:02}" for number in range(50)]

    async def test_a_cancelled_transaction_gives_its_connection_back(self, db: Db):
        for _ in range(15):  # more than there are connections
            inside = asyncio.Event()
            task = asyncio.create_task(hold_open(db, inside))
            await inside.wait()
            task.cancel()
            await asyncio.wait([task])
        async with db.tx() as tx:
            await note(tx, "after")
        assert await notes(db) == ["after"]


async def hold_open(db: Db, inside: asyncio.Event) -> None:
    async with db.tx() as tx:
        await note(tx, "a")
        inside.set()
        await asyncio.Event().wait()


# A process of its own that writes: it begins, says so, waits for the word, commits.
WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("INSERT INTO rate_bucket (key, full_at) VALUES ('theirs', 0)")
print("holding", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
"""


class TestSqlite:
    @pytest.fixture
    async def db(self, sqlite_url: str, clock: ManualClock) -> AsyncIterator[Db]:
        db = open_db(sqlite_url, clock)
        yield db
        await db.close()

    async def test_commits_are_safe_and_readers_see_the_write_ahead_log(self, db: Db):
        for session in (db.tx, db.read):
            async with session() as tx:
                pragmas = [
                    await tx.conn.scalar(text(f"PRAGMA {name}"))
                    for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
                ]
            assert pragmas == ["wal", 2, 1, 10_000]

    async def test_a_reader_is_not_blocked_by_a_writer(self, db: Db):
        async with db.tx() as tx:
            await note(tx, "a")
            async with asyncio.timeout(5):
                assert await notes(db) == []
        assert await notes(db) == ["a"]

    async def test_a_writer_is_not_blocked_by_a_reader(self, db: Db):
        async with db.read() as reading:
            await reading.conn.scalar(select(func.count()).select_from(rate_bucket))
            async with asyncio.timeout(5), db.tx() as tx:
                await note(tx, "a")

    async def test_a_reader_cannot_write(self, db: Db):
        async with db.read() as tx:
            with pytest.raises(OperationalError, match="readonly"):
                await tx.conn.execute(delete(rate_bucket))

    async def test_a_writer_waits_for_another_process_and_then_goes_on(self, db: Db, sqlite_url: str):
        path = sqlite_url.removeprefix("sqlite:///")
        other = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, path, stdin=PIPE, stdout=PIPE)
        assert other.stdout is not None
        try:
            assert await other.stdout.readline() == b"holding\n"
            ours = asyncio.create_task(write_ours(db))
            assert await notes(db) == []
            done, _ = await asyncio.wait([ours], timeout=0.2)
            assert not done
            await other.communicate(b"go\n")
            async with asyncio.timeout(10):
                await ours
        finally:
            if other.returncode is None:
                other.kill()
        assert await notes(db) == ["ours", "theirs"]


async def write_ours(db: Db) -> None:
    async with db.tx() as tx:
        await note(tx, "ours")


async def planner_settings(conn: AsyncConnection) -> list[str]:
    return [await conn.scalar(text(f"SHOW {name}")) for name in PLANNER_SETTINGS]


class TestBehindAPooler:
    """A transaction pooler gives every transaction another server connection, so nothing may be kept on one."""

    @pytest.fixture
    async def db(self, postgres_server: PostgresServer, clock: ManualClock) -> AsyncIterator[Db]:
        assert isinstance(postgres_server, PostgresServer), "the pooler needs the Unix socket of a server of our own"
        postgres_server.drop_database("pooled")
        postgres_server.create_database("pooled")
        async with TransactionPooler(postgres_server.socket_folder, "pooled", size=3) as pooler:
            db = open_db(pooler.url, clock, pooled=True)
            assert await pending(db)
            await migrate(db)
            assert await pending(db) == []
            yield db
            await db.close()
            assert len(pooler.backend_pids) == 3
        postgres_server.drop_database("pooled")

    async def test_the_planner_settings_are_those_of_the_transaction_and_stay_in_it(self, db: Db):
        for opened in (db.tx, db.read, db.autocommit):
            async with opened() as tx:
                assert await planner_settings(tx.conn) == list(PLANNER_SETTINGS.values())
        async with db._writer.connect() as conn:
            assert await planner_settings(conn) == ["on", "4", "on"]

    async def test_jobs_are_enqueued_claimed_settled_and_read(self, db: Db, clock: ManualClock):
        queue, done = JobQueue(), []

        async def work(job):
            done.append(job.id)

        for _ in range(4):  # each statement more often than there are server connections
            async with db.tx() as tx:
                ids = await queue.enqueue(tx, *(NewJob(kind="k") for _ in range(10)), NewJob(kind="k", delay_seconds=5))
            clock.advance(seconds=10)
            assert await Workers(db, queue, {"k": work}, owner="w").run_until_empty() == 11
            async with db.read() as tx:
                assert [(await get_job(tx, job_id)).state for job_id in ids] == [JobState.DONE] * 11
        assert len(set(done)) == 44

    async def test_many_clients_at_once_do_not_meet(self, db: Db):
        queue = JobQueue()

        async def enqueue_and_claim() -> list[str]:
            async with db.tx() as tx:
                await queue.enqueue(tx, NewJob(kind="k"))
            async with db.tx() as tx:
                return [job.id for job in await queue.claim(tx, owner="w", seconds=60, limit=1)]

        claimed = list(chain(*await asyncio.gather(*(enqueue_and_claim() for _ in range(30)))))
        assert len(claimed) == len(set(claimed))

    async def test_messages_are_sent_and_delivered(self, db: Db):
        heard = []

        async def hear(tx: Tx, message: Said) -> None:
            heard.append(message.word)

        relay = Relay(db, {Said: [hear]}, owner="relay")
        for word in ("one", "two", "three", "four"):
            async with db.tx() as tx:
                tx.send(Said(word=word))
            assert await relay.deliver() == 1
        assert heard == ["one", "two", "three", "four"]

    async def test_run_state_is_put_and_read(self, db: Db):
        runs = SqlRunState(db, live_seconds=60, final_seconds=60)
        for order in range(1, 5):
            await runs.put(RunSnapshot(key="a", run=1, order=order, status="processing"))
            entry = await runs.get("a")
            assert entry is not None
            assert entry.order == order

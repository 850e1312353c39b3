"""Database access: SQLite on a laptop, PostgreSQL at scale, one code path.

`Db.tx()` opens a transaction and yields a `Tx`: the connection, the time (read once), new ids, and `send`. Everything
done with one `Tx` commits or rolls back as a whole, including its messages, events and wake-ups.

SQLite has a single writer: a pool of one connection that starts with BEGIN IMMEDIATE. Writers of one process queue up
fairly; writers of different processes wait for each other up to `BUSY_SECONDS`. Readers have their own connections.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncConnection

from penstock.kernel.clock import Clock
from penstock.kernel.database_errors import translate_database_errors
from penstock.kernel.dialect.engines import DatabaseEngines, checked_out, database_name, transaction
from penstock.kernel.dialect.watchdog import in_request
from penstock.kernel.ids import Ids
from penstock.kernel.message import Event, Message
from penstock.kernel.wakeups import Wakeups

NOT_WATCHED: AbstractAsyncContextManager[None] = nullcontext()

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    }
)


@dataclass
class Tx:
    """One transaction. `now` is fixed when it opens; `actor` is recorded with state changes."""

    conn: AsyncConnection
    now: datetime
    actor: str
    ids: Ids
    hops: int = 0  # of the messages sent from now on: how many messages led to this one, each handled in turn
    sent: list[tuple[Message, int]] = field(default_factory=list)  # with their hops
    events: list[Event] = field(default_factory=list)
    woken: set[str] = field(default_factory=set)
    after_commit: list[Callable[[], None]] = field(default_factory=list)  # called after a successful commit only

    def new_id(self, prefix: str) -> str:
        """A new id that sorts after the earlier ones."""
        return self.ids.new(prefix)

    def send(self, message: Message) -> None:
        """Send a message to its handlers, if and only if this transaction commits."""
        self.sent.append((message, self.hops))

    def publish(self, event: Event) -> None:
        """Publish an event to live streams, if and only if this transaction commits."""
        self.events.append(event)

    @property
    def on_postgres(self) -> bool:
        """Whether this is PostgreSQL."""
        return self.conn.dialect.name == "postgresql"

    def wake(self, channel: str) -> None:
        """Wake the listeners of a channel after the commit."""
        self.woken.add(channel)


Post = Callable[[Tx, Sequence[tuple[Message, int]]], Awaitable[None]]
Publish = Callable[[Tx, Sequence[Event]], Awaitable[None]]


async def _no_outbox(_tx: Tx, messages: Sequence[tuple[Message, int]]) -> None:
    raise RuntimeError(f"this database was opened without an outbox, so {messages[0][0]} cannot be sent")


async def _no_events(_tx: Tx, events: Sequence[Event]) -> None:
    raise RuntimeError(f"this database was opened without an event stream, so {events[0]} cannot be published")


class Db:
    """A database. Create it with `Db.open`, close it with `close`."""

    def __init__(self, engines: DatabaseEngines, *, clock: Clock, ids: Ids, post: Post, publish: Publish) -> None:
        self.clock = clock
        self.ids = ids
        self.wakeups = Wakeups(clock)
        self._writer = engines.writer
        self._reader = engines.reader
        self._watchdog = engines.watchdog
        self._autocommit = engines.autocommit
        self._post = post
        self._publish = publish
        self._report: Callable[[Tx], object] = self._run_after_commit
        url = engines.writer.url
        # Tells this database from others, by its address. One database may have several addresses.
        self.identity = hashlib.sha256(f"{url.host}:{url.port}/{url.database}".encode()).hexdigest()[:16]

    @classmethod
    def open(
        cls,
        url: str,
        *,
        clock: Clock,
        ids: Ids,
        post: Post = _no_outbox,
        publish: Publish = _no_events,
        pooled: bool = False,
        connections: int = 10,
    ) -> "Db":
        """Open a database by its URL. It connects at the first use, so an unreachable database is found only then."""
        engines = DatabaseEngines.open(url, pooled=pooled, connections=connections)
        return cls(engines, clock=clock, ids=ids, post=post, publish=publish)

    @property
    def on_postgres(self) -> bool:
        """Whether this is PostgreSQL."""
        return self.database_name == "postgresql"

    @property
    def database_name(self) -> str:
        """The name of the database, to show: "postgresql" or "sqlite"."""
        return database_name(self._writer)

    @asynccontextmanager
    async def tx(self, *, actor: str = "system") -> AsyncIterator[Tx]:
        """A transaction that commits at the end of the block, or rolls back when the block raises."""
        with translate_database_errors():
            async with self._watched(), checked_out(self._writer) as conn, transaction(conn):
                tx = self._tx(conn, actor)
                yield tx
                if tx.sent:
                    await self._post(tx, tx.sent)
                if tx.events:  # last: their insert order is that of transactions that depend on each other
                    await self._publish(tx, tx.events)
        self._report(tx)

    @asynccontextmanager
    async def autocommit(self, *, actor: str = "system") -> AsyncIterator[Tx]:
        """Run a single statement without BEGIN and COMMIT: one round trip instead of three. Messages cannot be sent.

        Each further statement commits by itself, so use this only where an interruption between them is harmless.
        """
        if not self._autocommit:
            async with self.tx(actor=actor) as tx:
                yield tx
            return
        with translate_database_errors():
            async with self._watched(), checked_out(self._writer) as conn:
                tx = self._tx(conn, actor)
                yield tx
        _refuse_sent(tx)
        self._report(tx)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Tx]:
        """Read-only statements. Several of them may see different snapshots; use `tx` where they must not."""
        with translate_database_errors():
            async with self._watched(), checked_out(self._reader) as conn:
                tx = self._tx(conn, "reader")
                async with nullcontext() if self._autocommit else transaction(conn):
                    yield tx
        _refuse_sent(tx)

    def _watched(self) -> AbstractAsyncContextManager[None]:
        """A request does not wait for a server that has stopped answering; a worker does."""
        return self._watchdog.watched() if self._watchdog is not None and in_request.get() else NOT_WATCHED

    def report_commits_to(self, other: "Db", loop: asyncio.AbstractEventLoop) -> None:
        """Let another database object of the process run what a commit triggers, on its own event loop."""

        def report(tx: Tx) -> None:
            loop.call_soon_threadsafe(other._run_after_commit, tx)

        self._report = report

    @asynccontextmanager
    async def writer_turn(self) -> AsyncIterator[None]:
        """Keep the only writer's connection of this process on SQLite while another object of it writes: its lock is
        not fair, and many long transactions would keep everyone else out. On PostgreSQL there is nothing to wait for.
        """
        if self.on_postgres:
            yield
            return
        with translate_database_errors():
            async with checked_out(self._writer):
                yield

    def _tx(self, conn: AsyncConnection, actor: str) -> Tx:
        return Tx(conn=conn, now=self.clock.now(), actor=actor, ids=self.ids)

    def _run_after_commit(self, tx: Tx) -> None:
        for callback in tx.after_commit:
            callback()
        for channel in tx.woken:
            self.wakeups.wake(channel)

    async def close(self) -> None:
        """Close all connections."""
        if self._watchdog is not None:
            await self._watchdog.close()
        await self._writer.dispose()
        if self._reader is not self._writer:
            await self._reader.dispose()


def _refuse_sent(tx: Tx) -> None:
    """Outside a transaction, messages and events would be lost silently."""
    if sent := [*(message for message, _ in tx.sent), *tx.events]:
        raise RuntimeError(f"{sent[0]} was sent outside a transaction and is lost")

"""The database: SQLite on a laptop, PostgreSQL at scale, one code.

`Db.tx()` opens a transaction and gives a `Tx`: the connection, the time (read once), new ids, and `send`.
Everything done with one `Tx` happens or does not happen as a whole, the messages it sent included.

SQLite has one writer: a pool of one connection that begins with BEGIN IMMEDIATE, so writers of this process queue up
fairly, and writers of other processes wait for each other up to `BUSY_SECONDS`. Readers have their own connections.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncConnection

from penstock.kernel.clock import Clock
from penstock.kernel.engines import Engines, connected, transaction
from penstock.kernel.faults import named_faults
from penstock.kernel.ids import Ids
from penstock.kernel.message import Event, Message
from penstock.kernel.wakeups import Wakeups

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
    """One transaction. `now` does not move while it is open; `actor` is who acts, for the record."""

    conn: AsyncConnection
    now: datetime
    actor: str
    ids: Ids
    sent: list[Message] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    woken: set[str] = field(default_factory=set)
    after: list[Callable[[], None]] = field(default_factory=list)  # done when the commit is, and only then

    def new_id(self, prefix: str) -> str:
        """A new id that sorts after the earlier ones."""
        return self.ids.new(prefix)

    def send(self, message: Message) -> None:
        """Say it to whoever listens, when and only when this transaction commits."""
        self.sent.append(message)

    def tell(self, event: Event) -> None:
        """Add an event to the stream that people watch, when and only when this transaction commits."""
        self.events.append(event)

    def wake(self, channel: str) -> None:
        """After the commit, wake those who wait for work on this channel."""
        self.woken.add(channel)

    @property
    def on_postgres(self) -> bool:
        """Whether this is PostgreSQL; only the kernel asks."""
        return self.conn.dialect.name == "postgresql"


Post = Callable[[Tx, Sequence[Message]], Awaitable[None]]
Publish = Callable[[Tx, Sequence[Event]], Awaitable[None]]


async def _nobody_listens(_tx: Tx, messages: Sequence[Message]) -> None:
    raise RuntimeError(f"this database was opened without an outbox, so {messages[0]} cannot be sent")


async def _nobody_watches(_tx: Tx, events: Sequence[Event]) -> None:
    raise RuntimeError(f"this database was opened without an event stream, so {events[0]} cannot be told")


class Db:
    """An open database. Build it with `Db.open`, close it with `close`."""

    def __init__(self, engines: Engines, *, clock: Clock, ids: Ids, post: Post, publish: Publish) -> None:
        self.clock = clock
        self.ids = ids
        self.wakeups = Wakeups(clock)
        self._writer = engines.writer
        self._reader = engines.reader
        self._commits_each = engines.commits_each
        self._post = post
        self._publish = publish

    @classmethod
    def open(
        cls,
        url: str,
        *,
        clock: Clock,
        ids: Ids,
        post: Post = _nobody_listens,
        publish: Publish = _nobody_watches,
        pooled: bool = False,
        connections: int = 10,
    ) -> "Db":
        """Open a database by its URL. Nothing is connected yet; a database that is away shows at the first use."""
        engines = Engines.open(url, pooled=pooled, connections=connections)
        return cls(engines, clock=clock, ids=ids, post=post, publish=publish)

    @property
    def on_postgres(self) -> bool:
        """Whether this is PostgreSQL."""
        return self._writer.dialect.name == "postgresql"

    @asynccontextmanager
    async def tx(self, *, actor: str = "system") -> AsyncIterator[Tx]:
        """A transaction that commits at the end of the block, or rolls back when the block raises."""
        with named_faults():
            async with connected(self._writer) as conn, transaction(conn):
                tx = self._tx(conn, actor)
                yield tx
                if tx.sent:
                    await self._post(tx, tx.sent)
                if tx.events:  # last: it takes the lock that puts events in the order of their commits
                    await self._publish(tx, tx.events)
        self._ring(tx)

    @asynccontextmanager
    async def once(self, *, actor: str = "system") -> AsyncIterator[Tx]:
        """A transaction of one statement: one round trip instead of three. Nothing can be sent with it.

        A second statement would be a transaction of its own: this is for verbs that need one, or may be cut in between.
        """
        if not self._commits_each:
            async with self.tx(actor=actor) as tx:
                yield tx
            return
        with named_faults():
            async with connected(self._writer) as conn:
                tx = self._tx(conn, actor)
                yield tx
        _refuse_sent(tx)
        self._ring(tx)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Tx]:
        """Statements that only read. Do not count on several of them seeing one picture: for that, use `tx`."""
        with named_faults():
            async with connected(self._reader) as conn:
                tx = self._tx(conn, "reader")
                async with nullcontext() if self._commits_each else transaction(conn):
                    yield tx
        _refuse_sent(tx)

    def _tx(self, conn: AsyncConnection, actor: str) -> Tx:
        return Tx(conn=conn, now=self.clock.now(), actor=actor, ids=self.ids)

    def _ring(self, tx: Tx) -> None:
        for hint in tx.after:
            hint()
        for channel in tx.woken:
            self.wakeups.wake(channel)

    async def close(self) -> None:
        """Give every connection back."""
        await self._writer.dispose()
        if self._reader is not self._writer:
            await self._reader.dispose()


def _refuse_sent(tx: Tx) -> None:
    """What is said where nothing is committed with it would be lost without a word."""
    if said := [*tx.sent, *tx.events]:
        raise RuntimeError(f"{said[0]} was sent outside a transaction and is lost")

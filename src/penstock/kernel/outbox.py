"""The transactional outbox: a message is a row of the transaction that sends it, and the relay delivers it afterwards.

    waiting → sending → sent
                      → waiting (retried later, with backoff)
                      → dead    (failed for good: a dead letter, which an operator can list and resend)

A handler runs in the transaction that marks the message sent: both commit or neither does, so the database writes of
a handler happen once even if the relay is killed. Messages with the same (channel, dedup_key) are one message.

Messages for external systems go through a `Carrier`: it calls the external system first, with no transaction open, and
the callback it returns runs in the transaction that marks the message sent. If the process is killed in between, the
carrier is called again with the same parcel, so carriers must be idempotent.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

from sqlalchemy import (
    CheckConstraint,
    Column,
    Index,
    String,
    Table,
    UniqueConstraint,
    delete,
    literal_column,
    select,
    update,
)

from penstock.kernel.bulk import insert_new
from penstock.kernel.columns import Id, Json, UtcTime
from penstock.kernel.compiled_statement import LeasedRow
from penstock.kernel.db import Db, Tx, metadata
from penstock.kernel.errors import NotFound, PenstockError, Unavailable, error_text
from penstock.kernel.json_object import JsonObject
from penstock.kernel.lease_sql import LeaseStates, lease_columns, lease_constraints, lease_indexes
from penstock.kernel.leases import Leases
from penstock.kernel.machine import Machine
from penstock.kernel.message import Message
from penstock.kernel.retry import Backoff, poll_forever, wait_before_retry, worth_retrying
from penstock.kernel.shielding import run_shielded
from penstock.kernel.transitions import record

log = logging.getLogger(__name__)


class OutboxState(StrEnum):
    """The states of an outbox message; `OUTBOX` describes each."""

    WAITING = "waiting"
    SENDING = "sending"
    SENT = "sent"
    DEAD = "dead"


OUTBOX = Machine(
    "outbox message",
    {
        "claim": ({OutboxState.WAITING}, OutboxState.SENDING),
        "deliver": ({OutboxState.SENDING}, OutboxState.SENT),
        "retry": ({OutboxState.SENDING}, OutboxState.WAITING),
        "expire": ({OutboxState.SENDING}, OutboxState.WAITING),
        "bury": ({OutboxState.SENDING}, OutboxState.DEAD),
        "resend": ({OutboxState.DEAD}, OutboxState.WAITING),
    },
    start=OutboxState.WAITING,
    words={
        OutboxState.WAITING: "Committed with the change it reports; delivered when due.",
        OutboxState.SENDING: "A relay holds it under a lease and is delivering it.",
        OutboxState.SENT: "Every handler succeeded.",
        OutboxState.DEAD: "Delivery failed for good, or too often. An operator can resend the dead letter.",
    },
)
LEASE_STATES = LeaseStates(column="state", waiting=OutboxState.WAITING, held=OutboxState.SENDING)

outbox = Table(
    "outbox",
    metadata,
    Column("id", Id, primary_key=True),
    Column("channel", String, nullable=False),  # the message's class name
    Column("dedup_key", String, nullable=False),
    Column("payload", Json, nullable=False),
    Column("state", String, nullable=False, server_default=OutboxState.WAITING),
    *lease_columns(),
    Column("created_at", UtcTime, nullable=False),
    Column("finished_at", UtcTime),
    Column("error", String),
    UniqueConstraint("channel", "dedup_key"),
    CheckConstraint("state IN ('waiting', 'sending', 'sent', 'dead')", name="state"),
    *lease_constraints(LEASE_STATES),
)
lease_indexes(outbox, LEASE_STATES)
# Constants, not parameters, here and in the statements below: the planner then matches the partial index.
_sent = outbox.c.state == literal_column("'sent'")
_dead = outbox.c.state == literal_column("'dead'")
Index("ix_outbox_sent", outbox.c.finished_at, postgresql_where=_sent, sqlite_where=_sent)
Index("ix_outbox_dead", outbox.c.id, postgresql_where=_dead, sqlite_where=_dead)

COLUMNS = ("id", "channel", "dedup_key", "payload", "scheduled_at", "created_at")
RETRIES = Backoff(first_seconds=1, max_seconds=600)
LEASE_SECONDS = 60
UNKNOWN_AGE = timedelta(hours=1)  # longer than a rolling upgrade takes
OUTAGE_WAIT_SECONDS = 5  # before the next try during an internal outage

Handler = Callable[[Tx, Any], Awaitable[None]]
Routes = Mapping[type[Message], Sequence[Handler]]


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """A message with its outbox metadata. The id is the same at every attempt."""

    id: str
    channel: str
    dedup_key: str
    payload: JsonObject
    created_at: datetime


class Carrier(Protocol):
    """Delivers messages of some channels to an external system."""

    channels: Collection[str]

    async def carry(self, parcel: Parcel) -> Callable[[Tx], Awaitable[None]] | None:
        """Deliver it; the returned callback runs in the transaction that marks the message sent."""
        ...


class NoSuchMessage(NotFound):
    """No dead letter has that id."""

    code = "NO_SUCH_MESSAGE"
    message = "Dead letter {id} not found."
    message_zh = "没有死信 {id}。"


class NobodyListens(PenstockError):
    """No handler is routed for the class of a message: it was renamed or removed while messages were waiting."""

    code = "NOBODY_LISTENS"
    message = "No handler is routed for messages of class {channel}."
    message_zh = "没有为 {channel} 类消息配置处理程序。"
    hint = "Add a route for the class in wiring/modules.py, then send the dead letters again."
    hint_zh = "请在 wiring/modules.py 中为该类配置路由，然后重新发送死信。"


class RelayLost(PenstockError):
    """The lease of a message expired in every attempt."""

    code = "RELAY_LOST"
    message = "The relay stopped responding in each of {attempts} attempts."
    message_zh = "在全部 {attempts} 次尝试中，转发进程都失去了响应。"
    hint = "Find out what kills the process while it handles this message, then send it again."
    hint_zh = "请找出处理该消息时导致进程终止的原因，然后重新发送。"


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A message that could not be delivered."""

    id: str
    channel: str
    dedup_key: str
    payload: JsonObject
    attempts: int
    error: str
    died_at: datetime


async def post(tx: Tx, messages: Sequence[Message]) -> None:
    """Insert messages in this transaction; one whose (channel, dedup_key) exists is dropped."""
    rows = []
    for message in messages:
        message_id = tx.new_id("msg")
        key = message.dedup_key() or message_id
        rows.append((message_id, type(message).__name__, key, asdict(message), tx.now, tx.now))
    await insert_new(tx, outbox, COLUMNS, rows)
    tx.wake(outbox.name)


class Relay:
    """Delivers outbox messages to their handlers and carriers."""

    def __init__(
        self, db: Db, routes: Routes, *, carriers: Sequence[Carrier] = (), owner: str, max_attempts: int = 10
    ) -> None:
        self.leases = Leases(outbox, LEASE_STATES)
        self._db = db
        self._routes = {cls.__name__: (cls, handlers) for cls, handlers in routes.items()}
        self._carriers = carriers
        self._owner = owner
        self._max_attempts = max_attempts

    async def run(self) -> None:
        """Deliver messages until cancelled."""
        listener = self._db.wakeups.listen([self.leases.channel])

        async def wait(delivered: int) -> None:
            if not delivered:
                await listener.wait(seconds=self.leases.seconds_until_poll(self._db.clock.now()))

        try:
            await poll_forever(self._db.clock, self.deliver, wait, warning="relay: cannot deliver messages")
        finally:
            self._db.wakeups.unlisten(listener)

    async def deliver(self, *, limit: int = 50) -> int:
        """Deliver up to `limit` due messages, one after another; returns how many were claimed."""
        claim = self.leases.claim_autocommit(self._db, owner=self._owner, seconds=LEASE_SECONDS, limit=limit)
        held = await run_shielded(claim, undo=self._hand_back)
        too_late = self._db.clock.now() + timedelta(seconds=LEASE_SECONDS / 2)
        for number, row in enumerate(held):
            if self._db.clock.now() > too_late:  # slow handlers: leave the rest to the next claim
                await self._hand_back(held[number:])
                return number
            try:
                await self._deliver_one(row)
            except asyncio.CancelledError:
                await self._hand_back(held[number:])
                raise
            except Exception as error:  # noqa: BLE001  (any error of a handler decides what happens to the message)
                try:
                    await self._put_off(row, error)
                except Unavailable:
                    await self._hand_back(held[number:])
                    raise
        return len(held)

    async def rescue(self, tx: Tx) -> None:
        """Requeue messages whose lease expired."""
        await self.leases.expire(tx)

    async def _deliver_one(self, row: LeasedRow) -> None:
        if row.lease_count > self._max_attempts:  # it kills its relays, so no failure was ever recorded
            raise RelayLost(attempts=self._max_attempts)
        carriers = [carrier for carrier in self._carriers if row.channel in carrier.channels]
        if row.channel not in self._routes and not carriers:
            raise NobodyListens(channel=row.channel)
        written = [await carrier.carry(_parcel(row)) for carrier in carriers]
        async with self._db.tx(actor=self._owner) as tx:
            await self.leases.settle(tx, [row.id], row.lease_token, state=OutboxState.SENT, finished_at=tx.now)
            await self._handle(tx, row)
            for write in filter(None, written):
                await write(tx)

    async def _handle(self, tx: Tx, row: LeasedRow) -> None:
        if row.channel not in self._routes:
            return
        cls, handlers = self._routes[row.channel]
        for handler in handlers:
            await handler(tx, cls(**row.payload))

    async def _hand_back(self, rows: Sequence[LeasedRow]) -> None:
        """Return messages that were not tried, without waiting for their lease and without using up an attempt."""
        if not rows:
            return
        try:
            async with self._db.autocommit(actor=self._owner) as tx:
                await self.leases.release(tx, [row.id for row in rows], rows[0].lease_token, uncounted=1)
        except Unavailable as error:
            log.warning("relay: cannot hand back %d messages: %s", len(rows), error)

    async def _put_off(self, row: LeasedRow, error: Exception) -> None:
        text = f"{type(error).__name__}: {error_text(error)}"
        async with self._db.tx(actor=self._owner) as tx:
            # A message class that this version does not know waits for a newer version that runs at the same time.
            young = isinstance(error, NobodyListens) and tx.now - row.created_at < UNKNOWN_AGE
            outage = young or (isinstance(error, PenstockError) and error.internal_outage)
            if outage or (worth_retrying(error) and row.lease_count < self._max_attempts):
                wait = wait_before_retry(error, attempt=max(1, row.lease_count), backoff=RETRIES)
                due_at = tx.now + timedelta(seconds=OUTAGE_WAIT_SECONDS if outage else wait)
                await self.leases.release(
                    tx, [row.id], row.lease_token, due_at=due_at, uncounted=int(outage), error=text
                )
                return
            why = {"finished_at": tx.now, "error": text}
            if await self.leases.try_settle(tx, [row.id], row.lease_token, state=OutboxState.DEAD, **why):
                await record(tx, OUTBOX.name, [row.id], OutboxState.SENDING, OutboxState.DEAD, "bury")


def _parcel(row: LeasedRow) -> Parcel:
    return Parcel(**{name: getattr(row, name) for name in Parcel.__dataclass_fields__})


async def list_dead_letters(tx: Tx, *, after: str = "", limit: int = 100) -> Sequence[DeadLetter]:
    """Dead letters by id, starting after `after`."""
    o = outbox.c
    mine = select(o.id, o.channel, o.dedup_key, o.payload, o.lease_count, o.error, o.finished_at)
    rows = await tx.conn.execute(mine.where(_dead, o.id > after).order_by(o.id).limit(limit))
    return [DeadLetter(**dict(zip(DeadLetter.__dataclass_fields__, row, strict=True))) for row in rows]


async def resend(tx: Tx, message_id: str) -> None:
    """Requeue a dead letter and reset its attempts."""
    fresh = {"state": "waiting", "finished_at": None, "error": None, "lease_count": 0, "scheduled_at": tx.now}
    statement = update(outbox).where(outbox.c.id == message_id, outbox.c.state == "dead")
    if (await tx.conn.execute(statement.values(fresh))).rowcount != 1:
        raise NoSuchMessage(id=message_id)
    await record(tx, OUTBOX.name, [message_id], OutboxState.DEAD, OutboxState.WAITING, "resend")
    tx.wake(outbox.name)


async def delete_dead(tx: Tx, *, before: datetime, limit: int = 10_000) -> int:
    """Delete dead letters that failed before then; returns how many."""
    o = outbox.c
    old = (_dead, o.finished_at < before)
    some = select(o.id).where(*old).order_by(o.id).limit(limit)
    return (await tx.conn.execute(delete(outbox).where(o.id.in_(some), *old))).rowcount


async def delete_sent(tx: Tx, *, before: datetime, limit: int = 10_000) -> int:
    """Delete messages that were delivered before then; returns how many. Dead letters stay."""
    o = outbox.c
    old = select(o.id).where(_sent, o.finished_at < before).order_by(o.finished_at).limit(limit)
    return (await tx.conn.execute(delete(outbox).where(o.id.in_(old)))).rowcount

"""The transactional outbox: a message is a row of the transaction that sends it, and the relay delivers it afterwards.

    waiting → sending → sent
                      → waiting (retried later, with backoff)
                      → dead    (failed for good: a dead letter, which an operator can list and resend)

Messages with the same (channel, dedup_key) are one message. `relay.py` delivers them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    CheckConstraint,
    Column,
    ColumnElement,
    Index,
    Integer,
    Row,
    Select,
    String,
    Table,
    UniqueConstraint,
    delete,
    literal_column,
    select,
    update,
)

from penstock.kernel.columns import Id, Json, UtcTime
from penstock.kernel.db import Tx, metadata
from penstock.kernel.dialect.bulk import insert_new, insert_rows
from penstock.kernel.dialect.sql import any_of
from penstock.kernel.errors import NotFound
from penstock.kernel.json_object import JsonObject
from penstock.kernel.lease_sql import LeaseStates, lease_columns, lease_constraints, lease_indexes
from penstock.kernel.machine import Machine
from penstock.kernel.message import Message
from penstock.kernel.transitions import record


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
    Column("hops", Integer, nullable=False, server_default="0"),  # messages that led to this one, each handled in turn
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
Index("ix_outbox_dead_channel", outbox.c.channel, outbox.c.id, postgresql_where=_dead, sqlite_where=_dead)

COLUMNS = ("id", "channel", "dedup_key", "payload", "hops", "scheduled_at", "created_at")


@dataclass(frozen=True, kw_only=True)
class OutboxMessage:
    """A message with its outbox metadata. The id is the same at every attempt."""

    id: str
    channel: str
    dedup_key: str
    payload: JsonObject
    created_at: datetime


class NoSuchMessage(NotFound):
    """No dead letter has that id."""

    code = "NO_SUCH_MESSAGE"
    message = "Dead letter {id} not found."
    message_zh = "没有死信 {id}。"


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A message that could not be delivered."""

    id: str
    channel: str
    dedup_key: str
    payload: JsonObject
    hops: int
    attempts: int
    error: str
    created_at: datetime
    died_at: datetime


@dataclass(frozen=True, kw_only=True)
class DeadLetterFilter:
    """Which dead letters to list; None means any. `error` is a text that the error contains."""

    channel: str | None = None
    error: str | None = None
    since: datetime | None = None  # when it died: from `since`, before `until`
    until: datetime | None = None

    def shown(self) -> dict[str, str]:
        """The given filters as text, for the audit log."""
        return {name: str(value) for name, value in vars(self).items() if value is not None}

    def conditions(self) -> list[ColumnElement[bool]]:
        """The filter in SQL."""
        found: list[ColumnElement[bool]] = []
        if self.channel is not None:
            found.append(outbox.c.channel == self.channel)
        if self.error is not None:
            found.append(outbox.c.error.icontains(self.error, autoescape=True))
        if self.since is not None:
            found.append(outbox.c.finished_at >= self.since)
        if self.until is not None:
            found.append(outbox.c.finished_at < self.until)
        return found


ANY_DEAD_LETTER = DeadLetterFilter()


async def post(tx: Tx, messages: Sequence[tuple[Message, int]]) -> None:
    """Insert messages, each with its hops, in this transaction; one whose (channel, dedup_key) exists is dropped."""
    rows, are_unique = [], True
    for message, hops in messages:
        message_id, key = tx.new_id("msg"), message.dedup_key()
        are_unique = are_unique and key is None
        rows.append((message_id, type(message).__name__, key or message_id, vars(message), hops, tx.now, tx.now))
    if are_unique:  # generated ids cannot conflict, and a plain insert is much faster
        await insert_rows(tx, outbox, COLUMNS, rows)
    else:
        await insert_new(tx, outbox, COLUMNS, rows)
    tx.wake(outbox.name)


async def list_dead_letters(
    tx: Tx, chosen: DeadLetterFilter = ANY_DEAD_LETTER, *, before: str | None = None, limit: int = 100
) -> Sequence[DeadLetter]:
    """Dead letters, newest message first; the next page is `before` the id of the last one of this page."""
    newest = _dead_letters(chosen).order_by(outbox.c.id.desc()).limit(limit)
    if before is not None:
        newest = newest.where(outbox.c.id < before)
    return [_dead_letter(row) for row in await tx.conn.execute(newest)]


async def get_dead_letter(tx: Tx, message_id: str) -> DeadLetter:
    """A dead letter by its id; raises `NoSuchMessage`."""
    row = (await tx.conn.execute(_dead_letters(ANY_DEAD_LETTER).where(outbox.c.id == message_id))).one_or_none()
    if row is None:
        raise NoSuchMessage(id=message_id)
    return _dead_letter(row)


async def resend(tx: Tx, message_id: str) -> None:
    """Requeue a dead letter and reset its attempts and hops."""
    if not await _resend(tx, [message_id]):
        raise NoSuchMessage(id=message_id)


async def resend_dead_letters(tx: Tx, chosen: DeadLetterFilter, *, limit: int) -> list[str]:
    """Requeue up to `limit` dead letters, the oldest messages first; returns their ids.

    With `until`, a message that dies again is not found again: repeat the call until it returns fewer than `limit`.
    """
    oldest = select(outbox.c.id).where(_dead, *chosen.conditions()).order_by(outbox.c.id).limit(limit)
    found = (await tx.conn.scalars(oldest.with_for_update(skip_locked=True))).all()
    return await _resend(tx, found) if found else []


async def _resend(tx: Tx, ids: Sequence[str]) -> list[str]:
    fresh = {"state": OutboxState.WAITING, "finished_at": None, "error": None, "lease_count": 0, "hops": 0}
    these = update(outbox).where(any_of(outbox.c.id, ids), _dead).values(**fresh, scheduled_at=tx.now)
    resent = sorted((await tx.conn.scalars(these.returning(outbox.c.id))).all())
    await record(tx, OUTBOX.name, resent, OutboxState.DEAD, OutboxState.WAITING, "resend")
    tx.wake(outbox.name)
    return resent


def _dead_letters(chosen: DeadLetterFilter) -> Select[Any]:
    o = outbox.c
    columns = (o.id, o.channel, o.dedup_key, o.payload, o.hops, o.lease_count, o.error, o.created_at, o.finished_at)
    return select(*columns).where(_dead, *chosen.conditions())


def _dead_letter(row: Row[Any]) -> DeadLetter:
    return DeadLetter(**dict(zip(DeadLetter.__dataclass_fields__, row, strict=True)))


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

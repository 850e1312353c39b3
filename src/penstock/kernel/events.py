"""The event log behind live streams.

Clients watch events; modules send each other messages. A verb calls `tx.publish(Event(…))`, and `insert_events` inserts
the events as the last statement of the transaction. Readers continue after the last id they saw. That misses nothing
only if ids become visible in order, which a sequence does not guarantee: it draws an id before the commit, and a
transaction with a smaller id may commit later.

So on PostgreSQL a transaction inserts into `event_inbox`, without an id and without a lock, and a sequencer
(`sequencer.py`) moves committed events into `event`, where they get their ids. SQLite has a single writer, which
inserts into `event` directly.

Events are deleted oldest first and the newest is never deleted, so the oldest id tells a reader whether it may have
missed events.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import msgspec
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Identity,
    Index,
    Integer,
    Select,
    String,
    Table,
    delete,
    func,
    literal,
    select,
    text,
    tuple_,
    union_all,
)

from penstock.kernel.columns import Id, Json, UtcTime, to_json
from penstock.kernel.db import Tx, metadata
from penstock.kernel.dialect.bulk import insert_rows
from penstock.kernel.dialect.sql import has_single_writer
from penstock.kernel.errors import Invalid, TooLarge
from penstock.kernel.json_object import JsonObject
from penstock.kernel.message import Event

MAX_BYTES = 16 * 1024  # of data as JSON: an event says that something changed and does not carry it
MAX_ID = 2**63 - 1
MAX_NAME_LENGTH = 255
MAX_KIND_LENGTH = 64
RESET = "reset"  # the stream's own event that says that events are missing; no event may use this kind
RESERVED_FIELDS = ("topic", "at")  # the fields that a stream adds to an event's data

XID = text("(CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT))")  # there is no direct cast


def _checks() -> list[CheckConstraint]:
    return [
        CheckConstraint(f"length(topic) BETWEEN 1 AND {MAX_NAME_LENGTH}", name="topic"),
        CheckConstraint(f"length(kind) BETWEEN 1 AND {MAX_KIND_LENGTH}", name="kind"),
        CheckConstraint(f"length(audience) <= {MAX_NAME_LENGTH}", name="audience"),
    ]


event = Table(
    "event",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(), primary_key=True),
    Column("topic", Id, nullable=False),
    Column("kind", String, nullable=False),
    Column("audience", Id, nullable=False),
    Column("data", Json, nullable=False),
    Column("at", UtcTime, nullable=False),
    *_checks(),
    Index("ix_event_topic", "topic", "id"),
    Index("ix_event_audience", "audience", "id"),
    Index("ix_event_topic_audience", "topic", "audience", "id"),
    sqlite_autoincrement=True,  # otherwise the id of a deleted row could be reused
)
# Events without an id yet; always empty on SQLite, which does not know the default of `xid`. It has the checks of
# `event`: a row that `event` refuses would stop the sequencer. The key begins with the transaction id, so that the
# sequencer reads only what is new; `seq` is the insert order.
event_inbox = Table(
    "event_inbox",
    metadata,
    Column("xid", BigInteger, primary_key=True, autoincrement=False, server_default=XID),
    Column("seq", BigInteger, Identity(), primary_key=True),
    Column("topic", Id, nullable=False),
    Column("kind", String, nullable=False),
    Column("audience", Id, nullable=False),
    Column("data", Json, nullable=False),
    Column("at", UtcTime, nullable=False),
    *_checks(),
)
COLUMNS = ("topic", "kind", "audience", "data", "at")
CHANNEL = event.name  # what a commit wakes

NAME = re.compile(rf"[^\x00-\x1f\x7f\ud800-\udfff]{{1,{MAX_NAME_LENGTH}}}")
_KIND = re.compile(rf"[A-Za-z0-9_.:-]{{1,{MAX_KIND_LENGTH}}}")  # an SSE field, so a single line
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class EventTooLarge(TooLarge):
    """The data of an event is too large."""

    code = "EVENT_TOO_LARGE"
    message = "The event {kind} of {topic} carries {size_bytes} bytes of data; {max_bytes} are allowed."
    message_zh = "{topic} 的事件 {kind} 带有 {size_bytes} 字节数据，最多允许 {max_bytes} 字节。"
    hint = "Put the id of what changed into the event, and let clients read it there."
    hint_zh = "事件只需说明什么有了变化，内容请到原处读取。"


class BadEvent(Invalid):
    """A published event is invalid."""

    code = "BAD_EVENT"
    message = "Invalid event {kind!r} of {topic!r}: {reason}."
    message_zh = "无法发布 {topic!r} 的事件 {kind!r}：{reason_zh}。"
    hint = f"Names are 1 to {MAX_NAME_LENGTH} printable characters; kinds are a word of at most {MAX_KIND_LENGTH}."
    hint_zh = f"名称须为 1 至 {MAX_NAME_LENGTH} 个可打印字符；类型须为不超过 {MAX_KIND_LENGTH} 个字符的单词。"


@dataclass(frozen=True, kw_only=True)
class StoredEvent:
    """A published event with its id; ids become visible in order."""

    id: int
    topic: str
    kind: str
    audience: str
    data: JsonObject
    at: datetime

    @cached_property
    def wire(self) -> bytes:
        """The event as an SSE message, encoded once for all subscribers."""
        body = msgspec.json.encode({**self.data, "topic": self.topic, "at": self.at})
        return b"id: %d\nevent: %s\ndata: %s\n\n" % (self.id, self.kind.encode(), body)


@dataclass(frozen=True, kw_only=True)
class Interest:
    """A filter for events: one topic or all, and some audiences or, with None, all."""

    topic: str | None = None
    audiences: frozenset[str] | None = None

    @property
    def keys(self) -> list[tuple[str | None, str | None]]:
        """The (topic, audience) pairs of the filter; None matches any. An event matches at most one of them."""
        if self.audiences is None:
            return [(self.topic, None)]
        return [(self.topic, audience) for audience in sorted(self.audiences)]


EVERYTHING = Interest()


async def insert_events(tx: Tx, events: Sequence[Event]) -> None:
    """Insert events and wake the hubs. It must be the last statement of its transaction: the insert order is then
    also the order of transactions that depend on each other."""
    for published in events:
        _check(published)
    rows = [(published.topic, published.kind, published.audience, published.data, tx.now) for published in events]
    await insert_rows(tx, event if has_single_writer(tx) else event_inbox, COLUMNS, rows)
    tx.wake(CHANNEL)


def _check(published: Event) -> None:
    """Raise `BadEvent` or `EventTooLarge` for an event that cannot be stored or streamed."""
    try:
        encoded = to_json(published.data)
    except UnicodeEncodeError as error:
        raise _bad(published, "its data contains a lone surrogate", "数据含有不完整的字符") from error
    if reason := _find_fault(published, encoded):
        raise _bad(published, *reason)
    if (size := len(encoded.encode())) > MAX_BYTES:
        raise EventTooLarge(kind=published.kind, topic=published.topic, size_bytes=size, max_bytes=MAX_BYTES)


def _find_fault(published: Event, encoded: str) -> tuple[str, str] | None:
    if not NAME.fullmatch(published.topic):
        return "its topic is not a valid name", "主题不是有效的名称"
    if published.audience and not NAME.fullmatch(published.audience):
        return "its audience is not a valid name", "受众不是有效的名称"
    if not _KIND.fullmatch(published.kind) or published.kind == RESET:
        return "its kind is not a valid word, or is reserved", "类型不是有效的单词，或已被占用"
    if taken := [name for name in RESERVED_FIELDS if name in published.data]:
        return f"its data uses the reserved name {taken[0]}", f"数据使用了保留的名称 {taken[0]}"
    if "\\u0000" in encoded and _NUL.search(encoded):
        return (
            "its data contains a NUL character, which PostgreSQL cannot store",
            "数据含有 PostgreSQL 无法保存的 NUL 字符",
        )
    return None


def _bad(published: Event, reason: str, reason_zh: str) -> BadEvent:
    return BadEvent(kind=published.kind, topic=published.topic, reason=reason, reason_zh=reason_zh)


async def list_events(
    tx: Tx, interest: Interest = EVERYTHING, *, after: int = 0, upto: int = MAX_ID, limit: int = 100
) -> list[StoredEvent]:
    """Events of this interest with ids in (after, upto], oldest first."""
    branches = [_branch(key, after, upto, limit) for key in interest.keys]
    if not branches:
        return []
    if len(branches) == 1:
        statement = branches[0]
    else:  # a limit per branch: with one common limit, rare events would be searched among all the others
        found = union_all(*(select(branch.subquery()) for branch in branches)).subquery()
        statement = select(found).order_by(found.c.id).limit(limit)
    return [StoredEvent(**row._mapping) for row in await tx.conn.execute(statement)]


def _branch(key: tuple[str | None, str | None], after: int, upto: int, limit: int) -> Select[JsonObject]:
    """A range scan of the index on these columns.

    The last column is compared and ordered together with the id as a row value: with two separate conditions,
    PostgreSQL may read everything after the id and filter by topic.
    """
    both = zip((event.c.topic, event.c.audience), key, strict=True)
    given = [(column, literal(name, Id)) for column, name in both if name is not None]
    place = tuple_(*(column for column, _ in given[-1:]), event.c.id)
    first, last = (tuple_(*(name for _, name in given[-1:]), literal(end, BigInteger)) for end in (after, upto))
    mine = select(event).where(place > first, place <= last, *(column == name for column, name in given[:-1]))
    return mine.order_by(*place.clauses).limit(limit)


async def latest_id(tx: Tx) -> int:
    """The id of the newest event; 0 when there never was one."""
    return await tx.conn.scalar(select(func.max(event.c.id))) or 0


async def oldest_id(tx: Tx) -> int:
    """The id of the oldest stored event; 0 when there never was one."""
    return await tx.conn.scalar(select(func.min(event.c.id))) or 0


async def delete_events(tx: Tx, *, before: datetime, limit: int = 10_000) -> int:
    """Delete events published before then, oldest first; returns how many. The newest event always stays.

    It stops at the first younger event, even if older ones follow, so that the remaining ids have no gaps.
    """
    e = event.c
    oldest = select(e.id, e.at).order_by(e.id).limit(limit + 1).subquery("oldest")
    young = select(func.min(oldest.c.id)).where(oldest.c.at >= before).scalar_subquery()
    last = select(func.max(oldest.c.id)).scalar_subquery()
    return (await tx.conn.execute(delete(event).where(e.id < func.coalesce(young, last)))).rowcount

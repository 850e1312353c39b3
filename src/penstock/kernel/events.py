"""The event log behind live streams.

A verb calls `tx.tell(Event(…))`, and `publish` inserts the events as the last statement of the transaction. Readers
continue after the last id they saw. That misses nothing only if ids become visible in order, which a sequence does not
guarantee: an id is drawn before the commit, and a transaction with a smaller id may commit later. So on PostgreSQL a
transaction first takes an advisory lock and holds it until its commit, so transactions that publish events commit one
after another; SQLite has a single writer.

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
    ARRAY,
    BigInteger,
    CheckConstraint,
    Column,
    Identity,
    Index,
    Insert,
    Integer,
    Select,
    String,
    Table,
    Text,
    bindparam,
    cast,
    delete,
    func,
    insert,
    literal,
    select,
    tuple_,
    union_all,
)
from sqlalchemy.dialects.postgresql import JSONB

from penstock.kernel.columns import Id, Json, UtcTime, to_json
from penstock.kernel.db import Tx, metadata
from penstock.kernel.errors import Invalid, TooLarge
from penstock.kernel.json_object import JsonObject
from penstock.kernel.message import Event

MOST_BYTES = 16 * 1024  # of data as JSON: an event says that something changed and does not carry it
MOST_ID = 2**63 - 1
LONGEST_NAME = 255
LONGEST_KIND = 64
RESET = "reset"  # the stream's own event that says that events are missing; no event may use this kind
ADDED = ("topic", "at")  # the fields that a stream adds to an event's data
TURN = 0x65766E74  # "evnt": the number of the advisory lock
TURN_MILLISECONDS = 5000  # a process that freezes while it holds the lock blocks the others no longer than this

event = Table(
    "event",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(), primary_key=True),
    Column("topic", Id, nullable=False),
    Column("kind", String, nullable=False),
    Column("audience", Id, nullable=False),
    Column("data", Json, nullable=False),
    Column("at", UtcTime, nullable=False),
    CheckConstraint(f"length(topic) BETWEEN 1 AND {LONGEST_NAME}", name="topic"),
    CheckConstraint(f"length(kind) BETWEEN 1 AND {LONGEST_KIND}", name="kind"),
    CheckConstraint(f"length(audience) <= {LONGEST_NAME}", name="audience"),
    Index("ix_event_topic", "topic", "id"),
    Index("ix_event_audience", "audience", "id"),
    Index("ix_event_topic_audience", "topic", "audience", "id"),
    sqlite_autoincrement=True,  # otherwise the id of a deleted row could be reused
)
COLUMNS = ("topic", "kind", "audience", "data", "at")
CHANNEL = event.name  # what a commit wakes

NAME = re.compile(rf"[^\x00-\x1f\x7f\ud800-\udfff]{{1,{LONGEST_NAME}}}")
_KIND = re.compile(rf"[A-Za-z0-9_.:-]{{1,{LONGEST_KIND}}}")  # an SSE field, so a single line
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class EventTooLarge(TooLarge):
    """The data of an event is too large."""

    code = "EVENT_TOO_LARGE"
    message = "The event {kind} of {topic} carries {size_bytes} bytes of data; {most_bytes} are allowed."
    message_zh = "{topic} 的事件 {kind} 带有 {size_bytes} 字节数据，最多允许 {most_bytes} 字节。"
    hint = "Put the id of what changed into the event, and let clients read it there."
    hint_zh = "事件只需说明什么有了变化，内容请到原处读取。"


class BadEvent(Invalid):
    """A published event is invalid."""

    code = "BAD_EVENT"
    message = "Invalid event {kind!r} of {topic!r}: {reason}."
    message_zh = "无法发布 {topic!r} 的事件 {kind!r}：{reason_zh}。"
    hint = f"Names are 1 to {LONGEST_NAME} printable characters; kinds are a word of at most {LONGEST_KIND}."
    hint_zh = f"名称须为 1 至 {LONGEST_NAME} 个可打印字符；类型须为不超过 {LONGEST_KIND} 个字符的单词。"


@dataclass(frozen=True, kw_only=True)
class StoredEvent:
    """A published event; ids grow in commit order."""

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


def _appending() -> Insert:
    """For PostgreSQL: take the lock and insert in one statement, since all other publishers wait for every round trip
    while we hold the lock. The ids are drawn after the lock is taken, never before."""
    held = func.set_config("idle_in_transaction_session_timeout", str(TURN_MILLISECONDS), True)
    turn = select(func.pg_advisory_xact_lock(TURN), held).cte("turn")
    names = [func.unnest(bindparam(name, type_=ARRAY(Text))) for name in COLUMNS[:3]]
    data = cast(func.unnest(bindparam("data", type_=ARRAY(Text))), JSONB)
    rows = select(*names, data, bindparam("at", type_=UtcTime)).select_from(turn)
    return insert(event).from_select(list(COLUMNS), rows)


APPEND = _appending()
INSERT = insert(event)


async def publish(tx: Tx, events: Sequence[Event]) -> None:
    """Insert events and wake subscribers; must be the last statement of its transaction."""
    texts = [_checked(told) for told in events]
    if tx.on_postgres:
        topics, kinds, audiences = zip(*((told.topic, told.kind, told.audience) for told in events), strict=True)
        columns = {"topic": topics, "kind": kinds, "audience": audiences, "data": texts, "at": tx.now}
        await tx.conn.execute(APPEND, columns)
    else:
        rows = [(told.topic, told.kind, told.audience, told.data, tx.now) for told in events]
        await tx.conn.execute(INSERT, [dict(zip(COLUMNS, row, strict=True)) for row in rows])
    tx.wake(CHANNEL)


def _checked(told: Event) -> str:
    """The data as JSON; raises an error that says what is wrong with the event."""
    try:
        text = to_json(told.data)
    except UnicodeEncodeError as error:
        raise _bad(told, "its data contains a lone surrogate", "数据含有不完整的字符") from error
    if fault := _fault(told, text):
        raise _bad(told, *fault)
    if (size := len(text.encode())) > MOST_BYTES:
        raise EventTooLarge(kind=told.kind, topic=told.topic, size_bytes=size, most_bytes=MOST_BYTES)
    return text


def _fault(told: Event, text: str) -> tuple[str, str] | None:
    if not NAME.fullmatch(told.topic):
        return "its topic is not a valid name", "主题不是有效的名称"
    if told.audience and not NAME.fullmatch(told.audience):
        return "its audience is not a valid name", "受众不是有效的名称"
    if not _KIND.fullmatch(told.kind) or told.kind == RESET:
        return "its kind is not a valid word, or is reserved", "类型不是有效的单词，或已被占用"
    if taken := [name for name in ADDED if name in told.data]:
        return f"its data uses the reserved name {taken[0]}", f"数据使用了保留的名称 {taken[0]}"
    if "\\u0000" in text and _NUL.search(text):
        return (
            "its data contains a NUL character, which PostgreSQL cannot store",
            "数据含有 PostgreSQL 无法保存的 NUL 字符",
        )
    return None


def _bad(told: Event, reason: str, reason_zh: str) -> BadEvent:
    return BadEvent(kind=told.kind, topic=told.topic, reason=reason, reason_zh=reason_zh)


async def list_events(
    tx: Tx, interest: Interest = EVERYTHING, *, after: int = 0, upto: int = MOST_ID, limit: int = 100
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

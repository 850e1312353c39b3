"""Idempotency keys: a request that is repeated with the same key takes effect once and gets the same answer.

The key is stored in the transaction that the request changes the database with, together with the outcome. So there is
never a key without its change or a change without its key, also when a process dies or the answer to a commit is lost.
A request that comes while the first one still runs waits for its end. Errors are not stored: nothing was changed.

Keys belong to their caller. A key with another request than its first is refused, and a key is kept for a day.
"""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import Column, Index, String, Table, delete, func, select, update

from penstock.kernel.columns import Id, OrderedJson, UtcTime
from penstock.kernel.db import Tx, metadata
from penstock.kernel.dialect.bulk import insert_new
from penstock.kernel.errors import Conflict
from penstock.kernel.json_object import JsonObject

RETENTION = timedelta(days=1)

idempotency_key = Table(
    "idempotency_key",
    metadata,
    Column("actor", Id, primary_key=True),
    Column("key", Id, primary_key=True),
    Column("fingerprint", String, nullable=False),  # hash of the request: a reused key must repeat it
    Column("outcome", OrderedJson, nullable=False),
    Column("at", UtcTime, nullable=False),
    Index("ix_idempotency_key_at", "at"),
)
k = idempotency_key.c
COLUMNS = ("actor", "key", "fingerprint", "outcome", "at")


class IdempotencyKeyReused(Conflict):
    """An Idempotency-Key was reused for a different request; a pull answers 409."""

    code = "IDEMPOTENCY_KEY_REUSED"
    message = "This Idempotency-Key was used for a different request."
    message_zh = "此 Idempotency-Key 已用于另一个不同的请求。"
    hint = "Use a new key for each new request, and the same key only to repeat a request unchanged."
    hint_zh = "每个新请求请使用新的键；仅在原样重发同一请求时才使用同一个键。"
    status = 422


@dataclass(frozen=True, kw_only=True)
class IdempotentRequest:
    """A request with a key: of whom, and the fingerprint of what it asks for."""

    actor: str
    key: str
    fingerprint: str


def fingerprint(*parts: object) -> str:
    """A hash of what a request asks for."""
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


async def create_once(
    tx: Tx, request: IdempotentRequest | None, create: Callable[[], Awaitable[JsonObject]]
) -> JsonObject:
    """The outcome of `create`, or that of the earlier request with the same key."""
    if request is None:
        return await create()
    known = await claim_key(tx, request)
    if known is not None:
        return known
    outcome = await create()
    await move_outcome(tx, request, outcome)
    return outcome


async def find_outcome(tx: Tx, request: IdempotentRequest) -> JsonObject | None:
    """The outcome of an earlier request with this key; None if the key is new. May raise `IdempotencyKeyReused`."""
    mine = select(k.fingerprint, k.outcome).where(k.actor == request.actor, k.key == request.key)
    row = (await tx.conn.execute(mine)).one_or_none()
    if row is None:
        return None
    if row.fingerprint != request.fingerprint:
        raise IdempotencyKeyReused
    outcome: JsonObject = row.outcome
    return outcome


async def claim_key(tx: Tx, request: IdempotentRequest, outcome: JsonObject | None = None) -> JsonObject | None:
    """Insert the key if it is new, and return None; else return the outcome of its first request.

    Waits for a concurrent transaction that inserts the same key.
    """
    row = (request.actor, request.key, request.fingerprint, outcome or {}, tx.now)
    if await insert_new(tx, idempotency_key, COLUMNS, [row]):
        return None
    return await find_outcome(tx, request)


async def move_outcome(tx: Tx, request: IdempotentRequest, outcome: JsonObject) -> None:
    """Store the outcome of the request that claimed the key."""
    mine = update(idempotency_key).where(k.actor == request.actor, k.key == request.key)
    await tx.conn.execute(mine.values(outcome=outcome))


async def delete_key(tx: Tx, request: IdempotentRequest) -> None:
    """Delete a key, so that it can be used again: the request changed nothing."""
    await tx.conn.execute(delete(idempotency_key).where(k.actor == request.actor, k.key == request.key))


async def delete_keys(tx: Tx, *, before: datetime, limit: int = 10_000) -> int:
    """Delete the oldest keys; returns how many. Keys with the same time are deleted together."""
    oldest = select(k.at).where(k.at < before).order_by(k.at).limit(limit).subquery()
    old = k.at <= select(func.max(oldest.c.at)).scalar_subquery()
    return (await tx.conn.execute(delete(idempotency_key).where(old))).rowcount

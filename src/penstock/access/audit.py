"""The audit log: who did what, to what, when and from where. A line is written in the transaction of the action.

`detail` holds plain values and never a secret. Lines are read newest first, by id, and deleted when they are old.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Column, Index, Insert, Integer, Select, String, Table, cast, delete, insert, select

from penstock.access.domain import Caller
from penstock.kernel.columns import Json, JsonText, UtcTime
from penstock.kernel.db import Tx, metadata
from penstock.kernel.dialect.bulk import insert_rows
from penstock.kernel.json_object import JsonObject

audit_log = Table(
    "audit_log",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("at", UtcTime, nullable=False),
    Column("actor", String, nullable=False),  # "key:…", "user:5", or the program that acted
    Column("action", String, nullable=False),  # "key.revoke"
    Column("target", String, nullable=False),  # "key:…"
    Column("detail", Json, nullable=False),
    Column("request_id", String, nullable=False),
    Column("address", String, nullable=False),
    Index("ix_audit_log_actor", "actor", "id"),
    Index("ix_audit_log_action", "action", "id"),
    Index("ix_audit_log_at", "at"),
)

COLUMNS = ("at", "action", "target", "actor", "detail", "request_id", "address")


@dataclass(frozen=True, kw_only=True)
class AuditLine:
    """One action; `id` grows with time."""

    id: int
    at: datetime
    actor: str
    action: str
    target: str
    detail: JsonObject
    request_id: str
    address: str


def insert_selected(lines: Select[Any]) -> Insert:
    """An INSERT of the lines that a SELECT returns, in the order of COLUMNS; its detail is JSON as text."""
    at, action, target, actor, detail, *origin = lines.selected_columns
    source = lines.with_only_columns(at, action, target, actor, cast(detail, JsonText), *origin)
    return insert(audit_log).from_select(list(COLUMNS), source, include_defaults=False)


async def record(tx: Tx, by: Caller | str, action: str, target: str, **detail: object) -> None:
    """Write one line. For a `Caller` it includes their name, request id and address."""
    if isinstance(by, Caller):
        origin = (by.actor, {"by": by.name, **detail}, by.request_id, by.address)
    else:
        origin = (by, detail, "", "")
    await insert_rows(tx, audit_log, COLUMNS, [(tx.now, action, target, *origin)])


async def record_refused(tx: Tx, refused: Mapping[tuple[str, str, str], int]) -> None:
    """Write one line per address, target and reason for which credentials were refused, with how often."""
    lines = [
        (tx.now, "key.refused", target, "unknown", {"reason": reason, "count": count}, "", address)
        for (address, target, reason), count in refused.items()
    ]
    await insert_rows(tx, audit_log, COLUMNS, lines)


async def list_lines(
    tx: Tx, *, before: int | None = None, actor: str | None = None, action: str | None = None, limit: int = 20
) -> Sequence[AuditLine]:
    """Lines, newest first; `before` is the id of the last line of the previous page."""
    a = audit_log.c
    query = select(audit_log)
    if before is not None:
        query = query.where(a.id < before)
    if actor is not None:
        query = query.where(a.actor == actor)
    if action is not None:
        query = query.where(a.action == action)
    rows = await tx.conn.execute(query.order_by(a.id.desc()).limit(limit))
    return [AuditLine(**row._mapping) for row in rows]


async def delete_lines(tx: Tx, *, before: datetime, limit: int = 10_000) -> int:
    """Delete the oldest lines; returns how many."""
    a = audit_log.c
    old = select(a.id).where(a.at < before).order_by(a.at).limit(limit)
    return (await tx.conn.execute(delete(audit_log).where(a.id.in_(old)))).rowcount

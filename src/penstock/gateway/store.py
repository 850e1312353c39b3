"""The table of uploads and every statement on it.

A move of the offset is guarded by the writer's token: a writer that lost it changes nothing.
"""

from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Index,
    Row,
    String,
    Table,
    Text,
    delete,
    func,
    insert,
    or_,
    select,
    text,
    update,
)

from penstock.access.domain import Caller
from penstock.gateway.domain import LIVING, UPLOAD, Upload, UploadKind, UploadState
from penstock.gateway.errors import UploadExpired, UploadNotFound
from penstock.kernel.columns import Id, Json, UtcTime
from penstock.kernel.db import Tx, metadata
from penstock.kernel.transitions import record

LIVES = text("state IN ('open', 'assembling', 'complete')")
OPEN = text("state = 'open'")
IS_GONE = text("state IN ('expired', 'terminated')")

upload = Table(
    "upload",
    metadata,
    Column("id", Id, primary_key=True),
    Column("user_id", BigInteger, nullable=False),
    Column("merchant_id", BigInteger),
    Column("key_id", Id),
    Column("kind", String, nullable=False),
    Column("state", String, nullable=False),
    Column("length", BigInteger),
    Column("offset", BigInteger, nullable=False),
    Column("metadata", Text, nullable=False),
    Column("filename", Text, nullable=False),
    Column("handle", Text, nullable=False),
    Column("parts", Json, nullable=False),
    Column("writer", String),
    Column("writer_until", UtcTime),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime, nullable=False),
    CheckConstraint("(writer IS NULL) = (writer_until IS NULL)", name="writer"),
    CheckConstraint('"offset" >= 0 AND (length IS NULL OR "offset" <= length)', name="offset"),
    Index("ix_upload_open", "user_id", "id", postgresql_where=OPEN, sqlite_where=OPEN),
    Index("ix_upload_expires", "expires_at", postgresql_where=LIVES, sqlite_where=LIVES),
    Index("ix_upload_gone", "updated_at", postgresql_where=IS_GONE, sqlite_where=IS_GONE),
)


async def insert_upload(tx: Tx, new: Upload) -> None:
    """Insert a new upload."""
    await tx.conn.execute(insert(upload).values(asdict(new)))
    await record(tx, UPLOAD.name, [new.id], None, UPLOAD.start, "create")
    if new.state is UploadState.ASSEMBLING:
        await record(tx, UPLOAD.name, [new.id], UPLOAD.start, new.state, "assemble")


async def find_upload(tx: Tx, caller: Caller, upload_id: str) -> Upload | None:
    """An upload that the caller may see, in any state."""
    row = (await tx.conn.execute(select(upload).where(upload.c.id == upload_id))).one_or_none()
    if row is None or not (caller.is_admin or row.user_id == caller.user_id):
        return None
    return _upload(row)


async def get_upload(tx: Tx, caller: Caller, upload_id: str) -> Upload:
    """A living upload of the caller; `UploadExpired` or `UploadNotFound` otherwise."""
    found = await find_upload(tx, caller, upload_id)
    if found is None or found.state is UploadState.TERMINATED:
        raise UploadNotFound(upload_id=upload_id)
    if found.state is UploadState.EXPIRED:
        raise UploadExpired(upload_id=upload_id)
    return found


async def find_living(tx: Tx, upload_id: str) -> Upload | None:
    """An upload of anybody, for jobs."""
    row = (await tx.conn.execute(select(upload).where(upload.c.id == upload_id))).one_or_none()
    found = _upload(row) if row is not None else None
    return found if found is not None and found.state in LIVING else None


async def list_open(tx: Tx, caller: Caller, *, after: str, limit: int) -> Sequence[Upload]:
    """The caller's unfinished uploads in the order of their ids."""
    u = upload.c
    mine = select(upload).where(u.user_id == caller.user_id, u.state == "open", u.id > after)
    return [_upload(row) for row in await tx.conn.execute(mine.order_by(u.id).limit(limit))]


async def count_open(tx: Tx, caller: Caller, *, most: int) -> int:
    """How many unfinished uploads the caller has, counted up to `most`."""
    u = upload.c
    some = select(u.id).where(u.user_id == caller.user_id, u.state == "open").limit(most).subquery()
    return await tx.conn.scalar(select(func.count()).select_from(some)) or 0


async def claim_writer(tx: Tx, seen: Upload, token: str, *, offset: int, until: datetime) -> bool:
    """Make `token` the writer of an open upload, unless somebody else was first since it was read."""
    u = upload.c
    same = u.writer.is_(None) if seen.writer is None else u.writer == seen.writer
    lapsed = or_(u.writer_until.is_(None), u.writer_until <= tx.now)
    guarded = update(upload).where(u.id == seen.id, u.state == "open", same, lapsed)
    claimed = await tx.conn.execute(guarded.values(writer=token, writer_until=until, offset=offset))
    return claimed.rowcount == 1


async def renew_writer(
    tx: Tx, upload_id: str, token: str, *, offset: int, until: datetime, expires_at: datetime
) -> bool:
    """Extend a writer that received bytes, and move its offset."""
    values = {"offset": offset, "writer_until": until, "updated_at": tx.now, "expires_at": expires_at}
    return await _move_held(tx, upload_id, token, values)


async def list_writers(tx: Tx, ids: Collection[str]) -> dict[str, str | None]:
    """The writers of these uploads by id."""
    u = upload.c
    return {row.id: row.writer for row in await tx.conn.execute(select(u.id, u.writer).where(u.id.in_(list(ids))))}


async def release_writer(tx: Tx, upload_id: str, token: str, *, offset: int, expires_at: datetime) -> bool:
    """End a writer that saved `offset` bytes."""
    values = {"offset": offset, "writer": None, "writer_until": None, "updated_at": tx.now, "expires_at": expires_at}
    return await _move_held(tx, upload_id, token, values)


async def move_length(tx: Tx, upload_id: str, length: int) -> bool:
    """Give an upload its length, once."""
    u = upload.c
    guarded = update(upload).where(u.id == upload_id, u.state == "open", u.length.is_(None))
    return (await tx.conn.execute(guarded.values(length=length))).rowcount == 1


async def move_state(tx: Tx, before: Upload, verb: str, **values: object) -> bool:
    """Move an upload that was read; False if somebody else moved it first. Its writer is ended."""
    after = UPLOAD.move(verb, before.state)
    guarded = update(upload).where(upload.c.id == before.id, upload.c.state == before.state.value)
    moved = await tx.conn.execute(
        guarded.values(state=after.value, writer=None, writer_until=None, updated_at=tx.now, **values)
    )
    if moved.rowcount != 1:
        return False
    await record(tx, UPLOAD.name, [before.id], before.state, after, verb)
    return True


async def keep_parts(tx: Tx, ids: Collection[str], *, expires_at: datetime) -> None:
    """Let partial uploads not expire before they are joined."""
    u = upload.c
    await tx.conn.execute(update(upload).where(u.id.in_(list(ids))).values(expires_at=expires_at))


async def list_expired(tx: Tx, *, limit: int) -> Sequence[Upload]:
    """Living uploads whose time is over and that nobody writes to."""
    u = upload.c
    idle = or_(u.writer_until.is_(None), u.writer_until <= tx.now)
    due = select(upload).where(u.state.in_([state.value for state in LIVING]), u.expires_at <= tx.now, idle)
    return [_upload(row) for row in await tx.conn.execute(due.order_by(u.expires_at).limit(limit))]


async def delete_gone(tx: Tx, *, before: datetime, limit: int) -> int:
    """Delete rows of uploads that are long gone."""
    u = upload.c
    old = select(u.id).where(u.state.in_(["expired", "terminated"]), u.updated_at <= before).limit(limit)
    return (await tx.conn.execute(delete(upload).where(u.id.in_(old)))).rowcount


async def list_known(tx: Tx, ids: Collection[str]) -> set[str]:
    """Which of these ids have a living row."""
    u = upload.c
    living = select(u.id).where(u.id.in_(list(ids)), u.state.in_([state.value for state in LIVING]))
    return set((await tx.conn.scalars(living)).all())


async def _move_held(tx: Tx, upload_id: str, token: str, values: dict[str, Any]) -> bool:
    guarded = update(upload).where(upload.c.id == upload_id, upload.c.writer == token, upload.c.state == "open")
    return (await tx.conn.execute(guarded.values(values))).rowcount == 1


def _upload(row: Row[Any]) -> Upload:
    values = dict(row._mapping)
    values |= {"kind": UploadKind(row.kind), "state": UploadState(row.state), "parts": tuple(row.parts)}
    return Upload(**values)

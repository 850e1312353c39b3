"""Login attempts in a row that failed, by name and address: the table and its statements.

Names are stored as hashes: one of them may be a password by mistake.
"""

from datetime import datetime, timedelta

from sqlalchemy import Column, Index, Integer, Table, and_, bindparam, case, delete, null, or_, select

from penstock.kernel.columns import Id, UtcTime
from penstock.kernel.db import Tx, metadata
from penstock.kernel.dialect.sql import upsert

login_attempt = Table(
    "login_attempt",
    metadata,
    Column("login_hash", Id, primary_key=True),  # of the name, and of the address that the attempts came from
    Column("failures", Integer, nullable=False),  # in a row; an attempt counts until it succeeds
    Column("last_at", UtcTime, nullable=False),
    Column("locked_until", UtcTime),
    Index("ix_login_attempt_last_at", "last_at"),
)


async def claim(tx: Tx, login_hash: str, *, most: int, lock: timedelta) -> int | datetime:
    """Count an attempt before its password is checked, so that parallel attempts count like consecutive ones.

    Returns the number of attempts in a row, or the time until which the name is locked.
    """
    a = login_attempt.c
    locks_at = tx.now + lock
    over = or_(a.last_at <= tx.now - lock, a.locked_until <= tx.now)
    failures = case((over, 1), else_=a.failures + 1)
    locked_until = case((failures >= most, bindparam("locks_at", locks_at, type_=UtcTime)), else_=null())
    first = {"failures": 1, "last_at": tx.now, "locked_until": locks_at if most <= 1 else None}
    statement = upsert(login_attempt).values(login_hash=login_hash, **first)
    counted = statement.on_conflict_do_update(
        index_elements=["login_hash"],
        set_={"failures": failures, "last_at": tx.now, "locked_until": locked_until},
        where=or_(a.locked_until.is_(None), a.locked_until <= tx.now),
    )
    number = await tx.conn.scalar(counted.returning(a.failures))
    if number is not None:
        return int(number)
    until: datetime = (await tx.conn.execute(select(a.locked_until).where(a.login_hash == login_hash))).scalar_one()
    return until


async def delete_one(tx: Tx, login_hash: str) -> None:
    """Reset the count after a successful login."""
    await tx.conn.execute(delete(login_attempt).where(login_attempt.c.login_hash == login_hash))


async def delete_of(tx: Tx, login_hash: str) -> None:
    """Reset the counts of a name at every address, whose keys begin with the hash of the name."""
    a = login_attempt.c.login_hash
    await tx.conn.execute(delete(login_attempt).where(a >= login_hash, a < f"{login_hash}~"))


async def delete_old(tx: Tx, *, before: datetime, limit: int = 10_000) -> int:
    """Delete attempts before this time that lock nothing; returns how many."""
    a = login_attempt.c
    over = and_(a.last_at < before, or_(a.locked_until.is_(None), a.locked_until <= tx.now))
    old = select(a.login_hash).where(over).order_by(a.last_at).limit(limit)
    return (await tx.conn.execute(delete(login_attempt).where(a.login_hash.in_(old), over))).rowcount

"""The tables of access and every statement on them, except the audit log and login attempts, which have files.

Secrets are stored only as hashes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Row,
    Select,
    SmallInteger,
    String,
    Table,
    UniqueConstraint,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    not_,
    or_,
    select,
    update,
)

from penstock.access.domain import Key, KeyChanges, Scope, Session, User
from penstock.access.errors import KeyNotActive, NoSuchKey, NoSuchUser
from penstock.kernel.columns import Id, UtcTime
from penstock.kernel.db import Tx, metadata
from penstock.kernel.dialect.sql import upsert

SCOPES = "scope IN ('read', 'write', 'admin')"

api_key = Table(
    "api_key",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", String, nullable=False),
    Column("hash", Id, nullable=False),
    Column("prefix", String, nullable=False),
    Column("user_id", BigInteger, nullable=False),
    Column("merchant_id", BigInteger),
    Column("role", String),
    Column("scope", String, nullable=False),
    Column("project", String),
    Column("created_at", UtcTime, nullable=False),
    Column("created_by", String, nullable=False),
    Column("expires_at", UtcTime),
    Column("last_used_at", UtcTime),
    Column("revoked_at", UtcTime),
    Column("replaced_by", Id),
    UniqueConstraint("hash"),
    CheckConstraint(SCOPES, name="scope"),
    CheckConstraint("user_id > 0", name="user_id"),
    Index("ix_api_key_user_id", "user_id"),
)
_expires, _revoked = api_key.c.expires_at.is_not(None), api_key.c.revoked_at.is_not(None)
Index("ix_api_key_expires_at", api_key.c.expires_at, postgresql_where=_expires, sqlite_where=_expires)
Index("ix_api_key_revoked_at", api_key.c.revoked_at, postgresql_where=_revoked, sqlite_where=_revoked)

console_user = Table(
    "console_user",
    metadata,
    Column("id", Id, primary_key=True),
    Column("username", String, nullable=False),
    Column("login", String, nullable=False),  # the normalized username
    Column("password_hash", String, nullable=False),
    Column("user_id", BigInteger, nullable=False),
    Column("role", String, nullable=False),
    Column("scope", String, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("last_login_at", UtcTime),
    UniqueConstraint("login"),
    Index("ix_console_user_scope", "scope"),
    CheckConstraint(SCOPES, name="scope"),
    CheckConstraint("user_id > 0", name="user_id"),
)
console_session = Table(
    "console_session",
    metadata,
    Column("hash", Id, primary_key=True),
    Column("user", Id, ForeignKey("console_user.id", ondelete="CASCADE"), nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime, nullable=False),
    Index("ix_console_session_user", "user", "created_at"),
    Index("ix_console_session_expires_at", "expires_at"),
)
setup_token = Table(  # of servers that started while there was no user; each can create the first one
    "setup_token",
    metadata,
    Column("hash", Id, primary_key=True),
    Column("expires_at", UtcTime, nullable=False),
    Index("ix_setup_token_expires_at", "expires_at"),
)
access_counter = Table(  # one row, locked until commit while the first key, the first user or a user id is created
    "access_counter",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("next_user_id", BigInteger, nullable=False),
    CheckConstraint("id = 1", name="one_row"),
)

KEY_COLUMNS = [api_key.c[name] for name in Key.__dataclass_fields__]
USER_COLUMNS = [console_user.c[name] for name in User.__dataclass_fields__]
FIRST_USER_ID = 1  # the first admin
PRESET = "PENSTOCK_ADMIN_KEY"  # the creator of the key that this setting presets


# Keys


async def insert_key(tx: Tx, key: Key, *, hashed: str) -> bool:
    """Insert a key; False if its secret exists already."""
    values = {name: getattr(key, name) for name in Key.__dataclass_fields__}
    statement = upsert(api_key).values(values | {"hash": hashed}).on_conflict_do_nothing(index_elements=["hash"])
    return (await tx.conn.execute(statement)).rowcount == 1


async def get_key(tx: Tx, key_id: str) -> Key:
    """The key with this id, or `NoSuchKey`."""
    row = (await tx.conn.execute(select(*KEY_COLUMNS).where(api_key.c.id == key_id))).one_or_none()
    if row is None:
        raise NoSuchKey(id=key_id)
    return _key(row)


async def find_key(tx: Tx, hashed: str) -> Key | None:
    """The key whose secret has this hash."""
    row = (await tx.conn.execute(select(*KEY_COLUMNS).where(api_key.c.hash == hashed))).one_or_none()
    return _key(row) if row is not None else None


@dataclass(frozen=True, kw_only=True)
class KeyFilter:
    """Which keys to list: active ones or the others, and those of a project; None is any."""

    is_active: bool | None = None
    project: str | None = None
    now: datetime

    def on(self, statement: Select[Any]) -> Select[Any]:
        """A statement restricted to the matching keys."""
        k = api_key.c
        active = and_(k.revoked_at.is_(None), or_(k.expires_at.is_(None), k.expires_at > self.now))
        if self.is_active is not None:
            statement = statement.where(active if self.is_active else not_(active))
        return statement if self.project is None else statement.where(k.project == self.project)


async def list_keys(tx: Tx, keep: KeyFilter | None = None, *, offset: int = 0, limit: int = 100) -> Sequence[Key]:
    """Keys, newest first."""
    found = select(*KEY_COLUMNS) if keep is None else keep.on(select(*KEY_COLUMNS))
    rows = await tx.conn.execute(found.order_by(api_key.c.id.desc()).offset(offset).limit(limit))
    return [_key(row) for row in rows]


async def count_keys(tx: Tx, keep: KeyFilter | None = None) -> int:
    """The number of keys, including revoked and expired ones unless the filter leaves them out."""
    counted = select(func.count()).select_from(api_key)
    return await tx.conn.scalar(counted if keep is None else keep.on(counted)) or 0


async def move_key(tx: Tx, key: Key, changes: KeyChanges | Mapping[str, object]) -> Key:
    """Update a key unless it was revoked or replaced in the meantime."""
    k = api_key.c
    mine = update(api_key).where(k.id == key.id, k.revoked_at.is_(None), k.replaced_by.is_(None))
    row = (await tx.conn.execute(mine.values(dict(changes)).returning(*KEY_COLUMNS))).one_or_none()
    if row is None:
        raise KeyNotActive(id=key.id)
    return _key(row)


async def move_revoked(tx: Tx, key_id: str) -> bool:
    """Revoke a key, also one that was replaced and is in its grace period; False if it is revoked already."""
    mine = update(api_key).where(api_key.c.id == key_id, api_key.c.revoked_at.is_(None))
    return (await tx.conn.execute(mine.values(revoked_at=tx.now))).rowcount == 1


async def move_last_used(tx: Tx, used: Mapping[str, datetime], *, apart: timedelta) -> None:
    """Write when keys were last used, unless another process did so recently. Sorted by id, so that writers do not
    deadlock."""
    k = api_key.c
    stale = or_(k.last_used_at.is_(None), k.last_used_at <= bindparam("stale_at", type_=UtcTime))
    statement = update(api_key).where(k.id == bindparam("key_id"), stale)
    rows = [{"key_id": key, "stale_at": at - apart, "used_at": at} for key, at in sorted(used.items())]
    await tx.conn.execute(statement.values(last_used_at=bindparam("used_at", type_=UtcTime)), rows)


async def delete_keys(tx: Tx, *, before: datetime, limit: int = 10_000) -> int:
    """Delete keys that were revoked or expired before this time; returns how many.

    The preset key stays: otherwise the same setting would create it again at the next start, even if it was revoked.
    """
    k, deleted = api_key.c, 0
    for ended_at in (k.revoked_at, k.expires_at):
        old = select(k.id).where(ended_at < before, k.created_by != PRESET).order_by(ended_at).limit(limit)
        deleted += (await tx.conn.execute(delete(api_key).where(k.id.in_(old), ended_at < before))).rowcount
    return deleted


def _key(row: Row[Any]) -> Key:
    return Key(**{**row._mapping, "scope": Scope(row.scope)})


# The first key and user, and user ids


async def lock_counter(tx: Tx) -> None:
    """Lock the counter row until this transaction ends, so that only one process creates the first key or user."""
    statement = upsert(access_counter).values(id=1, next_user_id=FIRST_USER_ID + 1)
    await tx.conn.execute(statement.on_conflict_do_update(index_elements=["id"], set_={"id": 1}))


async def claim_user_id(tx: Tx) -> int:
    """A user id that no key uses yet."""
    c = access_counter.c
    first = upsert(access_counter).values(id=1, next_user_id=FIRST_USER_ID + 2)
    taken = first.on_conflict_do_update(index_elements=["id"], set_={"next_user_id": c.next_user_id + 1})
    while True:  # skip ids that were given explicitly
        number: int = (await tx.conn.execute(taken.returning(c.next_user_id))).scalar_one() - 1
        known = select(api_key.c.id).where(api_key.c.user_id == number).limit(1)
        if await tx.conn.scalar(known) is None:
            return number


# Users and sessions


async def insert_setup_token(tx: Tx, hashed: str, *, expires_at: datetime) -> None:
    """Insert a setup token."""
    await tx.conn.execute(insert(setup_token).values(hash=hashed, expires_at=expires_at))


async def is_setup_token(tx: Tx, hashed: str) -> bool:
    """Whether this is the hash of a setup token that is still valid."""
    valid = select(setup_token.c.hash).where(setup_token.c.hash == hashed, setup_token.c.expires_at > tx.now)
    return await tx.conn.scalar(valid) is not None


async def delete_setup_tokens(tx: Tx, *, before: datetime, limit: int = 10_000) -> int:
    """Delete setup tokens that expired before this time; returns how many."""
    t = setup_token.c
    old = select(t.hash).where(t.expires_at < before).order_by(t.expires_at).limit(limit)
    return (await tx.conn.execute(delete(setup_token).where(t.hash.in_(old)))).rowcount


async def has_users(tx: Tx) -> bool:
    """Whether any user exists."""
    return await tx.conn.scalar(select(console_user.c.id).limit(1)) is not None


async def insert_user(tx: Tx, user: User, *, login: str) -> bool:
    """Insert a user; False if the name is taken."""
    values = {name: getattr(user, name) for name in User.__dataclass_fields__}
    statement = upsert(console_user).values(values | {"login": login}).on_conflict_do_nothing(index_elements=["login"])
    return (await tx.conn.execute(statement)).rowcount == 1


async def list_users(tx: Tx, *, offset: int = 0, limit: int = 100) -> Sequence[User]:
    """Users, newest first."""
    newest = select(*USER_COLUMNS).order_by(console_user.c.id.desc()).offset(offset).limit(limit)
    return [_user(row) for row in await tx.conn.execute(newest)]


async def count_users(tx: Tx) -> int:
    """The number of users."""
    return await tx.conn.scalar(select(func.count()).select_from(console_user)) or 0


async def has_other_admin(tx: Tx, user: User) -> bool:
    """Whether another user is an admin."""
    u = console_user.c
    others = select(u.id).where(u.scope == Scope.ADMIN.value, u.id != user.id).limit(1)
    return await tx.conn.scalar(others) is not None


async def get_user(tx: Tx, id_: str) -> User:
    """The user with this id, or `NoSuchUser`."""
    row = (await tx.conn.execute(select(*USER_COLUMNS).where(console_user.c.id == id_))).one_or_none()
    if row is None:
        raise NoSuchUser(user=id_)
    return _user(row)


async def find_user(tx: Tx, login: str) -> User | None:
    """The user with this normalized name."""
    row = (await tx.conn.execute(select(*USER_COLUMNS).where(console_user.c.login == login))).one_or_none()
    return _user(row) if row is not None else None


async def move_logged_in(tx: Tx, user: User, *, password_hash: str) -> None:
    """Write the time of a login and a rehashed password, unless the password was changed in the meantime."""
    u = console_user.c
    mine = update(console_user).where(u.id == user.id)
    kept = case((u.password_hash == user.password_hash, password_hash), else_=u.password_hash)
    await tx.conn.execute(mine.values(last_login_at=tx.now, password_hash=kept))


async def move_password(tx: Tx, user: User, password_hash: str) -> bool:
    """Replace the password of a user; False if it was changed or the user removed in the meantime."""
    u = console_user.c
    mine = update(console_user).where(u.id == user.id, u.password_hash == user.password_hash)
    return (await tx.conn.execute(mine.values(password_hash=password_hash))).rowcount == 1


async def delete_user(tx: Tx, user: User) -> None:
    """Delete a user with their sessions."""
    await tx.conn.execute(delete(console_user).where(console_user.c.id == user.id))


async def insert_session(tx: Tx, user: User, *, hashed: str, expires_at: datetime) -> None:
    """Insert a session."""
    values = {"hash": hashed, "user": user.id, "created_at": tx.now, "expires_at": expires_at}
    await tx.conn.execute(insert(console_session).values(values))


async def find_session(tx: Tx, hashed: str) -> Session | None:
    """The session whose token has this hash."""
    s, joined = console_session.c, console_session.join(console_user)
    query = select(*USER_COLUMNS, s.expires_at).select_from(joined).where(s.hash == hashed)
    row = (await tx.conn.execute(query)).one_or_none()
    if row is None:
        return None
    *user_columns, expires_at = row
    return Session(user=_user(user_columns), expires_at=expires_at)


async def delete_session(tx: Tx, hashed: str) -> None:
    """Delete a session."""
    await tx.conn.execute(delete(console_session).where(console_session.c.hash == hashed))


async def delete_sessions_of(tx: Tx, user: User, *, kept: str = "") -> None:
    """Delete the sessions of a user, except the one with this hash."""
    s = console_session.c
    await tx.conn.execute(delete(console_session).where(s.user == user.id, s.hash != kept))


async def delete_extra_sessions(tx: Tx, user: User, *, most: int) -> None:
    """Delete the oldest sessions of a user beyond the given number."""
    s = console_session.c
    newest_first = select(s.hash).where(s.user == user.id).order_by(s.created_at.desc())
    await tx.conn.execute(delete(console_session).where(s.hash.in_(newest_first.offset(most).limit(most))))


async def delete_sessions(tx: Tx, *, before: datetime, limit: int = 10_000) -> int:
    """Delete sessions that expired before this time; returns how many."""
    s = console_session.c
    old = select(s.hash).where(s.expires_at < before).order_by(s.expires_at).limit(limit)
    return (await tx.conn.execute(delete(console_session).where(s.hash.in_(old)))).rowcount


def _user(values: Sequence[Any]) -> User:
    fields = dict(zip(User.__dataclass_fields__, values, strict=True))
    return User(**{**fields, "scope": Scope(fields["scope"])})

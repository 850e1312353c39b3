"""The cleanup of access: old rows are deleted, and rows that still matter stay."""

from datetime import datetime, timedelta

import pytest
from sqlalchemy import Table, select

from penstock.access import audit, keys, login_attempts, store
from penstock.access.api.logins import Logins
from penstock.access.errors import LoginLocked, WrongLogin
from penstock.access.worker import cleaner
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from tests.access.conftest import LOCK_SECONDS, ROOT, SESSION_SECONDS, Make

YEAR = timedelta(days=365)


async def clean(db: Db) -> None:
    await cleaner(db, audit_age=YEAR, lock=timedelta(seconds=LOCK_SECONDS)).run()


async def left(db: Db, table: Table) -> int:
    async with db.read() as tx:
        return len((await tx.conn.execute(select(table))).all())


async def test_old_audit_lines_are_deleted(db: Db, clock: ManualClock):
    async with db.tx() as tx:
        await audit.record(tx, "test", "old", "x")
    clock.advance(seconds=1)
    async with db.tx() as tx:
        await audit.record(tx, "test", "new", "x")
    clock.advance(seconds=YEAR.total_seconds())
    await clean(db)
    async with db.read() as tx:
        assert [line.action for line in await audit.list_lines(tx)] == ["new"]


async def test_a_batch_deletes_the_oldest_up_to_its_limit(db: Db, clock: ManualClock):
    for number in range(5):
        async with db.tx() as tx:
            await audit.record(tx, "test", str(number), "x")
        clock.advance(seconds=1)
    async with db.tx() as tx:
        assert await audit.delete_lines(tx, before=tx.now, limit=3) == 3
        assert [line.action for line in await audit.list_lines(tx)] == ["4", "3"]


async def test_keys_are_deleted_a_year_after_they_ended(db: Db, make: Make, clock: ManualClock):
    in_a_day: datetime = clock.now() + timedelta(days=1)
    ends, revoked, stays = await make(expires_at=in_a_day), await make(), await make()
    async with db.tx() as tx:
        await keys.revoke(tx, revoked.key.id, by="test")
    clock.advance(seconds=YEAR.total_seconds())
    await clean(db)
    assert await left(db, store.api_key) == 3
    clock.advance(seconds=86401)
    await clean(db)
    async with db.read() as tx:
        assert [key.id for key in await store.list_keys(tx)] == [stays.key.id]
    assert ends.key.id != stays.key.id


async def test_sessions_are_deleted_when_they_expire(db: Db, logins: Logins, clock: ManualClock):
    await logins.init("ann", "correct horse", by=ROOT)
    await logins.login("ann", "correct horse")
    clock.advance(seconds=SESSION_SECONDS)
    await clean(db)
    assert await left(db, store.console_session) == 1
    clock.advance(seconds=1)
    await clean(db)
    assert await left(db, store.console_session) == 0


async def test_attempts_are_deleted_when_they_no_longer_count_and_locks_when_they_end(
    db: Db, logins: Logins, clock: ManualClock
):
    with pytest.raises(WrongLogin):
        await logins.login("once", "wrong")
    for _ in range(3):
        with pytest.raises(WrongLogin):
            await logins.login("locked", "wrong")
    clock.advance(seconds=LOCK_SECONDS - 1)
    await clean(db)
    assert await left(db, login_attempts.login_attempt) == 2
    with pytest.raises(LoginLocked):
        await logins.login("locked", "wrong")
    clock.advance(seconds=2)
    await clean(db)
    assert await left(db, login_attempts.login_attempt) == 0

"""The lifecycle of keys: created, edited, rotated, revoked, and the first keys of an installation."""

import asyncio
import re
from datetime import timedelta

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError

from penstock.access import audit, keys, store
from penstock.access.credentials import hash_secret
from penstock.access.domain import Caller, Key, KeyState, NewKey, Scope
from penstock.access.errors import BadAdminKey, ExpiryInThePast, KeyNotActive, NoSuchKey
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from tests.access.conftest import Make
from tests.conftest import open_db, rolled_back

ADMIN = Caller(name="ann", user_id=7, scope=Scope.ADMIN, key_id="key_ann", request_id="req-1", address="192.0.2.1")


async def key_of(db: Db, secret: str) -> Key | None:
    async with db.read() as tx:
        return await store.find_key(tx, hash_secret(secret))


async def state_of(db: Db, key_id: str) -> KeyState:
    async with db.read() as tx:
        return (await store.get_key(tx, key_id)).state(tx.now)


async def actions(db: Db) -> list[tuple[str, str, str]]:
    """The audit log, oldest first."""
    async with db.read() as tx:
        return [(line.actor, line.action, line.target) for line in reversed(await audit.list_lines(tx, limit=100))]


class TestCreate:
    async def test_a_key_is_long_random_and_marked(self, make: Make):
        secrets = {(await make()).secret for _ in range(5)}
        assert len(secrets) == 5
        assert all(re.fullmatch(r"sk-[A-Za-z0-9_-]{43}", secret) for secret in secrets)

    async def test_nothing_in_the_database_gives_the_secret_away(self, db: Db, make: Make):
        issued = await make(name="mine")
        async with db.read() as tx:
            rows = [
                row
                for table in ("api_key", "audit_log")
                for row in await tx.conn.execute(text(f"SELECT * FROM {table}"))
            ]
        assert "mine" in str(rows)
        assert issued.secret not in str(rows)
        assert issued.secret[10:-6] not in str(rows)

    async def test_its_prefix_shows_four_characters_at_each_end(self, make: Make):
        issued = await make()
        assert issued.key.prefix == f"{issued.secret[:7]}…{issued.secret[-4:]}"

    async def test_it_keeps_what_it_was_given(self, db: Db, make: Make, clock: ManualClock):
        expires_at = clock.now() + timedelta(days=3)
        more = {"project": "p", "user_id": 5, "merchant_id": 9, "role": "editor", "expires_at": expires_at}
        issued = await make(Scope.READ, name="reader", **more)
        found = await key_of(db, issued.secret)
        assert found == issued.key
        assert found.caller() == Caller(
            name="reader", user_id=5, scope=Scope.READ, merchant_id=9, role="editor", project="p", key_id=found.id
        )
        assert (found.expires_at, found.created_by) == (expires_at, "test")

    async def test_names_may_repeat(self, make: Make):
        assert (await make(name="twin")).key.id != (await make(name="twin")).key.id

    async def test_it_belongs_to_its_creator_unless_a_user_is_given(self, db: Db):
        async with db.tx() as tx:
            own = await keys.create(tx, NewKey(name="a", scope=Scope.READ), by=ADMIN)
            given = await keys.create(tx, NewKey(name="a", scope=Scope.READ, user_id=8), by=ADMIN)
        assert (own.key.user_id, given.key.user_id) == (7, 8)

    async def test_a_program_creates_each_key_for_a_new_user_and_skips_ids_in_use(self, make: Make):
        await make(user_id=3)
        assert [(await make()).key.user_id for _ in range(3)] == [2, 4, 5]

    async def test_concurrent_creates_get_different_users(self, db: Db, make: Make):
        made = await asyncio.gather(*(make() for _ in range(8)))
        assert len({issued.key.user_id for issued in made}) == 8

    async def test_an_expiry_in_the_past_is_refused(self, make: Make, clock: ManualClock):
        with pytest.raises(ExpiryInThePast):
            await make(expires_at=clock.now())


class TestEdit:
    async def test_only_what_is_given_changes(self, db: Db, make: Make):
        before = (await make(Scope.READ, role="editor", user_id=5)).key
        async with db.tx() as tx:
            after = await keys.edit(tx, before.id, {"name": "new name", "scope": Scope.WRITE}, by=ADMIN)
        assert (after.name, after.scope, after.role, after.user_id) == ("new name", Scope.WRITE, "editor", 5)

    async def test_an_expired_key_can_be_given_more_time(self, db: Db, make: Make, clock: ManualClock):
        key = (await make(expires_at=clock.now() + timedelta(seconds=10))).key
        clock.advance(seconds=10)
        assert await state_of(db, key.id) is KeyState.EXPIRED
        async with db.tx() as tx:
            await keys.edit(tx, key.id, {"expires_at": clock.now() + timedelta(seconds=10)}, by=ADMIN)
        assert await state_of(db, key.id) is KeyState.ACTIVE

    async def test_a_revoked_key_stays_as_it_is(self, db: Db, make: Make):
        key = (await make()).key
        async with db.tx() as tx:
            await keys.revoke(tx, key.id, by=ADMIN)
        with pytest.raises(KeyNotActive):
            async with db.tx() as tx:
                await keys.edit(tx, key.id, {"name": "back?"}, by=ADMIN)

    async def test_a_replaced_key_cannot_be_given_more_time(self, db: Db, make: Make, clock: ManualClock):
        key = (await make()).key
        async with db.tx() as tx:
            await keys.rotate(tx, key.id, by=ADMIN, grace_seconds=60)
        with pytest.raises(KeyNotActive):
            async with db.tx() as tx:
                await keys.edit(tx, key.id, {"expires_at": None}, by=ADMIN)

    async def test_a_missing_key_is_named(self, db: Db):
        with pytest.raises(NoSuchKey, match="key_nope"):
            async with db.tx() as tx:
                await keys.edit(tx, "key_nope", {"name": "x"}, by=ADMIN)


class TestRotate:
    async def test_the_new_key_has_what_the_old_one_had(self, db: Db, make: Make, clock: ManualClock):
        old = await make(Scope.READ, project="p", merchant_id=4, expires_at=clock.now() + timedelta(days=1))
        async with db.tx() as tx:
            new = await keys.rotate(tx, old.key.id, by=ADMIN)
        same = ("name", "user_id", "merchant_id", "role", "scope", "project", "expires_at")
        assert [getattr(new.key, name) for name in same] == [getattr(old.key, name) for name in same]
        assert new.secret != old.secret
        found = await key_of(db, new.secret)
        assert found is not None
        assert found.state(clock.now()) is KeyState.ACTIVE

    async def test_without_a_grace_the_old_key_ends_at_once(self, db: Db, make: Make):
        old = (await make()).key
        async with db.tx() as tx:
            new = await keys.rotate(tx, old.id, by=ADMIN)
            ended = await store.get_key(tx, old.id)
        assert await state_of(db, old.id) is KeyState.REVOKED
        assert ended.replaced_by == new.key.id

    async def test_the_old_key_works_for_the_grace_and_not_a_moment_longer(
        self, db: Db, make: Make, clock: ManualClock
    ):
        old = (await make()).key
        async with db.tx() as tx:
            await keys.rotate(tx, old.id, by=ADMIN, grace_seconds=60)
        clock.advance(seconds=59.999)
        assert await state_of(db, old.id) is KeyState.ACTIVE
        clock.advance(seconds=0.001)
        assert await state_of(db, old.id) is KeyState.EXPIRED

    async def test_a_grace_does_not_lengthen_a_key_that_ends_sooner(self, db: Db, make: Make, clock: ManualClock):
        old = (await make(expires_at=clock.now() + timedelta(seconds=10))).key
        async with db.tx() as tx:
            await keys.rotate(tx, old.id, by=ADMIN, grace_seconds=60)
        clock.advance(seconds=10)
        assert await state_of(db, old.id) is KeyState.EXPIRED

    async def test_of_two_rotations_at_once_one_is_refused(self, db: Db, make: Make):
        old = (await make()).key

        async def turn() -> bool:
            try:
                async with db.tx() as tx:
                    await keys.rotate(tx, old.id, by=ADMIN, grace_seconds=60)
            except KeyNotActive:
                return False
            return True

        assert sorted(await asyncio.gather(turn(), turn(), turn())) == [False, False, True]

    async def test_a_revoked_key_cannot_be_rotated_back_to_life(self, db: Db, make: Make):
        old = (await make()).key
        async with db.tx() as tx:
            await keys.revoke(tx, old.id, by=ADMIN)
        with pytest.raises(KeyNotActive):
            async with db.tx() as tx:
                await keys.rotate(tx, old.id, by=ADMIN)

    async def test_a_key_in_its_grace_can_still_be_revoked(self, db: Db, make: Make):
        old = (await make()).key
        async with db.tx() as tx:
            await keys.rotate(tx, old.id, by=ADMIN, grace_seconds=60)
            await keys.revoke(tx, old.id, by=ADMIN)
        assert await state_of(db, old.id) is KeyState.REVOKED


class TestAudit:
    async def test_every_change_is_recorded_with_actor_and_address(self, db: Db, clock: ManualClock):
        async with db.tx() as tx:
            key = (await keys.create(tx, NewKey(name="a", scope=Scope.READ), by=ADMIN)).key
            later = clock.now() + timedelta(days=1)
            await keys.edit(tx, key.id, {"scope": Scope.WRITE, "expires_at": later}, by=ADMIN)
            new = (await keys.rotate(tx, key.id, by=ADMIN)).key
            await keys.revoke(tx, new.id, by=ADMIN)
        verbs = ["key.create", "key.edit", "key.rotate", "key.revoke"]
        assert [action for _, action, _ in await actions(db)] == verbs
        async with db.read() as tx:
            lines = await audit.list_lines(tx)
        assert {(line.actor, line.request_id, line.address, line.detail["by"]) for line in lines} == {
            ("key:key_ann", "req-1", "192.0.2.1", "ann")
        }
        assert lines[-2].detail["scope"] == "write"

    async def test_a_change_that_is_rolled_back_leaves_no_line(self, db: Db):
        async with rolled_back(db) as tx:
            await keys.create(tx, NewKey(name="a", scope=Scope.READ), by=ADMIN)
        assert await actions(db) == []

    async def test_revoking_twice_is_one_line(self, db: Db, make: Make):
        key = (await make()).key
        async with db.tx() as tx:
            first = await keys.revoke(tx, key.id, by=ADMIN)
            assert await keys.revoke(tx, key.id, by=ADMIN) == first
        assert [action for _, action, _ in await actions(db)] == ["key.create", "key.revoke"]


class TestFirstKeys:
    async def test_an_installation_without_keys_gets_exactly_one(self, db: Db):
        async with db.tx() as tx:
            first = await keys.first_admin_key(tx)
        async with db.tx() as tx:
            assert await keys.first_admin_key(tx) is None
        assert first is not None
        found = await key_of(db, first)
        assert found is not None
        assert (found.scope, found.user_id) == (Scope.ADMIN, 1)

    async def test_of_processes_that_start_at_once_one_gets_the_first_key(self, db_url: str):
        """A database handle each, as processes have, connected already so that nobody is late for the race."""
        processes = [open_db(db_url) for _ in range(8)]

        async def connect(db: Db) -> None:
            async with db.tx() as tx:
                await store.count_keys(tx)

        async def start(db: Db) -> str | None:
            async with db.tx() as tx:
                return await keys.first_admin_key(tx)

        await asyncio.gather(*map(connect, processes))

        made = await asyncio.gather(*map(start, processes))
        async with processes[0].read() as tx:
            assert await store.count_keys(tx) == 1
        for db in processes:
            await db.close()
        assert len([secret for secret in made if secret]) == 1

    async def test_the_preset_key_is_stored_once(self, db: Db):
        preset = "chosen-by-the-operator"
        made = []
        for _ in range(3):
            async with db.tx() as tx:
                made.append(await keys.ensure_admin_key(tx, preset))
        assert made == [True, False, False]
        found = await key_of(db, preset)
        assert found is not None
        assert (found.scope, found.user_id, found.prefix) == (Scope.ADMIN, 1, "cho…")
        assert [action for _, action, _ in await actions(db)] == ["key.create"]

    async def test_processes_that_preset_it_at_once_create_one_key(self, db_url: str):
        processes = [open_db(db_url) for _ in range(4)]

        async def start(db: Db) -> bool:
            async with db.tx() as tx:
                return await keys.ensure_admin_key(tx, "chosen-by-the-operator")

        assert sorted(await asyncio.gather(*map(start, processes))) == [False, False, False, True]
        for db in processes:
            await db.close()

    async def test_a_preset_key_that_was_revoked_stays_revoked(self, db: Db, caplog: pytest.LogCaptureFixture):
        preset = "chosen-by-the-operator"
        async with db.tx() as tx:
            await keys.ensure_admin_key(tx, preset)
        key = await key_of(db, preset)
        assert key is not None
        async with db.tx() as tx:
            await keys.revoke(tx, key.id, by=ADMIN)
            await keys.ensure_admin_key(tx, preset)
        assert await state_of(db, key.id) is KeyState.REVOKED
        assert key.id in caplog.text
        assert preset not in caplog.text

    @pytest.mark.parametrize(
        "preset",
        [
            "little",
            "fifteen-letters",
            "sixteen letters with spaces",
            "schlüssel-mit-umlaut",
            "st-" + "a" * 43,
            "one.two.three-and-more",
        ],
    )
    async def test_a_preset_key_that_cannot_be_used_is_refused_without_repeating_it(self, db: Db, preset: str):
        with pytest.raises(BadAdminKey) as refused:
            async with db.tx() as tx:
                await keys.ensure_admin_key(tx, preset)
        assert preset not in str(refused.value)


async def test_keys_are_listed_newest_first_page_by_page(db: Db, make: Make):
    made = [(await make()).key.id for _ in range(5)]
    async with db.read() as tx:
        pages = [[key.id for key in await store.list_keys(tx, offset=offset, limit=2)] for offset in (0, 2, 4, 6)]
        assert await store.count_keys(tx) == 5
    assert [key for page in pages for key in page] == made[::-1]


async def test_the_schema_refuses_an_unknown_scope(db: Db, make: Make):
    await make()
    with pytest.raises(IntegrityError):
        async with db.tx() as tx:
            await tx.conn.execute(store.api_key.update().values(scope="root"))
    async with db.read() as tx:
        assert await tx.conn.scalar(select(store.api_key.c.scope)) == "write"

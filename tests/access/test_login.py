"""Console logins: the first user, passwords, sessions and lock-out."""

import asyncio
from typing import Literal

import pytest
from argon2 import PasswordHasher
from sqlalchemy import func, select, text

from penstock.access import audit, store
from penstock.access.api.logins import Logins
from penstock.access.credentials import hash_secret
from penstock.access.domain import Scope
from penstock.access.errors import AlreadyInitialised, LoginBusy, LoginLocked, WrongLogin
from penstock.access.login import MAX_SESSIONS, Login, Origin
from penstock.access.passwords import MAX_WAITING, Passwords
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from tests.access.conftest import ATTEMPTS, LOCK_SECONDS, ROOT, SESSION_SECONDS
from tests.conftest import open_db

PASSWORD = "correct horse"


@pytest.fixture
async def ann(logins: Logins) -> None:
    await logins.init("Ann", PASSWORD, by=ROOT)


async def tries(logins: Logins, name: str, password: str) -> str:
    """What comes of it, by the error's code."""
    try:
        await logins.login(name, password)
    except (WrongLogin, LoginLocked) as error:
        return error.code
    return "in"


async def lock(logins: Logins, name: str) -> None:
    for _ in range(ATTEMPTS):
        assert await tries(logins, name, "wrong") == "WRONG_LOGIN"


class TestInit:
    async def test_the_first_user_is_an_admin(self, logins: Logins):
        assert not await logins.is_initialised()
        user = await logins.init("Ann", PASSWORD, by=ROOT)
        assert (user.username, user.user_id, user.role, user.scope) == ("Ann", 1, "admin", Scope.ADMIN)
        assert await logins.is_initialised()

    async def test_a_second_init_is_refused(self, logins: Logins, ann: None):
        with pytest.raises(AlreadyInitialised):
            await logins.init("mallory", "mallory's password", by=ROOT)
        assert await tries(logins, "mallory", "mallory's password") == "WRONG_LOGIN"

    async def test_of_concurrent_inits_in_several_processes_one_succeeds(self, db_url: str, passwords: Passwords):
        processes = [open_db(db_url) for _ in range(4)]

        async def init(number: int) -> bool:
            try:
                await Logins(processes[number % 4], passwords).init(f"user {number}", PASSWORD, by=ROOT)
            except AlreadyInitialised:
                return False
            return True

        assert sorted(await asyncio.gather(*map(init, range(8)))) == [False] * 7 + [True]
        async with processes[0].read() as tx:
            assert await tx.conn.scalar(select(func.count()).select_from(store.console_user)) == 1
        for db in processes:
            await db.close()

    async def test_a_password_is_stored_only_as_argon2id(self, db: Db, logins: Logins, ann: None):
        async with db.read() as tx:
            [row] = (await tx.conn.execute(select(store.console_user))).all()
        assert row.password_hash.startswith("$argon2id$")
        assert PASSWORD not in str(row)


class TestLogin:
    async def test_a_login_expires_and_is_stored_as_a_hash(self, db: Db, logins: Logins, ann: None, clock: ManualClock):
        made = await logins.login("Ann", PASSWORD)
        assert made.token.startswith("st-")
        assert (made.expires_at - clock.now()).total_seconds() == SESSION_SECONDS
        async with db.read() as tx:
            assert made.token not in str((await tx.conn.execute(select(store.console_session))).all())
            found = await store.find_session(tx, hash_secret(made.token))
        assert found is not None
        assert found.user == made.user

    @pytest.mark.parametrize("name", ["ann", "ANN", " Ann ", "Ａnn"])
    async def test_a_name_is_the_same_however_it_is_typed(self, logins: Logins, ann: None, name: str):
        assert await tries(logins, name, PASSWORD) == "in"

    async def test_a_password_is_the_same_however_an_accent_is_typed(self, logins: Logins):
        await logins.init("ann", "caf\u00e9 au lait", by=ROOT)
        assert await tries(logins, "ann", "cafe\u0301 au lait") == "in"

    @pytest.mark.parametrize(("name", "password"), [("ann", "wrong"), ("ann", ""), ("nobody", PASSWORD), ("", "")])
    async def test_a_wrong_name_and_a_wrong_password_give_the_same_error(
        self, logins: Logins, ann: None, name: str, password: str
    ):
        with pytest.raises(WrongLogin) as refused:
            await logins.login(name, password)
        assert str(refused.value) == "The username or the password is wrong."

    async def test_a_user_may_have_many_logins_and_the_oldest_is_ended(
        self, db: Db, logins: Logins, ann: None, clock: ManualClock
    ):
        made: list[Login] = []
        for _ in range(MAX_SESSIONS + 2):
            made.append(await logins.login("ann", PASSWORD))
            clock.advance(seconds=1)
        async with db.read() as tx:
            there = [await store.find_session(tx, hash_secret(one.token)) is not None for one in made]
        assert there == [False] * 2 + [True] * MAX_SESSIONS

    async def test_a_hash_with_older_parameters_is_replaced_at_the_next_login(self, db: Db, logins: Logins, ann: None):
        newer = PasswordHasher(time_cost=2, memory_cost=16, parallelism=1)
        after = Logins(db, Passwords(newer))
        await after.login("ann", PASSWORD)
        async with db.read() as tx:
            kept = await tx.conn.scalar(select(store.console_user.c.password_hash))
        assert not newer.check_needs_rehash(kept or "")
        assert await tries(after, "ann", PASSWORD) == "in"

    async def test_a_logout_ends_this_login_and_no_other(self, db: Db, logins: Logins, ann: None):
        one, two = await logins.login("ann", PASSWORD), await logins.login("ann", PASSWORD)
        await logins.logout(one.token, by=one.user.caller())
        async with db.read() as tx:
            assert await store.find_session(tx, hash_secret(one.token)) is None
            assert await store.find_session(tx, hash_secret(two.token)) is not None

    async def test_what_happened_is_in_the_audit_log_with_the_address(self, db: Db, logins: Logins):
        origin = Origin(request_id="req-1", address="192.0.2.1")
        await logins.init("ann", PASSWORD, by=ROOT, origin=origin)
        made = await logins.login("ann", PASSWORD, origin=origin)
        await logins.logout(made.token, by=made.user.caller())
        async with db.read() as tx:
            lines = await audit.list_lines(tx)
        assert [(line.action, line.actor, line.address) for line in reversed(lines)] == [
            ("user.init", "user:1", "192.0.2.1"),
            ("login", "user:1", "192.0.2.1"),
            ("logout", "user:1", ""),
        ]


class TestLockOut:
    @pytest.mark.parametrize("name", ["ann", "nobody"])
    async def test_a_name_is_locked_after_wrong_passwords_in_a_row_whether_or_not_it_exists(
        self, logins: Logins, ann: None, clock: ManualClock, name: str
    ):
        await lock(logins, name)
        with pytest.raises(LoginLocked) as locked:
            await logins.login(name, PASSWORD)
        assert locked.value.wait_seconds == LOCK_SECONDS
        clock.advance(seconds=LOCK_SECONDS - 0.001)
        assert await tries(logins, name, PASSWORD) == "LOGIN_LOCKED"
        clock.advance(seconds=0.001)
        assert await tries(logins, name, PASSWORD) == ("in" if name == "ann" else "WRONG_LOGIN")

    async def test_after_a_lock_the_count_is_reset(self, logins: Logins, ann: None, clock: ManualClock):
        await lock(logins, "ann")
        clock.advance(seconds=LOCK_SECONDS)
        await lock(logins, "ann")
        assert await tries(logins, "ann", PASSWORD) == "LOGIN_LOCKED"

    async def test_a_correct_password_resets_the_count(self, logins: Logins, ann: None):
        for _ in range(3):
            for _ in range(ATTEMPTS - 1):
                await tries(logins, "ann", "wrong")
            assert await tries(logins, "ann", PASSWORD) == "in"

    async def test_wrong_passwords_long_ago_do_not_count(self, logins: Logins, ann: None, clock: ManualClock):
        for _ in range(ATTEMPTS - 1):
            await tries(logins, "ann", "wrong")
        clock.advance(seconds=LOCK_SECONDS)
        assert await tries(logins, "ann", "wrong") == "WRONG_LOGIN"
        assert await tries(logins, "ann", PASSWORD) == "in"

    async def test_wrong_passwords_from_elsewhere_do_not_lock_the_only_admin_out(self, logins: Logins, ann: None):
        stranger, home = Origin(address="198.51.100.7"), Origin(address="192.0.2.1")
        for _ in range(ATTEMPTS):
            with pytest.raises(WrongLogin):
                await logins.login("ann", "wrong", origin=stranger)
        with pytest.raises(LoginLocked):
            await logins.login("ann", PASSWORD, origin=stranger)
        assert (await logins.login("ann", PASSWORD, origin=home)).user.username == "Ann"
        with pytest.raises(LoginLocked):  # a login at home does not unlock the name elsewhere
            await logins.login("ann", PASSWORD, origin=stranger)

    async def test_all_addresses_of_an_ipv6_network_count_as_one(self, logins: Logins, ann: None):
        for number in range(ATTEMPTS):
            with pytest.raises(WrongLogin):
                await logins.login("ann", "wrong", origin=Origin(address=f"2001:db8::{number}"))
        with pytest.raises(LoginLocked):
            await logins.login("ann", PASSWORD, origin=Origin(address="2001:db8::ffff"))
        await logins.login("ann", PASSWORD, origin=Origin(address="2001:db8:1::1"))

    async def test_other_names_are_not_locked(self, logins: Logins, ann: None):
        await lock(logins, "nobody")
        assert await tries(logins, "ann", PASSWORD) == "in"

    async def test_the_lock_holds_in_every_process(
        self, db_url: str, logins: Logins, ann: None, passwords: Passwords, clock: ManualClock
    ):
        other = open_db(db_url, clock)
        elsewhere = Logins(other, passwords, attempts=ATTEMPTS, lock_seconds=LOCK_SECONDS)
        await lock(logins, "ann")
        assert await tries(elsewhere, "ann", PASSWORD) == "LOGIN_LOCKED"
        await other.close()

    async def test_parallel_guesses_do_not_exceed_the_limit(self, logins: Logins, ann: None):
        came_of = await asyncio.gather(*(tries(logins, "ann", f"guess {number}") for number in range(20)))
        assert sorted(came_of) == ["LOGIN_LOCKED"] * (20 - ATTEMPTS) + ["WRONG_LOGIN"] * ATTEMPTS

    async def test_a_limit_of_one_locks_at_the_first_wrong_password(self, db: Db, passwords: Passwords, ann: None):
        strict = Logins(db, passwords, attempts=1, lock_seconds=LOCK_SECONDS)
        assert await tries(strict, "ann", "wrong") == "WRONG_LOGIN"
        assert await tries(strict, "ann", PASSWORD) == "LOGIN_LOCKED"

    async def test_a_lock_is_in_the_audit_log_without_what_was_typed(
        self, db: Db, logins: Logins, ann: None, caplog: pytest.LogCaptureFixture
    ):
        await lock(logins, "ann")
        await lock(logins, "my-password-by-mistake")
        async with db.read() as tx:
            lines = await audit.list_lines(tx, action="login.locked")
            everything = [
                str((await tx.conn.execute(text(f"SELECT * FROM {table}"))).all())
                for table in ("audit_log", "login_attempt")
            ]
        assert [line.target for line in lines] == ["unknown", "user:1"]
        assert "my-password-by-mistake" not in " ".join([*everything, caplog.text])


class TestPasswords:
    async def test_an_unknown_name_takes_the_same_work_as_a_known_one(self):
        """Counted, not timed: argon2 runs once either way."""
        verified = []

        class Counting(PasswordHasher):
            def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:  # noqa: A002  (the library's name)
                verified.append(hash)
                return super().verify(hash, password)

        passwords = Passwords(Counting(time_cost=1, memory_cost=8, parallelism=1))
        kept = await passwords.hash(PASSWORD)
        assert not await passwords.check(kept, "wrong")
        assert not await passwords.check(None, PASSWORD)
        assert not await passwords.check(None, "")
        assert [str(one).rpartition("$")[0].rpartition("$")[0] for one in verified] == [
            "$argon2id$v=19$m=8,t=1,p=1"
        ] * 3

    async def test_an_invalid_hash_is_a_wrong_password(self, passwords: Passwords):
        assert not await passwords.check("not a hash", PASSWORD)

    async def test_the_event_loop_goes_on_while_a_password_is_checked(self):
        slow = Passwords(PasswordHasher(time_cost=3, memory_cost=32_768, parallelism=1))
        checking = asyncio.ensure_future(slow.hash(PASSWORD))
        turns = 0
        while not checking.done():
            turns += 1
            await asyncio.sleep(0.001)
        assert turns > 3

    async def test_too_many_at_once_are_refused_without_counting_an_attempt(self, db: Db, logins: Logins, ann: None):
        crowded = Passwords(PasswordHasher(time_cost=2, memory_cost=8192, parallelism=1))
        busy = Logins(db, crowded, attempts=MAX_WAITING + 1)
        waiting = [asyncio.ensure_future(busy.login("ann", PASSWORD)) for _ in range(MAX_WAITING)]
        await asyncio.sleep(0)  # each has its place, whatever it does first
        with pytest.raises(LoginBusy):
            await busy.login("ann", PASSWORD)
        await asyncio.gather(*waiting)
        assert await tries(logins, "ann", PASSWORD) == "in"

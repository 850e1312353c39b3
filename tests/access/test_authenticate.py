"""Authentication: accepted credentials, and how long lookups are cached."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import jwt
import pytest
from sqlalchemy import text
from starlette.datastructures import Headers

from penstock.access import keys, store
from penstock.access.api.logins import Logins
from penstock.access.authenticate import Authenticator
from penstock.access.credentials import hash_secret
from penstock.access.domain import Caller, Scope
from penstock.access.errors import InvalidApiKey, InvalidToken, SessionOver, TwoCredentials
from penstock.access.tokens import Tokens
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from tests.access.conftest import ROOT, SECRET, SESSION_SECONDS, Make
from tests.access.waiting import until
from tests.conftest import open_db


def shown(*headers: tuple[str, str]) -> Headers:
    return Headers(raw=[(name.lower().encode(), value.encode()) for name, value in headers])


def with_key(secret: str) -> Headers:
    return shown(("X-API-Key", secret))


def bearer(text: str) -> Headers:
    return shown(("Authorization", f"Bearer {text}"))


async def revoke(db: Db, key_id: str) -> None:
    async with db.tx() as tx:
        await keys.revoke(tx, key_id, by="test")


@asynccontextmanager
async def running(access: Authenticator) -> AsyncIterator[None]:
    task = asyncio.create_task(access.run())
    await asyncio.sleep(0)  # it listens from its first step on
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def opens(access: Authenticator, secret: str) -> bool:
    try:
        return await access.identify(with_key(secret)) is not None
    except InvalidApiKey:
        return False


class TestCredentials:
    @pytest.fixture
    def db_url(self, sqlite_url: str) -> str:
        """What a credential means does not depend on the database."""
        return sqlite_url

    async def test_without_a_credential_there_is_no_caller(self, access: Authenticator):
        assert await access.identify(shown()) is None
        assert await access.identify(shown(("X-API-Key", " "), ("Authorization", "Bearer "))) is None

    async def test_a_key_is_taken_from_either_header(self, access: Authenticator, make: Make):
        issued = await make(Scope.READ, merchant_id=4)
        expected = issued.key.caller()
        assert await access.identify(with_key(issued.secret)) == expected
        assert await access.identify(shown(("Authorization", f"bearer  {issued.secret}"))) == expected

    async def test_the_same_key_twice_is_one_key(self, access: Authenticator, make: Make):
        secret = (await make()).secret
        both = shown(("X-API-Key", secret), ("X-API-Key", secret), ("Authorization", f"Bearer {secret}"))
        assert await access.identify(both) is not None

    @pytest.mark.parametrize("second", [("X-API-Key", "sk-other"), ("Authorization", "Bearer sk-other")])
    async def test_two_different_ones_are_refused(self, access: Authenticator, make: Make, second: tuple[str, str]):
        secret = (await make()).secret
        with pytest.raises(TwoCredentials):
            await access.identify(shown(("X-API-Key", secret), second))

    async def test_other_authorization_schemes_are_ignored(self, access: Authenticator, make: Make):
        secret = (await make()).secret
        basic = ("Authorization", "Basic YTpi")
        assert await access.identify(shown(basic)) is None
        assert await access.identify(shown(basic, ("X-API-Key", secret))) is not None

    async def test_a_jwt_is_taken_as_a_bearer_and_nowhere_else(self, access: Authenticator, clock: ManualClock):
        claims = {"user_id": 5, "exp": clock.now().timestamp() + 60}
        token = jwt.encode(claims, SECRET, algorithm="HS256")
        found = await access.identify(bearer(token))
        assert found is not None
        assert (found.name, found.user_id, found.scope, found.key_id) == ("user:5", 5, Scope.WRITE, None)
        with pytest.raises(InvalidApiKey):
            await access.identify(with_key(token))

    async def test_a_login_is_taken_as_a_bearer_until_it_ends(
        self, access: Authenticator, logins: Logins, clock: ManualClock
    ):
        await logins.init("ann", "correct horse", by=ROOT)
        token = (await logins.login("ann", "correct horse")).token
        found = await access.identify(bearer(token))
        assert found == Caller(name="ann", user_id=1, scope=Scope.ADMIN, role="admin")
        with pytest.raises(InvalidApiKey):
            await access.identify(with_key(token))
        clock.advance(seconds=SESSION_SECONDS)
        with pytest.raises(SessionOver):
            await access.identify(bearer(token))

    @pytest.mark.parametrize("garbage", ["x", "sk-", "sk-" + "a" * 43, "a" * 70_000, "ключ", "\x01\x02", "a b c"])
    async def test_garbage_is_an_unknown_key(self, access: Authenticator, garbage: str):
        with pytest.raises(InvalidApiKey, match="not known"):
            await access.identify(with_key(garbage))

    async def test_garbage_with_two_dots_is_a_bad_token(self, access: Authenticator):
        for garbage in ("..", "a.b.c", "eyJ.eyJ.x"):
            with pytest.raises(InvalidToken):
                await access.identify(bearer(garbage))

    async def test_the_holder_of_a_key_learns_why_it_is_not_valid(
        self, db: Db, access: Authenticator, make: Make, clock: ManualClock
    ):
        ends = await make(expires_at=clock.now() + timedelta(seconds=1))
        revoked = await make()
        await revoke(db, revoked.key.id)
        clock.advance(seconds=1)
        for secret, english, chinese in [(ends.secret, "expired", "过期"), (revoked.secret, "revoked", "撤销")]:
            with pytest.raises(InvalidApiKey, match=english) as refused:
                await access.identify(with_key(secret))
            assert chinese in refused.value.in_chinese()


class TestCaching:
    async def test_a_known_key_is_cached_for_two_seconds(
        self, access: Authenticator, make: Make, clock: ManualClock, db: Db
    ):
        secret = (await make()).secret
        assert await opens(access, secret)
        async with db.tx() as tx:
            await tx.conn.execute(store.api_key.delete())
        clock.advance(seconds=1.999)
        assert await opens(access, secret)
        clock.advance(seconds=0.001)
        assert not await opens(access, secret)

    async def test_a_key_that_expires_while_it_is_cached_is_refused(
        self, access: Authenticator, make: Make, clock: ManualClock
    ):
        secret = (await make(expires_at=clock.now() + timedelta(seconds=1))).secret
        assert await opens(access, secret)
        clock.advance(seconds=1)
        assert not await opens(access, secret)

    async def test_a_revoke_in_this_process_is_known_at_once(self, db: Db, access: Authenticator, make: Make):
        issued = await make()
        async with running(access):
            assert await opens(access, issued.secret)
            await revoke(db, issued.key.id)
            await _until_refused(access, issued.secret)

    async def test_an_edit_in_this_process_is_known_at_once(self, db: Db, access: Authenticator, make: Make):
        issued = await make(Scope.ADMIN)
        async with running(access):
            assert await opens(access, issued.secret)
            async with db.tx() as tx:
                await keys.edit(tx, issued.key.id, {"scope": Scope.READ}, by="test")

            async def is_no_admin() -> bool:
                found = await access.identify(with_key(issued.secret))
                return found is not None and not found.is_admin

            await until(is_no_admin)

    async def test_a_revoke_in_another_process_is_known_within_two_seconds(
        self, db: Db, db_url: str, access: Authenticator, make: Make, clock: ManualClock
    ):
        other = open_db(db_url, clock)
        elsewhere = Authenticator(other, tokens=Tokens(clock))
        issued = await make()
        assert await opens(elsewhere, issued.secret)
        await revoke(db, issued.key.id)
        clock.advance(seconds=2)
        assert not await opens(elsewhere, issued.secret)
        await other.close()

    async def test_a_notification_from_another_process_clears_the_cache(
        self, db: Db, db_url: str, make: Make, clock: ManualClock
    ):
        other = open_db(db_url, clock)
        elsewhere = Authenticator(other, tokens=Tokens(clock))
        issued = await make()
        async with running(elsewhere):
            assert await opens(elsewhere, issued.secret)
            await revoke(db, issued.key.id)
            other.wakeups.wake("access")  # what a bell does here when it rang there
            await _until_refused(elsewhere, issued.secret)
        await other.close()

    async def test_an_unknown_key_is_cached_too(self, db: Db, access: Authenticator, make: Make, clock: ManualClock):
        secret = "sk-" + secrets.token_urlsafe(32)
        assert not await opens(access, secret)
        issued = await make()
        async with db.tx() as tx:
            renamed = store.api_key.update().where(store.api_key.c.id == issued.key.id)
            await tx.conn.execute(renamed.values(hash=hash_secret(secret)))
        assert not await opens(access, secret)
        clock.advance(seconds=2)
        assert await opens(access, secret)


class TestLastUsed:
    async def last_used(self, db: Db, key_id: str) -> object:
        async with db.read() as tx:
            return (await store.get_key(tx, key_id)).last_used_at

    async def test_it_is_written_in_the_background_after_a_minute(
        self, db: Db, access: Authenticator, make: Make, clock: ManualClock
    ):
        issued = await make()
        async with running(access):
            assert await opens(access, issued.secret)
            used_at = clock.now()
            assert await self.last_used(db, issued.key.id) is None
            clock.advance(seconds=60)

            async def is_written() -> bool:
                return await self.last_used(db, issued.key.id) == used_at

            await until(is_written)

    async def test_two_processes_write_it_once_a_minute(
        self, db: Db, access: Authenticator, make: Make, clock: ManualClock
    ):
        issued = await make()
        other = Authenticator(db, tokens=Tokens(clock))
        assert await opens(access, issued.secret)
        first = clock.now()
        await access.write_last_used()
        clock.advance(seconds=30)
        assert await opens(other, issued.secret)
        await other.write_last_used()
        assert await self.last_used(db, issued.key.id) == first
        clock.advance(seconds=30)
        assert await opens(other, issued.secret)
        await other.write_last_used()
        assert await self.last_used(db, issued.key.id) == clock.now()

    async def test_a_failed_write_is_retried(
        self, db: Db, access: Authenticator, make: Make, caplog: pytest.LogCaptureFixture
    ):
        issued = await make()
        assert await opens(access, issued.secret)
        async with db.tx() as tx:
            await tx.conn.execute(text("ALTER TABLE api_key RENAME TO away"))
        await access.write_last_used()
        assert "retrying later" in caplog.text
        async with db.tx() as tx:
            await tx.conn.execute(text("ALTER TABLE away RENAME TO api_key"))
        await access.write_last_used()
        assert await self.last_used(db, issued.key.id) is not None

    async def test_a_refused_key_was_not_used(self, db: Db, access: Authenticator, make: Make):
        issued = await make()
        await revoke(db, issued.key.id)
        assert not await opens(access, issued.secret)
        await access.write_last_used()
        assert await self.last_used(db, issued.key.id) is None


async def _until_refused(access: Authenticator, secret: str) -> None:
    async def is_refused() -> bool:
        return not await opens(access, secret)

    await until(is_refused)

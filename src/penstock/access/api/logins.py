"""A login from its password to its session, and changes of passwords.

A password is hashed or checked between two short transactions: argon2 takes longer than a transaction may stay open.
"""

from datetime import timedelta

from penstock.access import login, store, users
from penstock.access.domain import Caller, Scope, User
from penstock.access.errors import AlreadyInitialised, WrongLogin
from penstock.access.login import NO_ORIGIN, Login, Origin
from penstock.access.passwords import Passwords
from penstock.kernel.db import Db


class Logins:
    """Creates and ends console logins, and sets passwords."""

    def __init__(
        self,
        db: Db,
        passwords: Passwords,
        *,
        attempts: int = 5,
        lock_seconds: float = 900,
        session_seconds: float = 43200,
    ) -> None:
        self._db = db
        self._passwords = passwords
        self._attempts = attempts
        self._lock = timedelta(seconds=lock_seconds)
        self._session_time = timedelta(seconds=session_seconds)

    async def is_initialised(self) -> bool:
        """Whether the first user exists."""
        async with self._db.read() as tx:
            return await store.has_users(tx)

    async def init(
        self, username: str, password: str, *, by: Caller | None, token: str | None = None, origin: Origin = NO_ORIGIN
    ) -> User:
        """Create the first user, an admin, for an admin or for who has a setup token.

        It works once: of several requests at once one succeeds, the others fail.
        """
        await self._check_may_init(by, token)  # before the expensive hash
        hashed = await self._hash(password)
        async with self._db.tx(actor=username) as tx:
            if by is None or not by.is_admin:
                await login.check_setup_token(tx, token)
            return await login.create_first_user(tx, username, hashed, origin=origin)

    async def login(self, username: str, password: str, *, origin: Origin = NO_ORIGIN) -> Login:
        """Log a user in. Raises `WrongLogin`, or `LoginLocked` without checking the password."""
        with self._passwords.slot():
            return await self._login(username, password, origin)

    async def logout(self, token: str, *, by: Caller) -> None:
        """End a login, in every process."""
        async with self._db.tx(actor=by.name) as tx:
            await login.logout(tx, token, by=by)

    async def add_user(self, username: str, password: str, *, scope: Scope, by: Caller) -> User:
        """Add a user."""
        hashed = await self._hash(password)
        async with self._db.tx(actor=by.name) as tx:
            return await users.add(tx, username, hashed, scope=scope, by=by)

    async def change_password(self, old: str, new: str, *, token: str, by: Caller) -> None:
        """Change the password of the caller's own login; the old one is checked and counted like at a login."""
        origin = Origin(request_id=by.request_id, address=by.address)
        with self._passwords.slot():
            user = await self._check_password(by.name, old, origin)
        hashed = await self._hash(new)
        async with self._db.tx(actor=by.name) as tx:
            await users.change_password(tx, user, hashed, token=token, by=by)

    async def reset_password(self, id_: str, password: str, *, by: Caller) -> User:
        """Set the password of another user."""
        hashed = await self._hash(password)
        async with self._db.tx(actor=by.name) as tx:
            return await users.reset_password(tx, await store.get_user(tx, id_), hashed, by=by)

    async def _check_may_init(self, by: Caller | None, token: str | None) -> None:
        async with self._db.read() as tx:
            if await store.has_users(tx):
                raise AlreadyInitialised
            if by is None or not by.is_admin:
                await login.check_setup_token(tx, token)

    async def _hash(self, password: str) -> str:
        with self._passwords.slot():
            return await self._passwords.hash(password)

    async def _login(self, username: str, password: str, origin: Origin) -> Login:
        user = await self._check_password(username, password, origin)
        hashed = user.password_hash
        if self._passwords.is_outdated(hashed):
            hashed = await self._passwords.hash(password)
        async with self._db.tx(actor=user.username) as tx:
            expires_at = tx.now + self._session_time
            return await login.create_session(tx, user, password_hash=hashed, expires_at=expires_at, origin=origin)

    async def _check_password(self, username: str, password: str, origin: Origin) -> User:
        """The user with this name and password; a wrong one counts. Raises `WrongLogin` or `LoginLocked`."""
        async with self._db.tx(actor="login") as tx:
            number, user = await login.claim_attempt(tx, username, most=self._attempts, lock=self._lock, origin=origin)
        if await self._passwords.check(user.password_hash if user else None, password) and user is not None:
            return user
        if number >= self._attempts:
            async with self._db.tx(actor="login") as tx:
                await login.record_lock(tx, user, number, origin=origin)
        raise WrongLogin

"""Console logins: the first user is created once, then users log in with a name and a password.

A login is an opaque token, stored as a hash, that expires. After several wrong passwords in a row a name is locked for
a while, whether or not a user has it, so that nothing reveals which names exist. An attempt is counted before its
password is checked, so parallel attempts cannot exceed the limit.
"""

import logging
import unicodedata
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from penstock.access import audit, store
from penstock.access.credentials import SESSION_PREFIX, hash_secret, new_secret
from penstock.access.domain import Caller, Scope, User
from penstock.access.errors import AlreadyInitialised, LoginLocked, WrongLogin
from penstock.access.keys import CHANNEL
from penstock.access.passwords import Passwords
from penstock.kernel.db import Db, Tx

log = logging.getLogger(__name__)

MAX_SESSIONS = 50  # logins of one user at the same time
ADMIN_ROLE = "admin"


@dataclass(frozen=True, kw_only=True)
class Login:
    """A new login. Its token is returned here and never again."""

    token: str
    user: User
    expires_at: datetime


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The origin of a request, for the audit log."""

    request_id: str = ""
    address: str = ""


NO_ORIGIN = Origin()


class Logins:
    """Creates and ends console logins."""

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

    async def init(self, username: str, password: str, *, origin: Origin = NO_ORIGIN) -> User:
        """Create the first user, an admin. It works once: of several requests at once one succeeds, the others fail."""
        if await self.is_initialised():
            raise AlreadyInitialised  # before the expensive hash
        with self._passwords.slot():
            hashed = await self._passwords.hash(password)
        async with self._db.tx(actor=username) as tx:
            await store.lock_counter(tx)
            if await store.has_users(tx):
                raise AlreadyInitialised
            user = _first_user(tx, username, hashed)
            await store.insert_user(tx, user, login=login_name(username))
            await audit.record(tx, _from(user, origin), "user.init", f"user:{user.user_id}", username=username)
        return user

    async def login(self, username: str, password: str, *, origin: Origin = NO_ORIGIN) -> Login:
        """Log a user in. Raises `WrongLogin`, or `LoginLocked` without checking the password."""
        with self._passwords.slot():
            return await self._login(username, password, origin)

    async def _login(self, username: str, password: str, origin: Origin) -> Login:
        name = login_name(username)
        async with self._db.tx(actor="login") as tx:
            number = await store.claim_attempt(tx, hash_secret(name), most=self._attempts, lock=self._lock)
            if isinstance(number, datetime):
                raise LoginLocked(wait_seconds=(number - tx.now).total_seconds())
            user = await store.find_user(tx, name)
        if not await self._passwords.check(user.password_hash if user else None, password) or user is None:
            await self._record_lock(user, number, origin)
            raise WrongLogin
        return await self._create_session(user, password, origin)

    async def logout(self, token: str, *, by: Caller) -> None:
        """End a login, in every process."""
        async with self._db.tx(actor=by.name) as tx:
            await store.delete_session(tx, hash_secret(token))
            await audit.record(tx, by, "logout", f"user:{by.user_id}")
            tx.wake(CHANNEL)

    async def _record_lock(self, user: User | None, number: int, origin: Origin) -> None:
        if number < self._attempts:
            return
        account = f"user:{user.user_id}" if user else "unknown"  # never the name as typed: it may be a password
        log.warning("login locked after %d wrong passwords in a row: %s", number, account)
        by = _from(user, origin) if user else "login"
        async with self._db.tx(actor="login") as tx:
            await audit.record(tx, by, "login.locked", account)

    async def _create_session(self, user: User, password: str, origin: Origin) -> Login:
        hashed = user.password_hash
        if self._passwords.is_outdated(hashed):
            hashed = await self._passwords.hash(password)
        token = new_secret(SESSION_PREFIX)
        async with self._db.tx(actor=user.username) as tx:
            expires_at = tx.now + self._session_time
            await store.delete_attempt(tx, hash_secret(login_name(user.username)))
            await store.move_logged_in(tx, user, password_hash=hashed)
            await store.insert_session(tx, user, hashed=hash_secret(token), expires_at=expires_at)
            await store.delete_extra_sessions(tx, user, most=MAX_SESSIONS)
            await audit.record(tx, _from(user, origin), "login", f"user:{user.user_id}")
            user = replace(user, last_login_at=tx.now)
        return Login(token=token, user=user, expires_at=expires_at)


def login_name(username: str) -> str:
    """The name as it is compared: without regard to case, surrounding spaces and Unicode form."""
    return unicodedata.normalize("NFKC", username).strip().casefold()


def _first_user(tx: Tx, username: str, hashed: str) -> User:
    return User(
        id=tx.new_id("usr"),
        username=username.strip(),
        password_hash=hashed,
        user_id=store.FIRST_USER_ID,
        role=ADMIN_ROLE,
        scope=Scope.ADMIN,
        created_at=tx.now,
        last_login_at=None,
    )


def _from(user: User, origin: Origin) -> Caller:
    return replace(user.caller(), request_id=origin.request_id, address=origin.address)

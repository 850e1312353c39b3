"""People at the console: the first user is made once, then everyone logs in with a name and a password.

A login is an opaque token, kept as a hash, that lasts for a time. After several wrong passwords in a row a name is
locked for a while, whether anyone has it or not, so that nothing tells which names exist. An attempt is counted before
its password is looked at: a thousand at once are no more than a thousand in a row.
"""

import logging
import unicodedata
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from penstock.access import store
from penstock.access.audit import note
from penstock.access.domain import Caller, Scope, User
from penstock.access.errors import AlreadyInitialised, LoginLocked, WrongLogin
from penstock.access.keys import CHANNEL
from penstock.access.passwords import Passwords
from penstock.access.secret import SESSION_MARK, hash_of, new_secret
from penstock.kernel.db import Db, Tx

log = logging.getLogger(__name__)

MOST_SESSIONS = 50  # logins of one user at the same time
ADMIN_ROLE = "admin"


@dataclass(frozen=True, kw_only=True)
class Login:
    """A login that was just made. The token is seen here and never again."""

    token: str
    user: User
    expires_at: datetime


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a request came from, for the audit log."""

    request_id: str = ""
    address: str = ""


NOWHERE = Origin()


class Logins:
    """Lets people in."""

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
        self._lasts = timedelta(seconds=session_seconds)

    async def is_initialised(self) -> bool:
        """Whether the first user exists."""
        async with self._db.read() as tx:
            return await store.has_users(tx)

    async def init(self, username: str, password: str, *, origin: Origin = NOWHERE) -> User:
        """Make the first user, an admin. Of many who ask at once one gets it; the others get `AlreadyInitialised`."""
        if await self.is_initialised():
            raise AlreadyInitialised  # before the costly part
        with self._passwords.place():
            hashed = await self._passwords.hash(password)
        async with self._db.tx(actor=username) as tx:
            await store.hold_counter(tx)
            if await store.has_users(tx):
                raise AlreadyInitialised
            user = _first_user(tx, username, hashed)
            await store.insert_user(tx, user, login=login_name(username))
            await note(tx, _from(user, origin), "user.init", f"user:{user.user_id}", username=username)
        return user

    async def login(self, username: str, password: str, *, origin: Origin = NOWHERE) -> Login:
        """Let someone in, or raise `WrongLogin`, or `LoginLocked` without a look at the password."""
        with self._passwords.place():
            return await self._login(username, password, origin)

    async def _login(self, username: str, password: str, origin: Origin) -> Login:
        name = login_name(username)
        async with self._db.tx(actor="login") as tx:
            number = await store.claim_attempt(tx, hash_of(name), most=self._attempts, lock=self._lock)
            if isinstance(number, datetime):
                raise LoginLocked(wait_seconds=(number - tx.now).total_seconds())
            user = await store.find_user(tx, name)
        if not await self._passwords.check(user.password_hash if user else None, password) or user is None:
            await self._note_wrong(user, number, origin)
            raise WrongLogin
        return await self._let_in(user, password, origin)

    async def logout(self, token: str, *, by: Caller) -> None:
        """End a login at once, in every process."""
        async with self._db.tx(actor=by.name) as tx:
            await store.delete_session(tx, hash_of(token))
            await note(tx, by, "logout", f"user:{by.user_id}")
            tx.wake(CHANNEL)

    async def _note_wrong(self, user: User | None, number: int, origin: Origin) -> None:
        if number < self._attempts:
            return
        whom = f"user:{user.user_id}" if user else "unknown"  # never the name as typed: it may be a password
        log.warning("a login is locked after %d wrong passwords in a row: %s", number, whom)
        by = _from(user, origin) if user else "login"
        async with self._db.tx(actor="login") as tx:
            await note(tx, by, "login.locked", whom)

    async def _let_in(self, user: User, password: str, origin: Origin) -> Login:
        kept = user.password_hash
        if self._passwords.outdated(kept):
            kept = await self._passwords.hash(password)
        token = new_secret(SESSION_MARK)
        async with self._db.tx(actor=user.username) as tx:
            expires_at = tx.now + self._lasts
            await store.delete_attempt(tx, hash_of(login_name(user.username)))
            await store.move_logged_in(tx, user, password_hash=kept)
            await store.insert_session(tx, user, hashed=hash_of(token), expires_at=expires_at)
            await store.delete_extra_sessions(tx, user, most=MOST_SESSIONS)
            await note(tx, _from(user, origin), "login", f"user:{user.user_id}")
            user = replace(user, last_login_at=tx.now)
        return Login(token=token, user=user, expires_at=expires_at)


def login_name(username: str) -> str:
    """The name as it is compared: whatever its case, its spaces around and its way of writing accents."""
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

"""Console logins: the first user is created once, then users log in with a name and a password.

The first user is an admin, so it is created only by who has an admin key or a setup token: the server prints a token
when it starts and there is no user.

A login is an opaque token, stored as a hash, that expires. After several wrong passwords in a row a name is locked for
a while, whether or not a user has it, so that nothing reveals which names exist. It is locked for the address that the
wrong passwords came from, so that a stranger cannot lock the only admin out. An attempt is counted before its password
is checked, so parallel attempts cannot exceed the limit.
"""

import logging
import unicodedata
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from ipaddress import IPv6Address, IPv6Network

from penstock.access import audit, login_attempts, store
from penstock.access.credentials import SESSION_PREFIX, SETUP_PREFIX, hash_secret, new_secret
from penstock.access.domain import Caller, Scope, User
from penstock.access.errors import AlreadyInitialised, InitRefused, LoginLocked
from penstock.access.keys import CHANNEL
from penstock.kernel.db import Tx

log = logging.getLogger(__name__)

MAX_SESSIONS = 50  # logins of one user at the same time
ADMIN_ROLE = "admin"
SETUP_TIME = timedelta(days=1)


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


async def create_setup_token(tx: Tx) -> str | None:
    """A token that can create the first user, once; None if there is a user."""
    if await store.has_users(tx):
        return None
    token = new_secret(SETUP_PREFIX)
    await store.insert_setup_token(tx, hash_secret(token), expires_at=tx.now + SETUP_TIME)
    return token


async def check_setup_token(tx: Tx, token: str | None) -> None:
    """Raise `InitRefused` unless the token is valid."""
    if token is None or not await store.is_setup_token(tx, hash_secret(token)):
        raise InitRefused


async def create_first_user(tx: Tx, username: str, password_hash: str, *, origin: Origin = NO_ORIGIN) -> User:
    """Create the first user, an admin, and end all setup tokens. Raises `AlreadyInitialised` if there is a user."""
    await store.lock_counter(tx)
    if await store.has_users(tx):
        raise AlreadyInitialised
    user = _first_user(tx, username, password_hash)
    await store.insert_user(tx, user, login=login_name(username))
    await store.delete_setup_tokens(tx, before=tx.now + 2 * SETUP_TIME)
    await audit.record(tx, _from(user, origin), "user.init", f"user:{user.user_id}", username=username)
    return user


async def claim_attempt(
    tx: Tx, username: str, *, most: int, lock: timedelta, origin: Origin = NO_ORIGIN
) -> tuple[int, User | None]:
    """Count an attempt; returns its number in a row and the user of that name. Raises `LoginLocked`."""
    number = await login_attempts.claim(tx, _attempt_key(username, origin), most=most, lock=lock)
    if isinstance(number, datetime):
        raise LoginLocked(wait_seconds=(number - tx.now).total_seconds())
    return number, await store.find_user(tx, login_name(username))


async def record_lock(tx: Tx, user: User | None, number: int, *, origin: Origin = NO_ORIGIN) -> None:
    """Record that a name was locked after this many wrong passwords in a row."""
    account = f"user:{user.user_id}" if user else "unknown"  # never the name as typed: it may be a password
    log.warning("login locked after %d wrong passwords in a row: %s", number, account)
    await audit.record(tx, _from(user, origin) if user else "login", "login.locked", account)


async def create_session(
    tx: Tx, user: User, *, password_hash: str, expires_at: datetime, origin: Origin = NO_ORIGIN
) -> Login:
    """Log in a user whose password was checked; `password_hash` is stored in place of the present one."""
    token = new_secret(SESSION_PREFIX)
    await login_attempts.delete_one(tx, _attempt_key(user.username, origin))
    await store.move_logged_in(tx, user, password_hash=password_hash)
    await store.insert_session(tx, user, hashed=hash_secret(token), expires_at=expires_at)
    await store.delete_extra_sessions(tx, user, most=MAX_SESSIONS)
    await audit.record(tx, _from(user, origin), "login", f"user:{user.user_id}")
    return Login(token=token, user=replace(user, last_login_at=tx.now), expires_at=expires_at)


async def logout(tx: Tx, token: str, *, by: Caller) -> None:
    """End a login, in every process."""
    await store.delete_session(tx, hash_secret(token))
    await audit.record(tx, by, "logout", f"user:{by.user_id}")
    tx.wake(CHANNEL)


def _attempt_key(username: str, origin: Origin) -> str:
    """Attempts count by name and address."""
    return f"{hash_secret(login_name(username))}:{hash_secret(network_of(origin.address))}"


def network_of(address: str) -> str:
    """The address, or the /64 network of an IPv6 address, since one host has all addresses of its network."""
    try:
        parsed = IPv6Address(address)
    except ValueError:
        return address
    return address if parsed.ipv4_mapped else str(IPv6Network((parsed, 64), strict=False))


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

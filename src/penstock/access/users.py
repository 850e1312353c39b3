"""Console users: added and removed by admins; passwords changed by their owners and reset by admins.

A new password ends the other logins of its user. Passwords come in as hashes: hashing takes longer than a transaction
may stay open (`api/logins.py`).
"""

import secrets
from dataclasses import replace

from penstock.access import audit, login_attempts, store
from penstock.access.credentials import hash_secret
from penstock.access.domain import Caller, Scope, User
from penstock.access.errors import LastAdmin, NoSuchUser, UsernameTaken, WrongLogin
from penstock.access.keys import CHANNEL
from penstock.access.login import login_name
from penstock.kernel.db import Tx

MIN_PASSWORD = 8
GENERATED_BYTES = 15  # 20 characters


def generate_password() -> str:
    """A random password, for a user who will change it."""
    return secrets.token_urlsafe(GENERATED_BYTES)


async def add(tx: Tx, username: str, password_hash: str, *, scope: Scope, by: Caller | str) -> User:
    """Add a user. Raises `UsernameTaken`."""
    user = User(
        id=tx.new_id("usr"),
        username=username.strip(),
        password_hash=password_hash,
        user_id=await store.claim_user_id(tx),
        role=str(scope),
        scope=scope,
        created_at=tx.now,
        last_login_at=None,
    )
    if not await store.insert_user(tx, user, login=login_name(username)):
        raise UsernameTaken(username=user.username)
    await audit.record(tx, by, "user.add", f"user:{user.user_id}", username=user.username, scope=str(scope))
    return user


async def find_by_name(tx: Tx, username: str) -> User:
    """The user with this name, or `NoSuchUser`."""
    found = await store.find_user(tx, login_name(username))
    if found is None:
        raise NoSuchUser(user=username)
    return found


async def change_password(tx: Tx, user: User, password_hash: str, *, token: str, by: Caller) -> None:
    """Set the new password of a user who has shown the old one. The login with this token goes on, others end."""
    if not await store.move_password(tx, user, password_hash):
        raise WrongLogin  # changed in the meantime: the password that was shown is no longer valid
    await store.delete_sessions_of(tx, user, kept=hash_secret(token))
    await _password_changed(tx, user, "user.change_password", by)


async def reset_password(tx: Tx, user: User, password_hash: str, *, by: Caller | str) -> User:
    """Set the password of a user, end their logins and unlock their name."""
    if not await store.move_password(tx, user, password_hash):
        raise NoSuchUser(user=user.username)
    await store.delete_sessions_of(tx, user)
    await _password_changed(tx, user, "user.reset_password", by)
    return replace(user, password_hash=password_hash)


async def remove(tx: Tx, user: User, *, by: Caller | str) -> None:
    """Remove a user and their logins. Raises `LastAdmin`. Keys of the same user id stay."""
    await store.lock_counter(tx)  # of two admins who remove each other, one stays
    if user.scope is Scope.ADMIN and not await store.has_other_admin(tx, user):
        raise LastAdmin(user=user.username)
    await store.delete_user(tx, user)
    await audit.record(tx, by, "user.remove", f"user:{user.user_id}", username=user.username)
    tx.wake(CHANNEL)


async def _password_changed(tx: Tx, user: User, action: str, by: Caller | str) -> None:
    await login_attempts.delete_of(tx, hash_secret(login_name(user.username)))
    await audit.record(tx, by, action, f"user:{user.user_id}")
    tx.wake(CHANNEL)  # its logins may be cached

"""API keys: made, changed, rotated and revoked; each verb leaves its line in the audit log in the same transaction.

The secret is shown once, when it is made; `secret.py` says what is kept of it. A rotation makes a new key that takes
over everything the old one had; the old one goes on for as long as its holders are given to change over.
"""

import logging
import re
from dataclasses import replace
from datetime import datetime, timedelta

from penstock.access import store
from penstock.access.audit import note
from penstock.access.domain import Caller, IssuedKey, Key, KeyChanges, KeyState, NewKey, Scope
from penstock.access.errors import BadAdminKey, ExpiryInThePast, KeyNotActive
from penstock.access.secret import KEY_MARK, SESSION_MARK, hash_of, masked, new_secret
from penstock.access.store import PRESET
from penstock.kernel.db import Tx

log = logging.getLogger(__name__)

CHANNEL = "access"  # rung when a key or a login changes, so that every process forgets what it remembers
PRESET_SHAPE = re.compile(r"[!-~]{16,512}")
JWT_DOTS = 2


async def create(tx: Tx, new: NewKey, *, by: Caller | str) -> IssuedKey:
    """Make a key. The secret in the answer is seen here and never again."""
    _check_expiry(tx, new.expires_at)
    user_id = new.user_id
    if user_id is None:
        user_id = by.user_id if isinstance(by, Caller) else await store.claim_user_id(tx)
    secret = new_secret(KEY_MARK)
    key = _new(tx, replace(new, user_id=user_id), secret, by=by)
    await store.insert_key(tx, key, hashed=hash_of(secret))
    await note(tx, by, "key.create", f"key:{key.id}", **_told(key))
    return IssuedKey(key=key, secret=secret)


async def edit(tx: Tx, key_id: str, changes: KeyChanges, *, by: Caller | str) -> Key:
    """Change what a key is called or may do. A key that was revoked or replaced stays as it is."""
    before = await store.get_key(tx, key_id)
    if not changes:
        return before
    _check_expiry(tx, changes.get("expires_at"))
    after = await store.move_key(tx, before, changes)
    await note(tx, by, "key.edit", f"key:{key_id}", **changes)
    tx.wake(CHANNEL)
    return after


async def rotate(tx: Tx, key_id: str, *, by: Caller | str, grace_seconds: float = 0) -> IssuedKey:
    """Put a new key in the place of an active one, which goes on working for the grace and not a moment longer."""
    old = await store.get_key(tx, key_id)
    if old.state(tx.now) is not KeyState.ACTIVE:
        raise KeyNotActive(id=key_id)
    secret = new_secret(KEY_MARK)
    new = replace(
        old,
        id=tx.new_id("key"),
        prefix=masked(secret),
        created_at=tx.now,
        created_by=_name(by),
        last_used_at=None,
    )
    ends: dict[str, object] = {"revoked_at": tx.now}
    if grace_seconds > 0:
        ends_at = tx.now + timedelta(seconds=grace_seconds)
        ends = {"expires_at": min(ends_at, old.expires_at or ends_at)}
    await store.move_key(tx, old, {"replaced_by": new.id, **ends})
    await store.insert_key(tx, new, hashed=hash_of(secret))
    await note(tx, by, "key.rotate", f"key:{key_id}", replaced_by=new.id, grace_seconds=grace_seconds)
    tx.wake(CHANNEL)
    return IssuedKey(key=new, secret=secret)


async def revoke(tx: Tx, key_id: str, *, by: Caller | str) -> Key:
    """End a key at once. Revoking it again changes nothing."""
    await store.get_key(tx, key_id)
    if await store.move_revoked(tx, key_id):
        await note(tx, by, "key.revoke", f"key:{key_id}")
        tx.wake(CHANNEL)
    return await store.get_key(tx, key_id)


async def ensure_admin_key(tx: Tx, secret: str) -> bool:
    """Let the preset key open everything; True when it is new here. One that was revoked stays revoked."""
    if not PRESET_SHAPE.fullmatch(secret):
        raise BadAdminKey(reason="it is shorter than 16 characters, or holds spaces or characters outside ASCII")
    if secret.startswith(SESSION_MARK) or secret.count(".") == JWT_DOTS:
        raise BadAdminKey(reason="it looks like a login token or a JWT and would be taken for one")
    known = await store.find_key(tx, hash_of(secret))
    if known is None:
        return await _insert_admin(tx, secret, name="preset admin", by=PRESET)
    if known.state(tx.now) is not KeyState.ACTIVE:
        log.warning("%s names the key %s, which was revoked or has expired", PRESET, known.id)
    return False


async def first_admin_key(tx: Tx) -> str | None:
    """An admin key for a house that has no key at all, or None. Of several processes that ask at once one gets it."""
    await store.hold_counter(tx)
    if await store.list_keys(tx, limit=1):
        return None
    secret = new_secret(KEY_MARK)
    await _insert_admin(tx, secret, name="first admin", by="first start")
    return secret


async def _insert_admin(tx: Tx, secret: str, *, name: str, by: str) -> bool:
    wanted = NewKey(name=name, scope=Scope.ADMIN, user_id=store.FIRST_USER_ID)
    key = _new(tx, wanted, secret, by=by)
    if not await store.insert_key(tx, key, hashed=hash_of(secret)):
        return False  # another process was quicker
    await note(tx, by, "key.create", f"key:{key.id}", **_told(key))
    tx.wake(CHANNEL)  # it may be remembered as unknown
    return True


def _new(tx: Tx, new: NewKey, secret: str, *, by: Caller | str) -> Key:
    assert new.user_id is not None, "every key belongs to someone"
    return Key(
        id=tx.new_id("key"),
        name=new.name,
        prefix=masked(secret),
        user_id=new.user_id,
        merchant_id=new.merchant_id,
        role=new.role,
        scope=new.scope,
        project=new.project,
        created_at=tx.now,
        created_by=_name(by),
        expires_at=new.expires_at,
        last_used_at=None,
        revoked_at=None,
        replaced_by=None,
    )


def _check_expiry(tx: Tx, expires_at: datetime | None) -> None:
    if expires_at is not None and expires_at <= tx.now:
        raise ExpiryInThePast(expires_at=expires_at)


def _name(by: Caller | str) -> str:
    return by if isinstance(by, str) else by.name


def _told(key: Key) -> dict[str, object]:
    """What the audit log says of a new key."""
    return {"name": key.name, "scope": str(key.scope), "user_id": key.user_id, "project": key.project}

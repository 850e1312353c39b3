"""Create, edit, rotate and revoke API keys. Each change is recorded in the audit log in the same transaction.

The secret is shown once, when the key is created; `credentials.py` says what is stored of it. A rotation creates a new
key with the same rights; the old key stays valid for the grace period. Every process refuses a revoked key within two
seconds.
"""

import logging
import re
from dataclasses import replace
from datetime import datetime, timedelta

from penstock.access import audit, store
from penstock.access.credentials import KEY_PREFIX, SESSION_PREFIX, hash_secret, mask_secret, new_secret
from penstock.access.domain import Caller, IssuedKey, Key, KeyChanges, KeyState, NewKey, Scope
from penstock.access.errors import BadAdminKey, ExpiryInThePast, KeyNotActive
from penstock.access.store import PRESET
from penstock.kernel.db import Tx

log = logging.getLogger(__name__)

CHANNEL = "access"  # notified when a key or a login changes, so that every process clears its cache
PRESET_SHAPE = re.compile(r"[!-~]{16,512}")
JWT_DOTS = 2


async def create(tx: Tx, new: NewKey, *, by: Caller | str) -> IssuedKey:
    """Create a key. Its secret is returned here and never again."""
    _check_expiry(tx, new.expires_at)
    user_id = new.user_id
    if user_id is None:
        user_id = by.user_id if isinstance(by, Caller) else await store.claim_user_id(tx)
    secret = new_secret(KEY_PREFIX)
    key = _new(tx, replace(new, user_id=user_id), secret, by=by)
    await store.insert_key(tx, key, hashed=hash_secret(secret))
    await audit.record(tx, by, "key.create", f"key:{key.id}", **_audit_detail(key))
    return IssuedKey(key=key, secret=secret)


async def edit(tx: Tx, key_id: str, changes: KeyChanges, *, by: Caller | str) -> Key:
    """Change a key. A key that was revoked or replaced cannot be changed."""
    before = await store.get_key(tx, key_id)
    if not changes:
        return before
    _check_expiry(tx, changes.get("expires_at"))
    after = await store.move_key(tx, before, changes)
    await audit.record(tx, by, "key.edit", f"key:{key_id}", **changes)
    tx.wake(CHANNEL)
    return after


async def rotate(tx: Tx, key_id: str, *, by: Caller | str, grace_seconds: float = 0) -> IssuedKey:
    """Replace an active key with a new one; the old one stays valid for the grace period."""
    old = await store.get_key(tx, key_id)
    if old.state(tx.now) is not KeyState.ACTIVE:
        raise KeyNotActive(id=key_id)
    secret = new_secret(KEY_PREFIX)
    new = replace(
        old,
        id=tx.new_id("key"),
        prefix=mask_secret(secret),
        created_at=tx.now,
        created_by=_name(by),
        last_used_at=None,
    )
    old_key_end: dict[str, object] = {"revoked_at": tx.now}
    if grace_seconds > 0:
        until = tx.now + timedelta(seconds=grace_seconds)
        old_key_end = {"expires_at": min(until, old.expires_at or until)}
    await store.move_key(tx, old, {"replaced_by": new.id, **old_key_end})
    await store.insert_key(tx, new, hashed=hash_secret(secret))
    await audit.record(tx, by, "key.rotate", f"key:{key_id}", replaced_by=new.id, grace_seconds=grace_seconds)
    tx.wake(CHANNEL)
    return IssuedKey(key=new, secret=secret)


async def revoke(tx: Tx, key_id: str, *, by: Caller | str) -> Key:
    """Revoke a key at once. Revoking it again changes nothing."""
    await store.get_key(tx, key_id)
    if await store.move_revoked(tx, key_id):
        await audit.record(tx, by, "key.revoke", f"key:{key_id}")
        tx.wake(CHANNEL)
    return await store.get_key(tx, key_id)


def check_admin_key(secret: str) -> None:
    """Raise `BadAdminKey` for a preset admin key that cannot be used."""
    if not PRESET_SHAPE.fullmatch(secret):
        raise BadAdminKey(reason="it is shorter than 16 characters, or contains spaces or non-ASCII characters")
    if secret.startswith(SESSION_PREFIX) or secret.count(".") == JWT_DOTS:
        raise BadAdminKey(reason="it looks like a login token or a JWT and would be treated as one")


async def ensure_admin_key(tx: Tx, secret: str) -> bool:
    """Store the preset admin key; True if it is new. A revoked one stays revoked."""
    check_admin_key(secret)
    known = await store.find_key(tx, hash_secret(secret))
    if known is None:
        return await _insert_admin(tx, secret, name="preset admin", by=PRESET)
    if known.state(tx.now) is not KeyState.ACTIVE:
        log.warning("%s is the key %s, which was revoked or has expired", PRESET, known.id)
    return False


async def first_admin_key(tx: Tx) -> str | None:
    """Create an admin key if there are no keys at all. Of several processes that start at once, only one gets it."""
    await store.lock_counter(tx)
    if await store.list_keys(tx, limit=1):
        return None
    secret = new_secret(KEY_PREFIX)
    await _insert_admin(tx, secret, name="first admin", by="first start")
    return secret


async def _insert_admin(tx: Tx, secret: str, *, name: str, by: str) -> bool:
    new = NewKey(name=name, scope=Scope.ADMIN, user_id=store.FIRST_USER_ID)
    key = _new(tx, new, secret, by=by)
    if not await store.insert_key(tx, key, hashed=hash_secret(secret)):
        return False  # another process was first
    await audit.record(tx, by, "key.create", f"key:{key.id}", **_audit_detail(key))
    tx.wake(CHANNEL)  # it may be cached as unknown
    return True


def _new(tx: Tx, new: NewKey, secret: str, *, by: Caller | str) -> Key:
    assert new.user_id is not None, "every key has an owner"
    return Key(
        id=tx.new_id("key"),
        name=new.name,
        prefix=mask_secret(secret),
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


def _audit_detail(key: Key) -> dict[str, object]:
    """What the audit log shows of a new key."""
    return {"name": key.name, "scope": str(key.scope), "user_id": key.user_id, "project": key.project}

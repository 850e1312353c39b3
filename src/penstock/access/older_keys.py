"""API keys of the older task store, which kept them encrypted (AES-256-CBC) and could show them again.

With its encryption key they are decrypted once, stored here as hashes like every other key, and so clients keep theirs.
The encryption key is 64 hexadecimal digits; of any other text the SHA-256 is used.
"""

import hashlib
import re
from dataclasses import dataclass

from cryptography.hazmat.primitives import padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from penstock.access import audit, store
from penstock.access.credentials import KEY_PREFIX, hash_secret, mask_secret
from penstock.access.domain import Key, Scope
from penstock.kernel.db import Tx

ENCRYPTED = re.compile(r"([0-9a-fA-F]{32}):((?:[0-9a-fA-F]{32})+)")
AES_KEY = re.compile(r"[0-9a-fA-F]{64}")
SECRET = re.compile(r"[!-~]{16,512}")


class Undecipherable(ValueError):
    """A stored key that cannot be decrypted. The text never contains it."""


@dataclass(frozen=True, kw_only=True)
class OlderKey:
    """A key of the older store, decrypted."""

    name: str
    secret: str
    project: str | None
    is_active: bool


def decrypt_key(stored: str, encryption_key: str) -> str:
    """The key behind `iv:cipher`. One that was stored as it is, before there was encryption, is returned unchanged."""
    if stored.startswith(KEY_PREFIX) and SECRET.fullmatch(stored):
        return stored
    parts = ENCRYPTED.fullmatch(stored)
    if parts is None:
        raise Undecipherable("key: expected iv:cipher in hexadecimal")
    iv, cipher = (bytes.fromhex(part) for part in parts.groups())
    decryptor = Cipher(algorithms.AES256(_aes_key(encryption_key)), modes.CBC(iv)).decryptor()
    unpadder = padding.PKCS7(algorithms.AES256.block_size).unpadder()
    try:
        plain = unpadder.update(decryptor.update(cipher) + decryptor.finalize()) + unpadder.finalize()
        secret = plain.decode("ascii")
    except ValueError as error:
        raise Undecipherable("key: cannot be decrypted; is ENCRYPTION_KEY the one of the older store?") from error
    if not SECRET.fullmatch(secret):
        raise Undecipherable("key: cannot be decrypted; is ENCRYPTION_KEY the one of the older store?")
    return secret


def _aes_key(given: str) -> bytes:
    return bytes.fromhex(given) if AES_KEY.fullmatch(given) else hashlib.sha256(given.encode()).digest()


async def store_key(tx: Tx, older: OlderKey, *, scope: Scope, by: str) -> bool:
    """Store a key for a user of its own; False if it exists already. An inactive key is stored as revoked, so that it
    stays refused."""
    hashed = hash_secret(older.secret)
    if await store.find_key(tx, hashed) is not None:
        return False
    key = Key(
        id=tx.new_id("key"),
        name=older.name,
        prefix=mask_secret(older.secret),
        user_id=await store.claim_user_id(tx),
        merchant_id=None,
        role=None,
        scope=scope,
        project=older.project,
        created_at=tx.now,
        created_by=by,
        expires_at=None,
        last_used_at=None,
        revoked_at=None if older.is_active else tx.now,
        replaced_by=None,
    )
    if not await store.insert_key(tx, key, hashed=hashed):
        return False
    detail = {"name": key.name, "scope": str(scope), "user_id": key.user_id, "project": key.project}
    await audit.record(tx, by, "key.import", f"key:{key.id}", **detail)
    return True

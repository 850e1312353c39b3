"""Keys, login and setup tokens: how they are generated, and what is stored of them: a hash, and of keys a short mask.

All are 256 random bits, so a fast hash is enough: nobody can try them all, and one index lookup by the hash finds the
row. Slow hashes are for passwords, which people choose (`passwords.py`). The database compares the hashes, so timing
reveals nothing about the secret.
"""

import hashlib
import secrets

KEY_PREFIX, SESSION_PREFIX, SETUP_PREFIX = "sk-", "st-", "su-"
RANDOM_BYTES = 32  # 43 URL-safe characters
KEY_LENGTH = len(KEY_PREFIX) + 43
MASK_CHARACTERS = 4  # that stay visible at each end


def new_secret(prefix: str) -> str:
    """A random secret; the prefix tells people and programs what it is."""
    return prefix + secrets.token_urlsafe(RANDOM_BYTES)


def hash_secret(secret: str) -> str:
    """The hash under which a secret is stored."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def mask_secret(secret: str) -> str:
    """A secret as people may see it: `sk-AbCd…wXyZ`. One that we did not generate may be short: show less of it."""
    if secret.startswith(KEY_PREFIX) and len(secret) == KEY_LENGTH:
        return f"{secret[: len(KEY_PREFIX) + MASK_CHARACTERS]}…{secret[-MASK_CHARACTERS:]}"
    return f"{secret[:3]}…"

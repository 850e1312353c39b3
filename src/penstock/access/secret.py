"""Secrets: how they are made, and the two things that are kept of them, a hash and a few characters to know them by.

A key or a login token is 256 random bits, so a quick hash is right: nobody can try them all, and one index lookup by
the hash finds it. Slow hashes are for passwords, which people choose (`passwords.py`). What is compared is the hash, by
the database: how long that takes tells nothing about the secret.
"""

import hashlib
import secrets

KEY_MARK, SESSION_MARK = "sk-", "st-"
RANDOM_BYTES = 32  # 43 url-safe characters
OWN_LENGTH = len(KEY_MARK) + 43
SHOWN = 4


def new_secret(mark: str) -> str:
    """A secret that nobody can guess, with a mark that tells people and programs what it is."""
    return mark + secrets.token_urlsafe(RANDOM_BYTES)


def hash_of(secret: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def masked(secret: str) -> str:
    """What people know it by: `sk-AbCd…wXyZ`. Of a secret that is not our own make, and maybe short, much less."""
    if secret.startswith(KEY_MARK) and len(secret) == OWN_LENGTH:
        return f"{secret[: len(KEY_MARK) + SHOWN]}…{secret[-SHOWN:]}"
    return f"{secret[:3]}…"

"""Hashes and masks of secrets."""

from penstock.access.credentials import KEY_PREFIX, SESSION_PREFIX, hash_secret, mask_secret, new_secret


def test_a_hash_is_sha256_in_hex():
    assert hash_secret("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_prefixes_tell_keys_and_logins_apart():
    assert new_secret(KEY_PREFIX).startswith("sk-")
    assert new_secret(SESSION_PREFIX).startswith("st-")


def test_a_short_foreign_secret_shows_almost_nothing():
    assert mask_secret("sixteen-letters!") == "six…"
    assert mask_secret("sk-sixteen-letter") == "sk-…"

"""What is kept of a secret, and what is shown."""

from penstock.access.secret import KEY_MARK, SESSION_MARK, hash_of, masked, new_secret


def test_a_hash_is_sha256_in_hex():
    assert hash_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_marks_tell_keys_and_logins_apart():
    assert new_secret(KEY_MARK).startswith("sk-")
    assert new_secret(SESSION_MARK).startswith("st-")


def test_a_short_secret_of_someone_elses_shows_almost_nothing():
    assert masked("sixteen-letters!") == "six…"
    assert masked("sk-sixteen-letter") == "sk-…"

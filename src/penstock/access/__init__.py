"""Access: who is calling, and what they may do.

A request carries an API key, a JWT or a console login; `authenticate.py` turns it into a `Caller`. Routes declare the
scope they require with `guard.py`; the tests read their matrix of callers and routes from these declarations. `keys.py`
creates, rotates and revokes keys, `login.py` signs people in to the console, `tokens.py` verifies JWTs, and `audit.py`
is the audit log.

Verbs take a transaction, which `api/` opens; `api/logins.py` opens two around the check of a password. The guard is an
edge of its own: `authenticate.py` reads a credential that is not cached, before the route runs.

`credentials.py` and `passwords.py` create and hash secrets, and `jwks.py` fetches the public keys that verify JWTs.
"""

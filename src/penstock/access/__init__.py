"""Access: who is calling.

A request shows an API key, a JWT or a console login, and `identify.py` makes a `Caller` of it. Routes say with
`door.py` what they ask of a caller; the scope matrix in the tests is read from what they say. `keys.py` makes, rotates
and revokes keys, `login.py` lets people into the console, `tokens.py` reads JWTs, and `audit.py` keeps who did what.

`secret.py` and `passwords.py` say what is kept of a secret, `memory.py` what is remembered for a moment, `key_set.py`
where the keys of JWTs come from, and `upkeep.py` what is forgotten when.
"""

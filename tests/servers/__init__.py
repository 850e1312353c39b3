"""Real servers for the tests: started by the test run, on this machine, and gone when it ends.

- ``children.py``: the one way to start a child process that dies with us, and to kill it hard.
- ``postgres.py``: ``PostgresServer``, a whole PostgreSQL from a wheel, which can be killed, started again and paused.
- ``valkey.py``: ``ValkeyServer``, a Redis from a wheel (or TEST_REDIS_SERVER), which can be killed, paused and flushed.
- ``seaweed.py``: ``S3Server``, an S3 store from a wheel, which can be killed, started again and paused.

Nothing here listens on a network port that others could reach, and nothing is left behind: every server keeps all its
files in one temporary folder. Only Linux is supported, because a child's death is tied to ours by the Linux kernel.
"""

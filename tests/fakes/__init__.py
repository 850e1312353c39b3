"""Stand-ins for what lives outside our house: small real classes, named by how they behave.

- ``pooler.py``: ``TransactionPooler``, a PostgreSQL pooler in transaction mode that changes the server connection as
  often as it may.
- ``gate.py``: ``BlockingHandler``, a job handler that keeps every job until it is opened.
- ``collector.py``: a collector of traces that keeps what it is sent.
- ``doors.py``: doors that let callers in by a name, without keys or a database.
- ``listeners.py``: reads a stream of server-sent events.
- ``receivers.py``: receivers of webhooks, named by what they do to those who post to them.
- ``resolvers.py``: lookups of names, named by what they answer.
"""

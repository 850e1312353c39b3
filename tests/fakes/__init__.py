"""Stand-ins for what lives outside our house: small real classes, named by how they behave.

- ``pooler.py``: ``TransactionPooler``, a PostgreSQL pooler in transaction mode that changes the server connection as
  often as it may.
- ``gate.py``: ``Gate``, a job handler that keeps every job until it is opened.
"""

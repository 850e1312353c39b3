"""Penstock accepts work and carries each piece through to a result, once, visibly, and able to resume after any crash.

The modules (gateway, etl, ingest, tasks) share one kernel: leases, guarded state transitions and an outbox. Modules
never import each other; they send messages, and `wiring`, the only place that builds things, routes each message to its
handlers.
"""

__version__ = "0.1.0"

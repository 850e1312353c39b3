"""Penstock takes work in and carries each piece through to a result, once, visibly, and able to go on after any crash.

Work enters one of four rooms (gateway, etl, ingest, tasks), and all of them stand on one kernel: leases, guarded
state moves and an outbox. Modules never import each other; what passes between them is a message, and
`wiring`, the only place that builds things, says which handler hears it.
"""

__version__ = "0.1.0"

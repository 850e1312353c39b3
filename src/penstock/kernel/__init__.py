"""The kernel: what every room stands on, and knows no product word.

Tiny parts, without database or network: `clock`, `ids`, `errors`, `machine`, `retry`.
On the database: `db` (engine and `Tx`), `migrations`, `transitions` (who moved what), `leases` (who holds what).
On those: `outbox` (say it once), `queue` (durable jobs) with `workers`, `runstate`, `limits`, `timekeeper`.
Ports with adapters elsewhere: `blobs`.
"""

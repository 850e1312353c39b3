"""The kernel: what every module builds on. It contains no product terms.

Values, without database or network: `clock`, `ids`, `errors`, `machine` (state machines), `retry`, `circuit_breaker`,
`json_schema` (schemas and pointers that users send).
Database: `db` (`Db` and `Tx`), `engines`, `database_errors`, `migrations`, `bulk`, `transitions` (history of state
changes), `leases` (who holds which row), `partitions`.
On those: `outbox` (messages), `events` with `sequencer` and `hub` (live streams), `queue` (durable jobs) with `workers`
and `runner`, `runstate`, `rate_limits`, `scheduler` (periodic tasks), `maintenance`, `wakeups` with `notifier`.
Operations: `logs`, `redact`, `metrics`, `processes`.
Ports with adapters elsewhere: `blobs`, `notifier`, `rate_limits`, `runstate`.
"""

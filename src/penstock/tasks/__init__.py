"""Tasks: a pull queue for external workers.

A project has queues; a task is in one queue, or in the project without a queue. Clients choose their ids; a task is
identified by its id within its queue, or within its project if it has no queue. Users create and edit tasks (`edit.py`,
`queue_operations.py`). Clients push the tasks they work on (`push.py`, `progress.py`) and claim the ones that users
created (`pull.py`, `pull_by_id.py`). A pulled task is under a lease until its holder pushes a final status, releases it
or stops renewing (`leases.py`, `maintenance.py`). `statistics.py` counts; `change_feed.py` lists what changed.

Every verb except the pull locks the project's row first, works on values (`domain/`), and writes all changes through
one unit of work (`lifecycle.py`): the tasks, the end of a pull, the counters, and one change feed entry per task in
commit order. All SQL is in `store/`; HTTP is in `api/`; `worker.py` has the jobs and periodic tasks.

Verbs take a transaction. `api/` and `worker.py` open it; `api/coalesced_pulls.py` opens one for a batch of pulls. So a
message handler can call any verb, and several verbs commit or roll back together.
"""

"""The job queue on ARQ: Redis carries job ids to a free worker slot; the `job` table stays the source of truth.

   job table ─ JobsWaiting ─▶ outbox ─ ArqEnqueuer ─▶ Redis ─ ArqWorkers ─▶ claim in the table ─▶ Runner

- `enqueue.py`: the outbox sink that enqueues ARQ jobs. The ARQ job id is the id of a row in `job`.
- `workers.py`: takes ARQ jobs, claims their rows and hands them to the runner. From the claim on the lease counts, and
  what Redis says of running jobs only informs ARQ's users: killed, flushed or paused, it loses none.
- `calls.py`: ARQ jobs that other programs enqueue by the name of a function.
- `reconciler.py`: enqueues every due row whose ARQ job was lost.
"""

from penstock.adapters.arq_queue.enqueue import ArqEnqueuer, ArqQueuePositions, QueueNames
from penstock.adapters.arq_queue.reconciler import ArqReconciler
from penstock.adapters.arq_queue.workers import ArqWorkers

__all__ = ["ArqEnqueuer", "ArqQueuePositions", "ArqReconciler", "ArqWorkers", "QueueNames"]

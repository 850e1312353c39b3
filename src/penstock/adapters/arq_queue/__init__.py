"""The job queue on ARQ: Redis carries job ids to a free worker slot; the `job` table stays the source of truth.

   job table ─ JobsWaiting ─▶ outbox ─ ArqEnqueuer ─▶ Redis ─ ArqWorkers ─▶ claim in the table ─▶ Runner

- `enqueue.py`: the outbox sink that enqueues ARQ jobs. Each has one argument, the id of a row in `job`.
- `workers.py`: takes ARQ jobs, claims their rows and hands them to the runner. The ARQ job ends with the claim: from
  then on the lease counts, and Redis knows nothing of running jobs: killed, flushed or paused, it loses none.
- `reconciler.py`: enqueues every due row whose ARQ job was lost.
"""

from penstock.adapters.arq_queue.enqueue import ArqEnqueuer, QueueNames
from penstock.adapters.arq_queue.reconciler import ArqReconciler
from penstock.adapters.arq_queue.workers import ArqWorkers

__all__ = ["ArqEnqueuer", "ArqReconciler", "ArqWorkers", "QueueNames"]

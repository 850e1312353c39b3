"""The job queue on ARQ: it carries the ids of jobs to whoever has a free slot. The ledger stays the record.

    ledger ─ JobsWaiting ─▶ outbox ─ Tickets ─▶ Redis ─ ArqWorkers ─▶ claim in the ledger ─▶ Runner

- `tickets.py`: the carrier that puts tickets into ARQ's queues. A ticket is an ARQ job whose only argument is an id.
- `workers.py`: takes tickets, claims their rows and lets the runner work on them. A ticket ends with the claim: from
  then on the lease counts, and Redis may die without harm to what runs. `client.py` is what ARQ talks to Redis by.
- `reconciler.py`: gives a ticket to every due row that has lost its own.
"""

from penstock.adapters.arq_queue.reconciler import Reconciler
from penstock.adapters.arq_queue.tickets import QueueNames, Tickets
from penstock.adapters.arq_queue.workers import ArqWorkers

__all__ = ["ArqWorkers", "QueueNames", "Reconciler", "Tickets"]

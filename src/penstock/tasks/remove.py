"""Remove a project or a queue with its content.

Deleting is immediate; the rows follow. The request does not wait for a million rows: one transaction hides the project
or queue, frees its id, withdraws its tasks and ends their leases. A job then deletes the rows in batches. The audit log
line stays, and for a while a tombstone row, by which clients that poll for changes see the deletion.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from penstock.access import audit
from penstock.access.domain import Caller
from penstock.kernel.db import Tx
from penstock.kernel.maintenance import DeleteOld, repeat_until_zero
from penstock.kernel.queue import Job, NewJob
from penstock.tasks.deps import Deps
from penstock.tasks.lifecycle import UnitOfWork, offer_channel, open_unit_of_work
from penstock.tasks.store import feed, projects, queues, tasks

MODULE = "tasks"
REMOVE_JOB = "tasks.remove"


class DeleteSome(Protocol):
    """Deletes one batch of rows of a removed project; returns how many."""

    async def __call__(self, tx: Tx, project_pk: str, /) -> int:
        """Delete one batch."""
        ...


async def delete_project(deps: Deps, caller: Caller, project_id: str) -> None:
    """Remove a project with its queues and tasks."""
    async with deps.db.tx(actor=caller.name) as tx:
        uow = await open_unit_of_work(tx, project_id)
        pk, count = uow.project.id, uow.project.counts.total
        await tasks.withdraw_tasks(tx, pk, None, by=caller.name)
        _announce_removal(uow)
        await uow.close(by=caller.name)
        await projects.delete_project(tx, pk)
        await audit.record(tx, caller, "tasks.delete_project", f"project:{project_id}", tasks=count)
        await deps.queue.enqueue(tx, _remove_job(pk, None))


async def delete_queue(deps: Deps, caller: Caller, project_id: str, queue_id: str) -> None:
    """Remove a queue with its tasks."""
    async with deps.db.tx(actor=caller.name) as tx:
        uow = await open_unit_of_work(tx, project_id)
        queue = await uow.get_queue(queue_id)
        await tasks.withdraw_tasks(tx, uow.project.id, queue.id, by=caller.name)
        remaining = uow.project.counts.less(queue.counts)
        uow.project = replace(uow.project, queue_count=uow.project.queue_count - 1, counts=remaining)
        _announce_removal(uow)
        await uow.close(by=caller.name)
        await queues.delete_queue(tx, queue.id)
        detail = {"queue": queue_id, "tasks": queue.counts.total}
        await audit.record(tx, caller, "tasks.delete_queue", f"project:{project_id}", **detail)
        await deps.queue.enqueue(tx, _remove_job(uow.project.id, queue.id))


async def remove_rows(deps: Deps, job: Job) -> None:
    """Delete the rows of a removed project or queue. Safe to repeat or resume."""
    project_pk, queue_pk = job.payload["project_pk"], job.payload["queue_pk"]
    await repeat_until_zero(partial(_delete_tasks, deps, project_pk, queue_pk))
    if queue_pk is None:
        for others in (feed.delete_changes_of, queues.delete_queues_of):
            await repeat_until_zero(partial(_delete_others, deps, others, project_pk))


async def delete_tombstones(deps: Deps) -> None:
    """Delete the tombstones of projects and queues that are past the history retention."""
    before = deps.db.clock.now() - timedelta(days=deps.config.history_days)
    for old in (queues.delete_queue_tombstones, projects.delete_project_tombstones):
        await repeat_until_zero(partial(_delete_old, deps, old, before))


def _announce_removal(uow: UnitOfWork) -> None:
    """Notify watchers and waiting pulls. The change feed gets no entry per task, but its version advances."""
    uow.project = replace(uow.project, version=uow.project.version + 1)
    uow.touch("")
    uow.announce()
    uow.tx.wake(offer_channel(uow.project.id))


def _remove_job(project_pk: str, queue_pk: str | None) -> NewJob:
    payload = {"project_pk": project_pk, "queue_pk": queue_pk}
    return NewJob(id=f"{REMOVE_JOB}:{queue_pk or project_pk}", kind=REMOVE_JOB, payload=payload, module=MODULE)


async def _delete_tasks(deps: Deps, project_pk: str, queue_pk: str | None) -> int:
    async with deps.db.tx() as tx:
        return await tasks.delete_some_tasks(tx, project_pk, queue_pk)


async def _delete_others(deps: Deps, others: DeleteSome, project_pk: str) -> int:
    async with deps.db.tx() as tx:
        return await others(tx, project_pk)


async def _delete_old(deps: Deps, old: DeleteOld, before: datetime) -> int:
    async with deps.db.tx() as tx:
        return await old(tx, before=before)

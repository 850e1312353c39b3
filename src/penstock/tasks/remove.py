"""Remove a project or a queue with its content.

Deleting is immediate; the rows follow. The request does not wait for a million rows: one transaction hides the project
or queue, frees its id, withdraws its tasks and ends their leases. A job then deletes the rows in batches. The audit log
line stays, and for a while a tombstone row, by which clients that poll for changes see the deletion.
"""

from dataclasses import replace
from datetime import timedelta

from penstock.access import audit
from penstock.access.domain import Caller
from penstock.kernel.db import Tx
from penstock.kernel.queue import NewJob
from penstock.tasks.deps import Config, Deps
from penstock.tasks.lifecycle import UnitOfWork, offer_channel, open_unit_of_work
from penstock.tasks.store import executions, feed, projects, queues, tasks

MODULE = "tasks"
REMOVE_JOB = "tasks.remove"


async def delete_project(tx: Tx, deps: Deps, caller: Caller, project_id: str) -> None:
    """Remove a project with its queues and tasks."""
    uow = await open_unit_of_work(tx, project_id)
    pk, count = uow.project.id, uow.project.counts.total
    await tasks.withdraw_tasks(tx, pk, None, by=caller.name)
    _announce_removal(uow)
    await uow.close(by=caller.name)
    await projects.delete_project(tx, pk)
    await audit.record(tx, caller, "tasks.delete_project", f"project:{project_id}", tasks=count)
    await deps.queue.enqueue(tx, _remove_job(pk, None))


async def delete_queue(tx: Tx, deps: Deps, caller: Caller, project_id: str, queue_id: str) -> None:
    """Remove a queue with its tasks."""
    uow = await open_unit_of_work(tx, project_id)
    queue = await uow.get_queue(queue_id)
    await tasks.withdraw_tasks(tx, uow.project.id, queue.id, by=caller.name)
    remaining, states = uow.project.counts.less(queue.counts), uow.project.states.less(queue.states)
    uow.project = replace(uow.project, queue_count=uow.project.queue_count - 1, counts=remaining, states=states)
    _announce_removal(uow)
    await uow.close(by=caller.name)
    await queues.delete_queue(tx, queue.id)
    detail = {"queue": queue_id, "tasks": queue.counts.total}
    await audit.record(tx, caller, "tasks.delete_queue", f"project:{project_id}", **detail)
    await deps.queue.enqueue(tx, _remove_job(uow.project.id, queue.id))


async def delete_rows(tx: Tx, project_pk: str, queue_pk: str | None) -> int:
    """Delete one batch of the rows of a removed project or queue; returns how many, 0 when none is left."""
    deleted = await tasks.delete_some_tasks(tx, project_pk, queue_pk)
    if deleted or queue_pk is not None:
        return deleted
    return (
        await feed.delete_changes_of(tx, project_pk)
        or await queues.delete_queues_of(tx, project_pk)
        or await executions.delete_executions_of(tx, project_pk)
    )


async def delete_tombstones(tx: Tx, config: Config) -> int:
    """Delete one batch of the tombstones past the history retention; returns how many."""
    before = tx.now - timedelta(days=config.history_days)
    deleted = await queues.delete_queue_tombstones(tx, before=before)
    return deleted or await projects.delete_project_tombstones(tx, before=before)


def _announce_removal(uow: UnitOfWork) -> None:
    """Notify watchers and waiting pulls. The change feed gets no entry per task, but its version advances."""
    uow.project = replace(uow.project, version=uow.project.version + 1)
    uow.touch("")
    uow.announce()
    uow.tx.wake(offer_channel(uow.project.id))


def _remove_job(project_pk: str, queue_pk: str | None) -> NewJob:
    payload = {"project_pk": project_pk, "queue_pk": queue_pk}
    return NewJob(id=f"{REMOVE_JOB}:{queue_pk or project_pk}", kind=REMOVE_JOB, payload=payload, module=MODULE)

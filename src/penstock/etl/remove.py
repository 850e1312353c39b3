"""Remove: delete a task that has ended, with its artifacts; the audit log entry stays.

The row, its cache entries, its reviews and corrections are deleted at once. An idempotent job then deletes the blobs:
the task's folder, the source document if no other task of the owner refers to it, and the published result (the key by
filename), which is replaced by that of the latest remaining task of that filename. The job waits while a task of that
filename is active, since it may publish at any moment, and until the lease of a cancelled worker would have ended,
since nobody would delete what it still writes.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta

from penstock.access import audit
from penstock.access.domain import Caller
from penstock.etl import artifacts, lifecycle, review_requests, run_state
from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask
from penstock.etl.errors import EtlTaskRunning, SameNameRunning, WorkerStillRunning
from penstock.etl.store import reviews, tasks
from penstock.kernel import queue
from penstock.kernel.blobs import BlobNotFound
from penstock.kernel.db import Tx
from penstock.kernel.queue import Job, JobState, NewJob
from penstock.kernel.stages.run_handle import HeldLease
from penstock.messages import EtlTaskRemoved

REMOVE = "etl_remove_job"
BATCH = 100
CHECKED_RUNS = 20  # latest runs whose workers may still be running; those of earlier runs have stopped long ago
PUBLISH_ATTEMPTS = 3  # to publish a successor that is still the latest afterwards


@dataclass(frozen=True, kw_only=True)
class RemovedTask:
    """Payload of the remove job: what the keys of a removed task's blobs are derived from."""

    task_id: int
    user_id: int
    project_id: int
    filename: str
    s3_key: str
    jobs: Sequence[str] = ()  # job ids of its latest runs


async def delete_task(tx: Tx, deps: Deps, caller: Caller, task_id: int) -> EtlTask:
    """Remove a task that has ended; `EtlTaskRunning` if it has not."""
    row = await lifecycle.get_owned_task(tx, caller, task_id)
    if not await _remove(tx, deps, [row]):
        raise EtlTaskRunning(task_id=task_id, status=row.status.value)
    detail = {"filename": row.filename, "project_id": row.project_id, "status": row.status.value}
    await audit.record(tx, caller, "etl.delete_task", f"etl:{task_id}", **detail)
    return row


async def remove_expired_tasks(tx: Tx, deps: Deps) -> int:
    """Remove some tasks that ended before ETL_HISTORY_DAYS; returns how many."""
    before = tx.now - timedelta(days=deps.config.history_days)
    return len(await _remove(tx, deps, await tasks.list_ended(tx, before=before, limit=BATCH)))


async def delete_expired_cache(tx: Tx, deps: Deps) -> int:
    """Delete some cache entries older than ETL_HISTORY_DAYS; returns how many."""
    before = tx.now - timedelta(days=deps.config.history_days)
    return await tasks.delete_old_cached_stages(tx, before=before, limit=BATCH)


async def remove_objects(deps: Deps, job: Job) -> None:
    """Delete the blobs of a removed task."""
    removed = RemovedTask(**job.payload)
    lease = HeldLease(db=deps.db, leases=deps.queue.leases, row_id=job.id, token=job.token or "")
    user_id, project_id, filename = removed.user_id, removed.project_id, removed.filename
    await _check_stopped(lease, removed)
    await artifacts.drop(deps.blobs, artifacts.folder(user_id, project_id, removed.task_id))
    async with lease.read() as tx:
        is_source_used = await tasks.is_source_used(tx, removed.s3_key, user_id=user_id)
    if not is_source_used and removed.s3_key.startswith(artifacts.own_prefix(user_id)):
        await deps.blobs.delete(removed.s3_key)
    await _republish(deps, lease, removed, artifacts.public_key(user_id, project_id, filename))


async def _check_stopped(lease: HeldLease, removed: RemovedTask) -> None:
    """Raise while a worker may still run one of the task's jobs, revoked or not. A waiting job stops without a row."""
    async with lease.read() as tx:
        known = await queue.list_jobs(tx, removed.jobs)
        now = tx.now
    revoked = [job.scheduled_at for job in known if job.state is JobState.CANCELLED]  # stopped by then
    if any(job.state is JobState.RUNNING for job in known) or any(then > now for then in revoked):
        raise WorkerStillRunning(task_id=removed.task_id)


async def _republish(deps: Deps, lease: HeldLease, removed: RemovedTask, public_key: str) -> None:
    """Publish the result of the latest remaining task of that filename, even if it was completed just now."""
    successor = await _find_successor(lease, removed, public_key)
    for _ in range(PUBLISH_ATTEMPTS):
        await _publish(deps, public_key, successor)
        before, successor = successor, await _find_successor(lease, removed, public_key)
        if successor == before:
            return
    raise SameNameRunning(key=public_key)


async def _find_successor(lease: HeldLease, removed: RemovedTask, public_key: str) -> EtlTask | None:
    named = {"user_id": removed.user_id, "project_id": removed.project_id}
    async with lease.read() as tx:
        if await tasks.has_running_by_name(tx, filename=removed.filename, **named):
            raise SameNameRunning(key=public_key)
        return await tasks.find_completed_by_name(tx, filename=removed.filename, **named)


async def _publish(deps: Deps, public_key: str, successor: EtlTask | None) -> None:
    """Replace the published result by the successor's, or delete it."""
    if successor is not None:
        try:
            await deps.blobs.copy(artifacts.result_key(successor), public_key)
            return
        except BlobNotFound:  # it is being removed too
            pass
    await deps.blobs.delete(public_key)


async def _remove(tx: Tx, deps: Deps, rows: list[EtlTask]) -> set[int]:
    """Delete those of these rows that have ended, and enqueue the deletion of their blobs; returns their ids."""
    gone = await tasks.delete_tasks(tx, rows)
    removed = [row for row in rows if row.id in gone]
    if removed:
        await deps.queue.enqueue(tx, *map(_remove_job, removed))
        await tasks.delete_cached_stages(tx, gone)
        await reviews.delete_of_tasks(tx, gone)
    for row in removed:
        review_requests.withdraw(tx, row)
        tx.send(
            EtlTaskRemoved(
                task_id=row.id,
                user_id=row.user_id,
                project_id=row.project_id,
                filename=row.filename,
                run=row.run,
            )
        )
    return gone


def _remove_job(row: EtlTask) -> NewJob:
    removed = RemovedTask(
        task_id=row.id,
        user_id=row.user_id,
        project_id=row.project_id,
        filename=row.filename,
        s3_key=row.s3_key,
        jobs=[run_state.job_id(replace(row, run=run), phase) for run in _last_runs(row) for phase in lifecycle.KINDS],
    )
    return NewJob(kind=REMOVE, module=lifecycle.MODULE, payload=asdict(removed), id=f"etl:{row.id}:{row.run}:remove")


def _last_runs(row: EtlTask) -> range:
    """The latest runs: a worker of an earlier one may not have noticed yet that it was cancelled."""
    return range(max(1, row.run - CHECKED_RUNS + 1), row.run + 1)

"""Remove: a task that is over goes with all its papers; the audit line stays.

The row goes at once, so nobody finds the task any more. Its objects go in a job, which can be done twice: its own
folder, the document itself when no other task of its owner's is about it, and the result by the document's name, in
whose place the latest task of that name that is left puts its own. While one of that name is under way, that place may
be in its hands already: then the job waits. So it does for a worker that was told to stop and still works: what it puts
behind our back nobody would ever delete. What the memory knows of its papers, and what people said about it, goes with
the row.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import partial

from penstock.access import audit
from penstock.access.domain import Caller
from penstock.etl import moves, papers, runs
from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask
from penstock.etl.errors import EtlTaskRunning, NamesakeUnderWay, WorkerStillThere
from penstock.etl.store import memory, reviews, tasks
from penstock.kernel import queue
from penstock.kernel.blobs import BlobNotFound
from penstock.kernel.db import Tx
from penstock.kernel.maintenance import repeat_until_zero
from penstock.kernel.queue import Job, JobState, NewJob
from penstock.messages import EtlTaskRemoved

REMOVE = "etl_remove_job"
FORGOTTEN_AT_ONCE = 100
ACTOR = "timekeeper"
WATCHED_RUNS = 20  # whose workers may still be there; those of earlier ones have long been stopped
TRIES = 3  # to leave a place to an heir who stays the same meanwhile


@dataclass(frozen=True, kw_only=True)
class Left:
    """What a removed task leaves behind, by what its keys are made of."""

    task_id: int
    user_id: int
    project_id: int
    filename: str
    s3_key: str
    jobs: Sequence[str] = ()  # of its last runs


async def delete_task(tools: Deps, caller: Caller, task_id: int) -> None:
    """Remove a task that is over; `EtlTaskRunning` when it is not."""
    async with tools.db.tx(actor=caller.name) as tx:
        row = await moves.get_own(tx, caller, task_id)
        if not await _remove(tools, tx, [row]):
            raise EtlTaskRunning(task_id=task_id, status=row.status.value)
        detail = {"filename": row.filename, "project_id": row.project_id, "status": row.status.value}
        await audit.record(tx, caller, "etl.delete_task", f"etl:{task_id}", **detail)
    await runs.hide_soon(tools, row)


async def forget(tools: Deps) -> None:
    """Remove tasks that have been over for longer than they are kept, and what is remembered from as long ago."""
    await repeat_until_zero(partial(_forget_some, tools))
    await repeat_until_zero(partial(_forget_memory, tools))


async def remove_objects(tools: Deps, job: Job) -> None:
    """Delete what a removed task has left."""
    left = Left(**job.payload)
    user_id, project_id, filename = left.user_id, left.project_id, left.filename
    await _check_stopped(tools, left)
    await papers.drop(tools.blobs, papers.folder(user_id, project_id, left.task_id))
    async with tools.db.read() as tx:
        is_named = await tasks.is_named(tx, left.s3_key, user_id=user_id)
    if not is_named and left.s3_key.startswith(papers.own_prefix(user_id)):
        await tools.blobs.delete(left.s3_key)
    await _clear_public(tools, left, papers.public_key(user_id, project_id, filename))


async def _check_stopped(tools: Deps, left: Left) -> None:
    """Nobody may put anything there any more. A job that only waits is none: without a row, nobody begins with it."""
    async with tools.db.read() as tx:
        known = await queue.list_jobs(tx, left.jobs)
    if any(job.state is JobState.RUNNING for job in known):
        raise WorkerStillThere(task_id=left.task_id)


async def _clear_public(tools: Deps, left: Left, public_key: str) -> None:
    """Let the result by name be that of the latest task that is left, also when that one was completed just now."""
    heir = await _find_heir(tools, left, public_key)
    for _ in range(TRIES):
        await _bequeath(tools, public_key, heir)
        before, heir = heir, await _find_heir(tools, left, public_key)
        if heir == before:
            return
    raise NamesakeUnderWay(key=public_key)


async def _find_heir(tools: Deps, left: Left, public_key: str) -> EtlTask | None:
    named = {"user_id": left.user_id, "project_id": left.project_id}
    async with tools.db.read() as tx:
        if await tasks.has_namesake_under_way(tx, filename=left.filename, **named):
            raise NamesakeUnderWay(key=public_key)
        return await tasks.find_namesake(tx, filename=left.filename, **named)


async def _bequeath(tools: Deps, public_key: str, heir: EtlTask | None) -> None:
    """Leave the place of the result by name to the heir, or nobody."""
    if heir is not None:
        try:
            await tools.blobs.copy(papers.result_key(heir), public_key)
            return
        except BlobNotFound:  # it is being removed too
            pass
    await tools.blobs.delete(public_key)


async def _forget_some(tools: Deps) -> int:
    async with tools.db.tx(actor=ACTOR) as tx:
        before = tx.now - timedelta(days=tools.terms.history_days)
        return len(await _remove(tools, tx, await tasks.list_over(tx, before=before, limit=FORGOTTEN_AT_ONCE)))


async def _forget_memory(tools: Deps) -> int:
    async with tools.db.tx(actor=ACTOR) as tx:
        before = tx.now - timedelta(days=tools.terms.history_days)
        return await memory.delete_old(tx, before=before, limit=FORGOTTEN_AT_ONCE)


async def _remove(tools: Deps, tx: Tx, rows: list[EtlTask]) -> set[int]:
    """Delete those of these rows that are over, and have their objects deleted; returns their numbers."""
    gone = await tasks.delete_tasks(tx, rows)
    removed = [row for row in rows if row.id in gone]
    if removed:
        await tools.queue.enqueue(tx, *map(_removal, removed))
        await memory.delete_of_tasks(tx, gone)
        await reviews.delete_of_tasks(tx, gone)
    for row in removed:
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


def _removal(row: EtlTask) -> NewJob:
    left = Left(
        task_id=row.id,
        user_id=row.user_id,
        project_id=row.project_id,
        filename=row.filename,
        s3_key=row.s3_key,
        jobs=[runs.job_id(replace(row, run=run), phase) for run in _last_runs(row) for phase in moves.KINDS],
    )
    return NewJob(kind=REMOVE, module=moves.ROOM, payload=asdict(left), id=f"etl:{row.id}:{row.run}:remove")


def _last_runs(row: EtlTask) -> range:
    """A worker of an earlier run may not have heard yet that it was taken back."""
    return range(max(1, row.run - WATCHED_RUNS + 1), row.run + 1)

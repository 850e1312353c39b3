"""Leases: the holder of a pulled task confirms, renews or releases it; an admin resets it.

A lease is identified by its token, or without one by the client's name; any other client gets an error that says who
holds the task. Renewing is frequent and changes nothing that others see, so it bypasses the project's lock.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from penstock.access import audit
from penstock.access.domain import Caller
from penstock.kernel.db import Tx
from penstock.kernel.errors import Conflict, Gone, Invalid, NotFound, PenstockError, Refused
from penstock.tasks.conflicts import lease_lost_error, not_pulled_error
from penstock.tasks.deps import Deps
from penstock.tasks.domain import BatchResult, ChangeKind, Holder, PullOutcome, PullState, Task
from penstock.tasks.errors import MAX_LISTED_IDS, BadTask, TaskArchived
from penstock.tasks.lifecycle import UnitOfWork, by_task_id, count_ended_pulls, open_unit_of_work, resolve_task
from penstock.tasks.store import leases, pulls, tasks
from penstock.tasks.store.leases import LeaseLookup


@dataclass(frozen=True, kw_only=True)
class LeaseRef:
    """A task by its ids, and the lease token if the client sent one."""

    task_id: str
    queue_id: str | None = None
    token: str | None = None


@dataclass(frozen=True, kw_only=True)
class RenewedLease:
    """A lease after it was confirmed or renewed."""

    task_id: str
    leased_until: datetime
    confirmed_at: datetime | None = None


Act = Callable[[Task, LeaseRef], Awaitable[Task]]


async def confirm(tx: Tx, deps: Deps, holder: Holder, project_id: str, ref: LeaseRef) -> RenewedLease | None:
    """Confirm a pull: an optional receipt of the holder that restarts the lease. The first confirmation counts.

    None if no such lease is found; `confirm_several` then says why.
    """
    until = tx.now + timedelta(seconds=deps.config.pull_timeout)
    row = await leases.confirm(tx, _lookup(holder, project_id, ref), until=until)
    if row is None:
        return None
    await pulls.confirm_pulls(tx, [row.id])
    return RenewedLease(task_id=ref.task_id, leased_until=until, confirmed_at=row.confirmed_at)


async def confirm_several(
    tx: Tx, deps: Deps, holder: Holder, project_id: str, refs: Sequence[LeaseRef]
) -> BatchResult[RenewedLease]:
    """Confirm and renew the leases of many tasks."""
    uow = await open_unit_of_work(tx, project_id)

    async def receive(task: Task, ref: LeaseRef) -> Task:
        await _refuse_others(uow, task, _holder_of(holder, ref))
        confirmed = replace(task, confirmed_at=task.confirmed_at or tx.now)
        return confirmed.with_lease_extended(seconds=deps.config.pull_timeout, now=tx.now)

    result = await _for_each(uow, refs, receive)
    await leases.move_leases(tx, result.done)
    await pulls.confirm_pulls(tx, [one.id for one in result.done])
    return _renewed(result)


async def renew(
    tx: Tx, deps: Deps, holder: Holder, project_id: str, ref: LeaseRef, seconds: float | None = None
) -> RenewedLease | None:
    """The heartbeat of long work: extend the lease to `seconds` from now, or to as long as a new pull would last.

    A single statement. None if no such lease is found; `renew_several` then says why.
    """
    until = tx.now + timedelta(seconds=_lease_duration(deps, seconds))
    is_renewed = await leases.renew(tx, _lookup(holder, project_id, ref), until=until)
    return RenewedLease(task_id=ref.task_id, leased_until=until) if is_renewed else None


async def renew_several(
    tx: Tx, deps: Deps, holder: Holder, project_id: str, refs: Sequence[LeaseRef], seconds: float | None = None
) -> BatchResult[RenewedLease]:
    """Extend the leases of many tasks; refused for a pull that an edit or a reset revoked, and for a deleted task."""
    duration = _lease_duration(deps, seconds)
    uow = await open_unit_of_work(tx, project_id)

    async def extend(task: Task, ref: LeaseRef) -> Task:
        await _refuse_others(uow, task, _holder_of(holder, ref))
        return task.with_lease_extended(seconds=duration, now=tx.now)

    result = await _for_each(uow, refs, extend)
    await leases.move_leases(tx, result.done)
    return _renewed(result)


async def release(
    tx: Tx, deps: Deps, caller: Caller, holder: Holder, project_id: str, refs: Sequence[LeaseRef]
) -> BatchResult[Task]:
    """Release tasks: they are offered again, in the status they had when they were pulled.

    Only the holder or an admin can release a task. After too many pulls without a push it gets status error instead.
    """
    max_attempts = deps.config.max_attempts
    uow = await open_unit_of_work(tx, project_id)

    async def release_one(task: Task, ref: LeaseRef) -> Task:
        releaser = _holder_of(holder, ref)
        if not task.is_held:
            raise not_pulled_error(await lease_lost_error(tx, task, releaser))
        if not releaser.is_admin or releaser.token is not None:
            await _refuse_others(uow, task, releaser)
        after = task.returned_or_failed("release", max_attempts=max_attempts, by=holder.name, now=tx.now)
        uow.record(task, after, ChangeKind.RELEASED, PullOutcome.RELEASED)
        return after

    result = await _for_each(uow, refs, release_one)
    await _write(deps, uow, caller, "tasks.release", by=holder.name)
    return result


async def reset(tx: Tx, deps: Deps, caller: Caller, project_id: str, refs: Sequence[LeaseRef]) -> BatchResult[Task]:
    """Reset pulls: tasks are offered as if they had never been pulled, even after a push. Their leases are revoked."""
    uow = await open_unit_of_work(tx, project_id)

    async def reset_one(task: Task, ref: LeaseRef) -> Task:
        if task.archived_at is not None:
            raise TaskArchived(task_id=ref.task_id)
        if task.state is PullState.OFFERED and not task.lease_count:
            return task
        after = task.pull_reset(by=caller.name, now=tx.now)
        uow.record(task, after, ChangeKind.RESET)
        return after

    result = await _for_each(uow, refs, reset_one)
    await _write(deps, uow, caller, "tasks.pull_reset", by=caller.name)
    return result


async def _for_each(uow: UnitOfWork, refs: Sequence[LeaseRef], act: Act) -> BatchResult[Task]:
    """Apply `act` to each task; an error of one task does not stop the others."""
    task_ids = {ref.task_id for ref in refs}
    candidates = by_task_id(await tasks.claim_by_task_id(uow.tx, uow.project.id, task_ids))
    done: dict[str, Task] = {}
    failed: list[tuple[str, PenstockError]] = []
    for ref in refs:
        try:
            queue = None if ref.queue_id is None else await uow.get_queue(ref.queue_id)
            task = resolve_task(candidates[ref.task_id], uow.project.project_id, ref.task_id, queue)
            if task.id not in done:  # a task that is listed twice is handled once
                done[task.id] = await act(task, ref)
        except (Invalid, NotFound, Gone, Conflict, Refused) as error:
            failed.append((ref.task_id, error))
    return BatchResult(done=list(done.values()), failed=failed)


async def _refuse_others(uow: UnitOfWork, task: Task, holder: Holder) -> None:
    if not holder.holds(task):
        raise await lease_lost_error(uow.tx, task, holder)


async def _write(deps: Deps, uow: UnitOfWork, caller: Caller, action: str, *, by: str) -> None:
    """Write the changes, if any, with an audit log line that names the tasks and their holders."""
    if not uow.changes:
        return
    holders = [change.before.lease_owner for change in uow.changes if change.before is not None and change.outcome]
    detail = {
        "client": by,
        "count": len(uow.changes),
        "tasks": [change.task.task_id for change in uow.changes[:MAX_LISTED_IDS]],
        "holders": list(dict.fromkeys(holders))[:MAX_LISTED_IDS],
    }
    await audit.record(uow.tx, caller, action, f"project:{uow.project.project_id}", **detail)
    count_ended_pulls(uow, deps.metrics)
    uow.announce()
    await uow.close(by=by)


def _holder_of(holder: Holder, ref: LeaseRef) -> Holder:
    return holder if ref.token is None else replace(holder, token=ref.token)


def _lookup(holder: Holder, project_id: str, ref: LeaseRef) -> LeaseLookup:
    token = _holder_of(holder, ref).token
    return LeaseLookup(
        project_id=project_id, task_id=ref.task_id, queue_id=ref.queue_id, holder=holder.name, token=token
    )


def _renewed(result: BatchResult[Task]) -> BatchResult[RenewedLease]:
    renewed = [
        RenewedLease(task_id=one.task_id, leased_until=one.leased_until, confirmed_at=one.confirmed_at)
        for one in result.done
        if one.leased_until is not None
    ]
    return BatchResult(done=renewed, failed=result.failed)


def _lease_duration(deps: Deps, seconds: float | None) -> float:
    longest = deps.config.pull_timeout
    if seconds is not None and seconds > longest:
        raise BadTask(field="seconds", reason=f"at most {longest:g}", reason_zh=f"最多 {longest:g}")
    return longest if seconds is None else seconds

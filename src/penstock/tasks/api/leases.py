"""Lease routes: confirm, renew, release and reset pulls, one by its path or many in a batch."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request
from pydantic import AliasChoices, BaseModel, Field

from penstock.access.domain import Caller, Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.kernel.db import Tx
from penstock.kernel.http.envelope import Said, Say, SayHere
from penstock.tasks import leases
from penstock.tasks.api.params import (
    MAX_IDS,
    MAX_TOKEN_LENGTH,
    DepsHere,
    HolderHere,
    Name,
    ProjectHere,
    QueueId,
    TaskId,
    TaskIds,
    new_router,
)
from penstock.tasks.api.views import failures_view, format_time
from penstock.tasks.deps import Deps
from penstock.tasks.domain import PULL_STATE_LABELS, Holder
from penstock.tasks.errors import BadTask
from penstock.tasks.leases import LeaseRef, RenewedLease

router = new_router()

Answer = Said[dict[str, Any]]
Token = Annotated[str, Field(max_length=MAX_TOKEN_LENGTH)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, kw_only=True)
class LeaseContext:
    """The project, caller and holder of a lease request."""

    deps: Deps
    project_id: str
    caller: Caller
    holder: Holder

    def tx(self) -> AbstractAsyncContextManager[Tx]:
        """A transaction of this request."""
        return self.deps.db.tx(actor=self.holder.name)


async def _context(project_id: ProjectHere, caller: CurrentCaller, holder: HolderHere, deps: DepsHere) -> LeaseContext:
    return LeaseContext(deps=deps, project_id=project_id, caller=caller, holder=holder)


LeaseContextHere = Annotated[LeaseContext, Depends(_context)]


class HandAsked(BaseModel):
    """The lease token of one pull; it may also be given in X-Lease-Token."""

    lease_token: Token | None = None


class RenewAsked(HandAsked):
    """The duration of the renewed lease."""

    seconds: Seconds | None = None


class Meant(BaseModel):
    """One task of a batch, with its own lease token."""

    task_id: Name = Field(validation_alias=AliasChoices("task_id", "taskId"))
    queue_id: Name | None = Field(default=None, validation_alias=AliasChoices("queue_id", "queueId"))
    lease_token: Token | None = None


class HandSeveralAsked(BaseModel):
    """The tasks of a batch: ids with a common queue and token, or one by one."""

    task_ids: TaskIds | None = Field(default=None, alias="taskIds")
    queue_id: Name | None = Field(default=None, alias="queueId")
    lease_token: Token | None = None
    tasks: Annotated[list[Meant], Field(max_length=MAX_IDS)] = []

    def refs(self) -> list[LeaseRef]:
        """All tasks with their leases."""
        refs = [LeaseRef(task_id=one, queue_id=self.queue_id, token=self.lease_token) for one in self.task_ids or ()]
        for one in self.tasks:
            queue_id, token = one.queue_id or self.queue_id, one.lease_token or self.lease_token
            refs.append(LeaseRef(task_id=one.task_id, queue_id=queue_id, token=token))
        if not 1 <= len(refs) <= MAX_IDS:
            raise BadTask(
                field="taskIds", reason=f"must have 1 to {MAX_IDS} ids", reason_zh=f"需要 1 至 {MAX_IDS} 个编号"
            )
        return refs


class RenewSeveralAsked(HandSeveralAsked):
    """The tasks of a batch, and the duration of the renewed leases."""

    seconds: Seconds | None = None


@router.post(
    "/projects/{project_id}/tasks/pull/confirm/batch",
    summary="Confirm receipt of pulled tasks",
    **requires(Scope.READ, bound=True, pull=True),
)
async def confirm_pulls(context: LeaseContextHere, body: HandSeveralAsked, request: Request, say: SayHere) -> Answer:
    refs = body.refs()
    async with context.tx() as tx:
        result = await leases.confirm_several(tx, context.deps, context.holder, context.project_id, refs)
    count = len(result.done)
    data = {"confirmed_count": count, **failures_view(result.failed, request), "tasks": _lease_views(result.done)}
    return say(data, f"{count} pulls confirmed.", f"已确认 {count} 个拉取。")


@router.post(
    "/projects/{project_id}/tasks/pull/renew/batch",
    summary="Renew the leases of pulled tasks",
    **requires(Scope.READ, bound=True, pull=True),
)
async def renew_pulls(context: LeaseContextHere, body: RenewSeveralAsked, request: Request, say: SayHere) -> Answer:
    refs = body.refs()
    async with context.tx() as tx:
        result = await leases.renew_several(tx, context.deps, context.holder, context.project_id, refs, body.seconds)
    count = len(result.done)
    data = {"renewed_count": count, **failures_view(result.failed, request), "tasks": _lease_views(result.done)}
    return say(data, f"{count} pulls renewed.", f"已续期 {count} 个拉取。")


@router.post(
    "/projects/{project_id}/tasks/pull/release/batch",
    summary="Release pulled tasks",
    **requires(Scope.READ, bound=True, pull=True),
)
async def release_pulls(context: LeaseContextHere, body: HandSeveralAsked, request: Request, say: SayHere) -> Answer:
    refs = body.refs()
    async with context.tx() as tx:
        result = await leases.release(tx, context.deps, context.caller, context.holder, context.project_id, refs)
    count = len(result.done)
    released = [{"task_id": one.task_id, "released_at": format_time(tx.now)} for one in result.done]
    data = {"released": released, "released_count": count, **failures_view(result.failed, request)}
    return say(data, f"{count} tasks released.", f"已释放 {count} 个任务。")


@router.post(
    "/projects/{project_id}/tasks/pull/reset/batch",
    summary="Reset the pulls of tasks",
    **requires(Scope.ADMIN, bound=True),
)
async def reset_pulls(context: LeaseContextHere, body: HandSeveralAsked, request: Request, say: SayHere) -> Answer:
    refs = body.refs()
    async with context.deps.db.tx(actor=context.caller.name) as tx:
        result = await leases.reset(tx, context.deps, context.caller, context.project_id, refs)
    count = len(result.done)
    data = {"reset_count": count, **failures_view(result.failed, request)}
    return say(data, f"Pulls of {count} tasks reset.", f"已重置 {count} 个任务的拉取状态。")


@router.post(
    "/projects/{project_id}/tasks/{task_id}/pull/confirm",
    summary="Confirm receipt of a pulled task and renew its lease",
    **requires(Scope.READ, bound=True, pull=True),
)
async def confirm_pull(
    task_id: TaskId, context: LeaseContextHere, say: SayHere, body: HandAsked | None = None
) -> Answer:
    return await _confirm(context, say, _ref(task_id, None, body))


@router.post(
    "/projects/{project_id}/queues/{queue_id}/tasks/{task_id}/pull/confirm",
    summary="Confirm receipt of a pulled task of a queue and renew its lease",
    **requires(Scope.READ, bound=True, pull=True),
)
async def confirm_queue_pull(
    queue_id: QueueId, task_id: TaskId, context: LeaseContextHere, say: SayHere, body: HandAsked | None = None
) -> Answer:
    return await _confirm(context, say, _ref(task_id, queue_id, body))


@router.post(
    "/projects/{project_id}/tasks/{task_id}/pull/renew",
    summary="Renew the lease of a pulled task",
    **requires(Scope.READ, bound=True, pull=True),
)
async def renew_pull(
    task_id: TaskId, context: LeaseContextHere, say: SayHere, body: RenewAsked | None = None
) -> Answer:
    return await _renew(context, say, _ref(task_id, None, body), body)


@router.post(
    "/projects/{project_id}/queues/{queue_id}/tasks/{task_id}/pull/renew",
    summary="Renew the lease of a pulled task of a queue",
    **requires(Scope.READ, bound=True, pull=True),
)
async def renew_queue_pull(
    queue_id: QueueId, task_id: TaskId, context: LeaseContextHere, say: SayHere, body: RenewAsked | None = None
) -> Answer:
    return await _renew(context, say, _ref(task_id, queue_id, body), body)


@router.post(
    "/projects/{project_id}/tasks/{task_id}/pull/release",
    summary="Release a pulled task: it is offered again",
    **requires(Scope.READ, bound=True, pull=True),
)
async def release_pull(
    task_id: TaskId, context: LeaseContextHere, say: SayHere, body: HandAsked | None = None
) -> Answer:
    return await _release(context, say, _ref(task_id, None, body))


@router.post(
    "/projects/{project_id}/queues/{queue_id}/tasks/{task_id}/pull/release",
    summary="Release a pulled task of a queue: it is offered again",
    **requires(Scope.READ, bound=True, pull=True),
)
async def release_queue_pull(
    queue_id: QueueId, task_id: TaskId, context: LeaseContextHere, say: SayHere, body: HandAsked | None = None
) -> Answer:
    return await _release(context, say, _ref(task_id, queue_id, body))


@router.post(
    "/projects/{project_id}/tasks/{task_id}/pull/reset",
    summary="Reset the pull of a task",
    **requires(Scope.ADMIN, bound=True),
)
async def reset_pull(task_id: TaskId, context: LeaseContextHere, say: SayHere) -> Answer:
    return await _reset(context, say, LeaseRef(task_id=task_id))


@router.post(
    "/projects/{project_id}/queues/{queue_id}/tasks/{task_id}/pull/reset",
    summary="Reset the pull of a task of a queue",
    **requires(Scope.ADMIN, bound=True),
)
async def reset_queue_pull(queue_id: QueueId, task_id: TaskId, context: LeaseContextHere, say: SayHere) -> Answer:
    return await _reset(context, say, LeaseRef(task_id=task_id, queue_id=queue_id))


def _ref(task_id: str, queue_id: str | None, body: HandAsked | None) -> LeaseRef:
    return LeaseRef(task_id=task_id, queue_id=queue_id, token=None if body is None else body.lease_token)


def _lease_views(renewed: Sequence[RenewedLease]) -> list[dict[str, Any]]:
    return [{"task_id": one.task_id, "leased_until": format_time(one.leased_until)} for one in renewed]


async def _confirm(context: LeaseContext, say: Say, ref: LeaseRef) -> Answer:
    deps, holder = context.deps, context.holder
    async with context.tx() as tx:
        lease = await leases.confirm(tx, deps, holder, context.project_id, ref)
    if lease is None:  # in a new transaction: the project is locked before its tasks
        async with context.tx() as tx:
            result = await leases.confirm_several(tx, deps, holder, context.project_id, [ref])
        lease = result.one()
    data = {
        "task_id": lease.task_id,
        "confirmed": True,
        "confirmed_at": format_time(lease.confirmed_at),
        "leased_until": format_time(lease.leased_until),
    }
    return say(data, "Pull confirmed.", "已确认拉取。")


async def _renew(context: LeaseContext, say: Say, ref: LeaseRef, body: RenewAsked | None) -> Answer:
    seconds = None if body is None else body.seconds
    deps, holder = context.deps, context.holder
    async with deps.db.autocommit(actor=holder.name) as tx:
        lease = await leases.renew(tx, deps, holder, context.project_id, ref, seconds)
    if lease is None:
        async with context.tx() as tx:
            result = await leases.renew_several(tx, deps, holder, context.project_id, [ref], seconds)
        lease = result.one()
    data = {"task_id": lease.task_id, "leased_until": format_time(lease.leased_until)}
    return say(data, "Pull renewed.", "拉取已续期。")


async def _release(context: LeaseContext, say: Say, ref: LeaseRef) -> Answer:
    async with context.tx() as tx:
        result = await leases.release(tx, context.deps, context.caller, context.holder, context.project_id, [ref])
    data = {"task_id": result.one().task_id, "released": True, "released_at": format_time(tx.now)}
    return say(data, "Task released.", "任务已释放。")


async def _reset(context: LeaseContext, say: Say, ref: LeaseRef) -> Answer:
    async with context.deps.db.tx(actor=context.caller.name) as tx:
        result = await leases.reset(tx, context.deps, context.caller, context.project_id, [ref])
    task = result.one()
    data = {
        "task_id": task.task_id,
        "reset": True,
        "reset_at": format_time(tx.now),
        "pulled_at": None,
        "status": task.status,
        "pull_state": PULL_STATE_LABELS[task.state],
    }
    return say(data, "Pull reset.", "任务的拉取状态已重置。")

"""Confirming, renewing, releasing and resetting pulls over HTTP: one by its path, or many at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request
from pydantic import AliasChoices, BaseModel, Field

from penstock.access.domain import Caller, Scope
from penstock.access.door import CallerHere, open_to
from penstock.kernel.http.envelope import Said, Say, SayHere
from penstock.tasks import leases
from penstock.tasks.api.params import (
    LONGEST_TOKEN,
    MOST_IDS,
    HolderHere,
    Name,
    ProjectHere,
    QueueId,
    TaskId,
    TaskIds,
    ToolsHere,
    new_router,
)
from penstock.tasks.api.views import moment, shown_failures
from penstock.tasks.deps import Deps
from penstock.tasks.domain import SHOWN, Holder
from penstock.tasks.errors import BadTask
from penstock.tasks.leases import Kept, Named

router = new_router()

Answer = Said[dict[str, Any]]
Token = Annotated[str, Field(max_length=LONGEST_TOKEN)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, kw_only=True)
class Hands:
    """Whose hands a pull is said to be in, and where."""

    tools: Deps
    project_id: str
    caller: Caller
    holder: Holder


async def _hands(project_id: ProjectHere, caller: CallerHere, holder: HolderHere, tools: ToolsHere) -> Hands:
    return Hands(tools=tools, project_id=project_id, caller=caller, holder=holder)


HandsHere = Annotated[Hands, Depends(_hands)]


class HandAsked(BaseModel):
    """What may be said about one pull; the token may come in X-Lease-Token as well."""

    lease_token: Token | None = None


class RenewAsked(HandAsked):
    """How long a pull is to last from now."""

    seconds: Seconds | None = None


class Meant(BaseModel):
    """One task of many, with a lease of its own."""

    task_id: Name = Field(validation_alias=AliasChoices("task_id", "taskId"))
    queue_id: Name | None = Field(default=None, validation_alias=AliasChoices("queue_id", "queueId"))
    lease_token: Token | None = None


class HandSeveralAsked(BaseModel):
    """Which tasks are meant: by their ids, all in one queue or wherever they are, or one by one."""

    task_ids: TaskIds | None = Field(default=None, alias="taskIds")
    queue_id: Name | None = Field(default=None, alias="queueId")
    lease_token: Token | None = None
    tasks: Annotated[list[Meant], Field(max_length=MOST_IDS)] = []

    def named(self) -> list[Named]:
        """All of them in our words."""
        listed = [Named(task_id=one, queue_id=self.queue_id, token=self.lease_token) for one in self.task_ids or ()]
        for one in self.tasks:
            queue_id, token = one.queue_id or self.queue_id, one.lease_token or self.lease_token
            listed.append(Named(task_id=one.task_id, queue_id=queue_id, token=token))
        if not 1 <= len(listed) <= MOST_IDS:
            raise BadTask(field="taskIds", reason=f"1 to {MOST_IDS} ids", reason_zh=f"需要 1 至 {MOST_IDS} 个编号")
        return listed


class RenewSeveralAsked(HandSeveralAsked):
    """The same, and how long their pulls are to last from now."""

    seconds: Seconds | None = None


@router.post(
    "/projects/{project_id}/tasks/pull/confirm/batch",
    summary="Confirm that pulled tasks were received",
    **open_to(Scope.READ, bound=True),
)
async def confirm_pulls(hands: HandsHere, body: HandSeveralAsked, request: Request, say: SayHere) -> Answer:
    found = await hand_back.confirm_several(hands.tools, hands.holder, hands.project_id, body.named())
    count = len(found.done)
    data = {"confirmed_count": count, **shown_failures(found.failed, request), "tasks": _leases(found.done)}
    return say(data, f"{count} pulls were confirmed.", f"已确认 {count} 个拉取。")


@router.post(
    "/projects/{project_id}/tasks/pull/renew/batch",
    summary="Keep pulled tasks for longer",
    **open_to(Scope.READ, bound=True),
)
async def renew_pulls(hands: HandsHere, body: RenewSeveralAsked, request: Request, say: SayHere) -> Answer:
    found = await hand_back.renew_several(hands.tools, hands.holder, hands.project_id, body.named(), body.seconds)
    count = len(found.done)
    data = {"renewed_count": count, **shown_failures(found.failed, request), "tasks": _leases(found.done)}
    return say(data, f"{count} pulls were renewed.", f"已续期 {count} 个拉取。")


@router.post(
    "/projects/{project_id}/tasks/pull/release/batch",
    summary="Let go of pulled tasks",
    **open_to(Scope.READ, bound=True),
)
async def release_pulls(hands: HandsHere, body: HandSeveralAsked, request: Request, say: SayHere) -> Answer:
    found = await hand_back.release(hands.tools, hands.caller, hands.holder, hands.project_id, body.named())
    count = len(found.done)
    data = {"released_count": count, **shown_failures(found.failed, request)}
    return say(data, f"{count} tasks were released.", f"已释放 {count} 个任务。")


@router.post(
    "/projects/{project_id}/tasks/pull/reset/batch",
    summary="Put tasks on offer as if nobody had pulled them",
    **open_to(Scope.ADMIN, bound=True),
)
async def reset_pulls(hands: HandsHere, body: HandSeveralAsked, request: Request, say: SayHere) -> Answer:
    found = await hand_back.reset(hands.tools, hands.caller, hands.project_id, body.named())
    count = len(found.done)
    data = {"reset_count": count, **shown_failures(found.failed, request)}
    return say(data, f"The pulls of {count} tasks were reset.", f"已重置 {count} 个任务的拉取状态。")


@router.post(
    "/projects/{project_id}/tasks/{task_id}/pull/confirm",
    summary="Confirm that a pulled task was received; its lease begins anew",
    **open_to(Scope.READ, bound=True),
)
async def confirm_pull(task_id: TaskId, hands: HandsHere, say: SayHere, body: HandAsked | None = None) -> Answer:
    return await _confirm(hands, say, _named(task_id, None, body))


@router.post(
    "/projects/{project_id}/queues/{queue_id}/tasks/{task_id}/pull/confirm",
    summary="Confirm that a pulled task of a queue was received; its lease begins anew",
    **open_to(Scope.READ, bound=True),
)
async def confirm_queue_pull(
    queue_id: QueueId, task_id: TaskId, hands: HandsHere, say: SayHere, body: HandAsked | None = None
) -> Answer:
    return await _confirm(hands, say, _named(task_id, queue_id, body))


@router.post(
    "/projects/{project_id}/tasks/{task_id}/pull/renew",
    summary="Keep a pulled task for longer",
    **open_to(Scope.READ, bound=True),
)
async def renew_pull(task_id: TaskId, hands: HandsHere, say: SayHere, body: RenewAsked | None = None) -> Answer:
    return await _renew(hands, say, _named(task_id, None, body), body)


@router.post(
    "/projects/{project_id}/queues/{queue_id}/tasks/{task_id}/pull/renew",
    summary="Keep a pulled task of a queue for longer",
    **open_to(Scope.READ, bound=True),
)
async def renew_queue_pull(
    queue_id: QueueId, task_id: TaskId, hands: HandsHere, say: SayHere, body: RenewAsked | None = None
) -> Answer:
    return await _renew(hands, say, _named(task_id, queue_id, body), body)


@router.post(
    "/projects/{project_id}/tasks/{task_id}/pull/release",
    summary="Let go of a pulled task: it is on offer again",
    **open_to(Scope.READ, bound=True),
)
async def release_pull(task_id: TaskId, hands: HandsHere, say: SayHere, body: HandAsked | None = None) -> Answer:
    return await _release(hands, say, _named(task_id, None, body))


@router.post(
    "/projects/{project_id}/queues/{queue_id}/tasks/{task_id}/pull/release",
    summary="Let go of a pulled task of a queue: it is on offer again",
    **open_to(Scope.READ, bound=True),
)
async def release_queue_pull(
    queue_id: QueueId, task_id: TaskId, hands: HandsHere, say: SayHere, body: HandAsked | None = None
) -> Answer:
    return await _release(hands, say, _named(task_id, queue_id, body))


@router.post(
    "/projects/{project_id}/tasks/{task_id}/pull/reset",
    summary="Put a task on offer as if nobody had pulled it",
    **open_to(Scope.ADMIN, bound=True),
)
async def reset_pull(task_id: TaskId, hands: HandsHere, say: SayHere) -> Answer:
    return await _reset(hands, say, Named(task_id=task_id))


@router.post(
    "/projects/{project_id}/queues/{queue_id}/tasks/{task_id}/pull/reset",
    summary="Put a task of a queue on offer as if nobody had pulled it",
    **open_to(Scope.ADMIN, bound=True),
)
async def reset_queue_pull(queue_id: QueueId, task_id: TaskId, hands: HandsHere, say: SayHere) -> Answer:
    return await _reset(hands, say, Named(task_id=task_id, queue_id=queue_id))


def _named(task_id: str, queue_id: str | None, body: HandAsked | None) -> Named:
    return Named(task_id=task_id, queue_id=queue_id, token=None if body is None else body.lease_token)


def _leases(kept: Sequence[Kept]) -> list[dict[str, Any]]:
    return [{"task_id": one.task_id, "leased_until": moment(one.leased_until)} for one in kept]


async def _confirm(hands: Hands, say: Say, named: Named) -> Answer:
    kept = await hand_back.confirm(hands.tools, hands.holder, hands.project_id, named)
    data = {
        "task_id": kept.task_id,
        "confirmed": True,
        "confirmed_at": moment(kept.confirmed_at),
        "leased_until": moment(kept.leased_until),
    }
    return say(data, "The pull was confirmed.", "已确认拉取。")


async def _renew(hands: Hands, say: Say, named: Named, body: RenewAsked | None) -> Answer:
    seconds = None if body is None else body.seconds
    kept = await hand_back.renew(hands.tools, hands.holder, hands.project_id, named, seconds)
    data = {"task_id": kept.task_id, "leased_until": moment(kept.leased_until)}
    return say(data, "The pull was renewed.", "已续期。")


async def _release(hands: Hands, say: Say, named: Named) -> Answer:
    found = await hand_back.release(hands.tools, hands.caller, hands.holder, hands.project_id, [named])
    return say({"task_id": found.one().task_id, "released": True}, "The task was released.", "任务已释放。")


async def _reset(hands: Hands, say: Say, named: Named) -> Answer:
    task = (await hand_back.reset(hands.tools, hands.caller, hands.project_id, [named])).one()
    data = {"task_id": task.task_id, "reset": True, "status": task.status, "pull_state": SHOWN[task.state]}
    return say(data, "The pull of the task was reset.", "任务的拉取状态已重置。")

"""Retry many tasks at once, by filter.

A call takes a bounded number of tasks, in the order of their ids, each in its own transaction. It stops when the queue
is full, and says where the next call goes on. A task that cannot be retried, say because its document is gone, is
listed with the reason and passed over.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from penstock.access import audit
from penstock.access.domain import Caller, Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.etl import retry, run_state
from penstock.etl.api.params import DepsParam, LocalizerParam, Number, etl_router
from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask, Stage, Status
from penstock.etl.retry import RetryOptions
from penstock.etl.store import tasks
from penstock.etl.store.tasks import EndedFilter
from penstock.kernel.errors import PenstockError, TooMany, Unavailable
from penstock.kernel.http.fields import NO_CONTROLS, Moment

router = etl_router()

MAX_BULK = 100  # tasks per call: each costs a look for its artifacts and a transaction
STOPS = (TooMany, Unavailable)  # the queue is full, or a dependency is away: the next task would meet the same
CONCURRENCY = 8  # retries at once: most of the time is waiting for the blob store


class EndedTasks(BaseModel):
    """Which tasks to retry: the caller's own, or anyone's for an admin."""

    model_config = ConfigDict(extra="forbid")

    status: Literal[Status.FAILED, Status.CANCELLED] = Field(description="Tasks with this status.")
    error_code: Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=NO_CONTROLS)] | None = Field(
        default=None, description="Only tasks that failed with this code."
    )
    project_id: Number | None = None
    rule_id: Number | None = None
    since: Moment | None = Field(default=None, description="Only tasks that ended at this time or later.")
    until: Moment | None = Field(default=None, description="Only tasks that ended before this time.")
    from_stage: Stage | None = Field(default=None, description="As in a retry of one task.")
    after: Number = Field(default=0, description="The `next` of the previous call.")
    limit: int = Field(default=MAX_BULK, ge=1, le=MAX_BULK, description="How many tasks to take in this call.")


class TaskNotRetried(BaseModel):
    """A task that could not be retried."""

    task_id: int
    code: str
    reason: str


class TasksRetried(BaseModel):
    """What a bulk retry did."""

    retried: int
    refused: list[TaskNotRetried]
    queue_full: bool = Field(description="Whether it stopped because the queue is full: wait, then go on with `next`.")
    next: int | None = Field(description="Pass it as `after` in the next call; null when no task is left.")


@dataclass(frozen=True, kw_only=True)
class BulkRetry:
    """The outcome of one step: tasks that were retried, those that could not be, and where to go on, if anywhere."""

    retried: int
    refused: Sequence[tuple[EtlTask, PenstockError]]
    full: TooMany | None  # why it stopped
    next_after: int | None


@router.post("/tasks/retry", summary="Retry tasks by filter", **requires(Scope.WRITE))
async def retry_tasks(
    body: EndedTasks, caller: CurrentCaller, deps: DepsParam, localize: LocalizerParam
) -> TasksRetried:
    """Retries failed or cancelled tasks that match, oldest first, at most `limit` of them."""
    chosen = EndedFilter(**body.model_dump(exclude={"from_stage", "after", "limit"}))
    options = RetryOptions(from_stage=body.from_stage)
    done = await retry_matching(deps, caller, chosen, options, after=body.after, limit=body.limit)
    refused = [
        TaskNotRetried(task_id=task.id, code=error.code, reason=localize(str(error), error.in_chinese()))
        for task, error in done.refused
    ]
    return TasksRetried(retried=done.retried, refused=refused, queue_full=done.full is not None, next=done.next_after)


async def retry_matching(
    deps: Deps, caller: Caller, chosen: EndedFilter, options: RetryOptions, *, after: int = 0, limit: int = MAX_BULK
) -> BulkRetry:
    """Retry up to `limit` of the matching tasks that the caller can access, by id from the one after `after`."""
    owner = None if caller.is_admin else caller.user_id
    async with deps.db.read() as tx:
        found = await tasks.list_matching(tx, chosen, owner=owner, after=after, limit=limit)
    retried, refused, stop, last = 0, list[tuple[EtlTask, PenstockError]](), None, after
    for start in range(0, len(found), CONCURRENCY):
        part = found[start : start + CONCURRENCY]
        outcomes = await asyncio.gather(*(_retry(deps, caller, task, options) for task in part))
        for task, error in zip(part, outcomes, strict=True):
            if isinstance(error, STOPS):
                stop = stop or error
            elif error is not None:
                refused.append((task, error))
            retried += error is None
            last = last if stop else task.id
        if stop is not None:
            break
    async with deps.db.tx(actor=caller.name) as tx:
        await audit.record(tx, caller, "etl.retry_many", "etl", count=retried, **chosen.shown())
    if isinstance(stop, Unavailable):
        raise stop
    more = stop is not None or len(found) == limit
    return BulkRetry(retried=retried, refused=refused, full=stop, next_after=last if more else None)


async def _retry(deps: Deps, caller: Caller, ended: EtlTask, options: RetryOptions) -> PenstockError | None:
    """Retry one task; returns why it could not be."""
    try:
        phase = await retry.find_first_phase(deps.blobs, ended, options)
        async with deps.db.tx(actor=caller.name) as tx:
            next_run = await retry.retry_task(tx, deps, caller, ended, phase, options)
        await run_state.show_now(deps, next_run)
    except PenstockError as error:
        return error
    return None

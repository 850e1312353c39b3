"""Routes of jobs for operators: list, show and retry; failed jobs are retried in bulk by filter."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from fastapi import Depends, Path, status
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from penstock.access import audit
from penstock.access.domain import Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.kernel.http.dependencies import DbHere
from penstock.kernel.http.fields import NO_CONTROLS, NO_CONTROLS_OR_EMPTY
from penstock.kernel.job_search import (
    JobFilter,
    JobPosition,
    list_ended_jobs,
    list_running_jobs,
    position_of,
    revive_failed_jobs,
)
from penstock.kernel.queue import JOB, JobQueue, JobState, get_job
from penstock.kernel.transitions import list_transitions
from penstock.web.ops.params import (
    After,
    BulkSelection,
    PageSize,
    Since,
    Until,
    Word,
    bad_cursor,
    job_queue,
    ops_router,
)

router = ops_router("jobs")

SEPARATOR = "~"  # between the time and the id of a position: no part of either, and needs no escape in a URL

JobId = Annotated[str, Path(min_length=1, max_length=255, pattern=NO_CONTROLS)]
ModuleName = Annotated[str, StringConstraints(max_length=255, pattern=NO_CONTROLS_OR_EMPTY)]  # empty: of no module
QueueHere = Annotated[JobQueue, Depends(job_queue)]


class ListedState(StrEnum):
    """The states in which jobs are listed. Waiting jobs are counted in the metrics."""

    FAILED = JobState.FAILED
    CANCELLED = JobState.CANCELLED
    DONE = JobState.DONE
    RUNNING = JobState.RUNNING


class JobView(BaseModel):
    """A job."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    kind: str
    module: str = Field(description="Empty for jobs of no module.")
    state: JobState
    priority: int
    attempts: int
    max_attempts: int
    created_at: datetime
    created_by: str
    scheduled_at: datetime = Field(description="When it became, or becomes, due.")
    finished_at: datetime | None
    worker: str | None = Field(description="The process that runs it, or ran it last.")
    error_code: str | None
    error: str | None


class TransitionView(BaseModel):
    """One state change."""

    model_config = ConfigDict(from_attributes=True)

    at: datetime
    from_state: str | None
    to_state: str
    trigger: str
    actor: str


class JobWithHistory(JobView):
    """A job with its payload and its first hundred state changes, oldest first."""

    timeout_seconds: float
    payload: dict[str, Any]
    history: list[TransitionView]


class JobPage(BaseModel):
    """A page of jobs, latest end first; running jobs by the end of their lease, on one page."""

    items: list[JobView]
    next: str | None


class FailedJobs(BulkSelection):
    """Which failed jobs to retry."""

    module: ModuleName | None = None
    kind: Word | None = None
    error_code: Word | None = None


class JobsRetried(BaseModel):
    """What a bulk retry did."""

    retried: int
    more: bool = Field(description="Whether there may be more: repeat the call with this `until`.")
    until: datetime


async def _job_filter(
    state: ListedState = ListedState.FAILED,
    module: ModuleName | None = None,
    kind: Word | None = None,
    error_code: Word | None = None,
    since: Since = None,
    until: Until = None,
) -> JobFilter:
    return JobFilter(
        state=JobState(state.value), module=module, kind=kind, error_code=error_code, since=since, until=until
    )


@router.get("/jobs", summary="List jobs", **requires(Scope.ADMIN))
async def list_jobs(
    db: DbHere, chosen: Annotated[JobFilter, Depends(_job_filter)], after: After = None, limit: PageSize = 50
) -> JobPage:
    """List jobs, failed ones by default."""
    async with db.read() as tx:
        if chosen.state is JobState.RUNNING:
            found, last = await list_running_jobs(tx, chosen), None
        else:
            found = await list_ended_jobs(tx, chosen, after=_parse_position(after) if after else None, limit=limit)
            last = _show_position(position_of(found[-1])) if len(found) == limit else None
    return JobPage(items=[JobView.model_validate(job) for job in found], next=last)


@router.post("/jobs/retry", summary="Retry failed jobs by filter", **requires(Scope.ADMIN))
async def retry_jobs(body: FailedJobs, caller: CurrentCaller, db: DbHere, queue: QueueHere) -> JobsRetried:
    """Retry up to `limit` failed jobs, those that failed first, with their attempts reset."""
    filters = body.filters()
    async with db.tx(actor=caller.name) as tx:
        until = filters.setdefault("until", tx.now)
        chosen = JobFilter(**filters)
        revived = await revive_failed_jobs(tx, queue, chosen, limit=body.limit)
        await audit.record(tx, caller, "job.retry_many", "jobs", count=len(revived), **chosen.shown())
    return JobsRetried(retried=len(revived), more=len(revived) == body.limit, until=until)


@router.get("/jobs/{job_id}", summary="Get a job with its history", **requires(Scope.ADMIN))
async def get_one_job(job_id: JobId, db: DbHere) -> JobWithHistory:
    """Get a job in any state, with its payload and its state changes."""
    async with db.read() as tx:
        job = await get_job(tx, job_id)
        history = await list_transitions(tx, JOB.name, job_id)
    shown = JobView.model_validate(job).model_dump()
    return JobWithHistory(
        **shown,
        timeout_seconds=job.timeout_seconds,
        payload=job.payload,
        history=[TransitionView.model_validate(move) for move in history],
    )


@router.post(
    "/jobs/{job_id}/retry", summary="Retry a job", status_code=status.HTTP_202_ACCEPTED, **requires(Scope.ADMIN)
)
async def retry_job(job_id: JobId, caller: CurrentCaller, db: DbHere, queue: QueueHere) -> JobView:
    """Retry a failed or cancelled job with its attempts reset. 409 in any other state."""
    async with db.tx(actor=caller.name) as tx:
        await queue.revive(tx, job_id)
        await audit.record(tx, caller, "job.retry", f"job:{job_id}")
        job = await get_job(tx, job_id)
    return JobView.model_validate(job)


def _show_position(position: JobPosition) -> str:
    at, job_id = position
    return f"{at.isoformat().replace('+00:00', 'Z')}{SEPARATOR}{job_id}"


def _parse_position(text: str) -> JobPosition:
    at, separator, job_id = text.partition(SEPARATOR)
    try:
        moment = datetime.fromisoformat(at)
        if separator and moment.tzinfo is not None:
            return moment.astimezone(UTC), job_id
    except (ValueError, OverflowError) as error:
        raise bad_cursor() from error
    raise bad_cursor()

"""Routes of the cluster for operators: its processes and its periodic tasks."""

from datetime import datetime
from typing import Annotated

from fastapi import Depends, Path, Request, status
from pydantic import BaseModel, ConfigDict, Field

from penstock.access import audit
from penstock.access.domain import Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.kernel.http.dependencies import DbHere
from penstock.kernel.http.fields import NO_CONTROLS
from penstock.kernel.processes import ProcessKind, list_processes
from penstock.kernel.scheduler import (
    PeriodicTaskReport,
    PeriodicTaskState,
    Scheduler,
    list_periodic_tasks,
    request_run,
)
from penstock.web.ops.params import ops_router

router = ops_router("cluster")

TaskName = Annotated[str, Path(min_length=1, max_length=255, pattern=NO_CONTROLS)]


async def _scheduler(request: Request) -> Scheduler:
    scheduler: Scheduler = request.app.state.scheduler
    return scheduler


SchedulerHere = Annotated[Scheduler, Depends(_scheduler)]


class ProcessView(BaseModel):
    """A process as of its last heartbeat."""

    model_config = ConfigDict(from_attributes=True)

    id: str = Field(description="The name of the process in leases, state changes and log lines.")
    kind: ProcessKind
    modules: list[str] = Field(description="The modules whose jobs it runs; the empty name is for jobs of no module.")
    version: str
    started_at: datetime
    seen_at: datetime
    alive: bool


class ProcessList(BaseModel):
    """The processes of the last day, latest heartbeat first, at most 200."""

    items: list[ProcessView]


class PeriodicTaskView(BaseModel):
    """A periodic task and its last run."""

    name: str
    state: PeriodicTaskState
    every_seconds: float | None = Field(description="Null if only another version knows the task.")
    due_at: datetime
    requested_at: datetime | None = Field(description="When an operator asked for the run that is due.")
    worker: str | None = Field(description="The process that runs it, or ran it last.")
    finished_at: datetime | None
    error: str | None = Field(description="Why its last run failed.")


class PeriodicTaskList(BaseModel):
    """All periodic tasks, by name."""

    items: list[PeriodicTaskView]


@router.get("/processes", summary="List processes", **requires(Scope.ADMIN))
async def list_all_processes(db: DbHere) -> ProcessList:
    """List the servers and workers of the cluster."""
    async with db.read() as tx:
        found = await list_processes(tx)
    return ProcessList(items=[ProcessView.model_validate(process) for process in found])


@router.get("/periodic-tasks", summary="List periodic tasks", **requires(Scope.ADMIN))
async def list_all_periodic_tasks(db: DbHere, scheduler: SchedulerHere) -> PeriodicTaskList:
    """List the periodic tasks with their last run and their next due time."""
    return PeriodicTaskList(items=[_view(task, scheduler) for task in await list_periodic_tasks(db)])


@router.post(
    "/periodic-tasks/{name}/run",
    summary="Run a periodic task now",
    status_code=status.HTTP_202_ACCEPTED,
    **requires(Scope.ADMIN),
)
async def run_periodic_task(
    name: TaskName, caller: CurrentCaller, db: DbHere, scheduler: SchedulerHere
) -> PeriodicTaskView:
    """Make a periodic task due now: one process of the cluster runs it within seconds. A running one is left alone."""
    async with db.tx(actor=caller.name) as tx:
        task = await request_run(tx, name)
        await audit.record(tx, caller, "periodic_task.run", f"periodic_task:{name}")
    return _view(task, scheduler)


def _view(task: PeriodicTaskReport, scheduler: Scheduler) -> PeriodicTaskView:
    return PeriodicTaskView(**vars(task), every_seconds=scheduler.intervals.get(task.name))

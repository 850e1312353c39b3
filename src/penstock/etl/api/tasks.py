"""Routes of tasks: list, get, cancel, retry and delete."""

from typing import Annotated, Any

import msgspec
from fastapi import Query, Request, Response, status
from pydantic import BaseModel, ConfigDict, Field

from penstock.access.domain import MAX_ID, Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.etl.api import actions
from penstock.etl.api import status as task_status
from penstock.etl.api.actions import MAX_TOTAL, TaskQuery
from penstock.etl.api.params import (
    DepsParam,
    Limit,
    Localizer,
    LocalizerParam,
    Offset,
    TaskId,
    error_responses,
    etl_router,
)
from penstock.etl.api.shapes import MovedTask, TaskList, TaskPage, TaskStatusView, next_offset, task_fields, task_view
from penstock.etl.deps import Deps
from penstock.etl.domain import Stage, Status
from penstock.etl.retry import RetryOptions
from penstock.kernel.blobs import JSON_TYPE
from penstock.kernel.http.fields import BadField
from penstock.kernel.http.problems import BadFields

router = etl_router()

MAX_IDS = 100
MAX_WAIT_SECONDS = 60  # below the usual timeouts of proxies
LONGEST_IDS = MAX_IDS * 24  # digits of an id, a comma and spaces


class Retry(BaseModel):
    """Options of a retry."""

    model_config = ConfigDict(extra="forbid")

    from_stage: Stage | None = Field(
        default=None,
        description="`mineru` runs OCR again; `postprocess` starts from the existing OCR result. "
        "Default: postprocess if there is an OCR result, else mineru.",
    )
    force: bool = Field(
        default=False,
        description="Retry a completed task too, and bypass the cache.",
    )
    reset_error: bool = Field(
        default=True, description="Accepted for older clients; a new run never keeps an old error."
    )


ProjectFilter = Annotated[int | None, Query(ge=0, le=MAX_ID, description="Only tasks of this project.")]
StatusFilter = Annotated[Status | None, Query(description="Only tasks with this status.")]
Ids = Annotated[
    str,
    Query(
        min_length=1,
        max_length=LONGEST_IDS,
        examples=["1,2,3"],
        description="At most 100 task ids, separated by commas.",
    ),
]
WAIT: dict[str, Any] = {
    "name": "wait",
    "in": "query",
    "required": False,
    "description": "Seconds to wait for the task to end; 0: respond at once.",
    "schema": {"type": "number", "minimum": 0, "maximum": MAX_WAIT_SECONDS, "default": 0, "title": "Wait"},
}
Force = Annotated[bool, Query(description="Cancel a running task too: its worker stops at its next step.")]


@router.get("/tasks", summary="List tasks", **requires(Scope.READ))
async def list_tasks(
    *,
    caller: CurrentCaller,
    deps: DepsParam,
    localize: LocalizerParam,
    project_id: ProjectFilter = None,
    status: StatusFilter = None,
    limit: Limit = 20,
    offset: Offset = 0,
) -> TaskPage:
    """The caller's tasks, newest first; an admin sees everyone's. Running tasks show their latest progress."""
    query = TaskQuery(project_id=project_id, status=status, limit=limit + 1, offset=offset)
    found, total = await actions.list_tasks(deps, caller, query)
    return TaskPage(
        tasks=[task_view(task, localize) for task in found[:limit]],
        total=min(total, MAX_TOTAL),
        total_is_exact=total <= MAX_TOTAL,
        limit=limit,
        offset=offset,
        next_offset=next_offset(found, limit=limit, offset=offset),
    )


@router.get("/tasks/batch", summary="Get several tasks by id", **requires(Scope.READ))
async def list_these_tasks(caller: CurrentCaller, deps: DepsParam, localize: LocalizerParam, task_ids: Ids) -> TaskList:
    """Tasks that do not exist or belong to others are left out."""
    ids = _parse_ids(task_ids)
    found = {task.id: task for task in await actions.list_by_ids(deps, caller, ids)}
    return TaskList(
        tasks=[task_view(found[task_id], localize) for task_id in ids if task_id in found], total=len(found)
    )


def _waitable() -> dict[str, Any]:
    given = requires(Scope.READ)
    return {**given, "openapi_extra": {**given["openapi_extra"], "parameters": [WAIT]}}


@router.get("/tasks/{task_id}", summary="Get a task", response_model=TaskStatusView, **_waitable())
async def get_task(request: Request, task_id: TaskId) -> Response:
    """Its status, progress and result. With `wait`, the response comes when the task has ended, or after that time."""
    # Clients poll it, and FastAPI's parameters, dependencies and response models would cost more than all the rest.
    deps: Deps = request.app.state.etl
    task = await task_status.wait_for_end(deps, request.state.caller, task_id, seconds=_wait_seconds(request))
    position = await task_status.find_position(deps, task)
    shown = {**task_fields(task, Localizer(request)), "queue_position": position}
    return Response(msgspec.json.encode(shown), media_type=JSON_TYPE)


@router.post(
    "/tasks/{task_id}/cancel",
    summary="Cancel a task",
    responses=error_responses({409: "It is running, or has ended."}),
    **requires(Scope.WRITE),
)
async def cancel_task(
    task_id: TaskId, caller: CurrentCaller, deps: DepsParam, localize: LocalizerParam, force: Force = False
) -> MovedTask:
    """Cancels a pending task. A running one needs `force`, else 409."""
    end = actions.abort_task if force else actions.cancel_task
    task = await end(deps, caller, task_id)
    return MovedTask(**task_fields(task, localize), message=localize("Task cancelled.", "任务已取消。"))


@router.post(
    "/tasks/{task_id}/retry",
    summary="Retry a task",
    responses=error_responses({409: "It is active, or completed without force, or has no OCR result."}),
    **requires(Scope.WRITE),
)
async def retry_task(
    task_id: TaskId, caller: CurrentCaller, deps: DepsParam, localize: LocalizerParam, body: Retry | None = None
) -> MovedTask:
    """Retries a failed or cancelled task, or with `force` a completed one. 409 if it is active."""
    given = body or Retry()
    options = RetryOptions(from_stage=given.from_stage, force=given.force)
    task = await actions.retry_task(deps, caller, task_id, options)
    return MovedTask(**task_fields(task, localize), message=localize("Task will be retried.", "任务将重试。"))


@router.delete(
    "/tasks/{task_id}",
    status_code=status.HTTP_204_NO_CONTENT,
    summary="Delete a task with its document and results",
    responses=error_responses({409: "It is active: cancel it first."}),
    **requires(Scope.WRITE),
)
async def delete_task(task_id: TaskId, caller: CurrentCaller, deps: DepsParam) -> None:
    """Deletes the task, its artifacts and results; the audit log keeps an entry."""
    await actions.delete_task(deps, caller, task_id)


def _wait_seconds(request: Request) -> float:
    given = request.query_params.get("wait", "0") if request.scope["query_string"] else "0"
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= MAX_WAIT_SECONDS:  # also if it is not a number
        reason, reason_zh = f"Expected 0 to {MAX_WAIT_SECONDS} seconds", f"应为 0 到 {MAX_WAIT_SECONDS} 秒"
        raise BadFields(errors=[BadField(field="wait", reason=reason, reason_zh=reason_zh)])
    return seconds


def _parse_ids(text: str) -> list[int]:
    """`1,2,3` as ids, without duplicates."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and 1 <= int(part) <= MAX_ID for part in parts):
        raise _bad_ids("Expected task ids separated by commas", "应为以逗号分隔的任务编号")
    ids = list(dict.fromkeys(map(int, parts)))
    if len(ids) > MAX_IDS:
        raise _bad_ids(f"At most {MAX_IDS} tasks per request", f"一次最多查询 {MAX_IDS} 个任务")
    return ids


def _bad_ids(reason: str, reason_zh: str) -> BadFields:
    return BadFields(errors=[BadField(field="task_ids", reason=reason, reason_zh=reason_zh)])

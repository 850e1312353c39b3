"""Looking at tasks, taking them back, trying them again, forgetting them."""

from typing import Annotated

from fastapi import Query, status
from pydantic import BaseModel, ConfigDict, Field

from penstock.access.domain import MOST_ID, Scope
from penstock.access.guard import CurrentCaller, requires
from penstock.etl import remove, steer, track
from penstock.etl.api.parts import Limit, Offset, TaskId, ToolsHere, WordsHere, new_router, refusals
from penstock.etl.api.shapes import MovedTask, TaskList, TaskPage, TaskView, next_offset, shown_task, task_view
from penstock.etl.domain import Stage, Status
from penstock.etl.steer import Again
from penstock.etl.track import Wanted
from penstock.kernel.http.fields import BadField
from penstock.kernel.http.problems import BadFields

router = new_router()

MOST_IDS = 100
LONGEST_IDS = MOST_IDS * 24  # a number, a comma, and some room to breathe


class Retry(BaseModel):
    """How to try a task again."""

    model_config = ConfigDict(extra="forbid")

    from_stage: Stage | None = Field(
        default=None,
        description="`mineru` reads the document again; `postprocess` begins with what was read, and asks no OCR. "
        "Without it: postprocess where something was read, else mineru.",
    )
    force: bool = Field(
        default=False,
        description="Try also a completed task again, and make everything anew, whatever was made of the same before.",
    )
    reset_error: bool = Field(default=True, description="Taken for older clients: a new run never keeps an old error.")


ProjectAsked = Annotated[int | None, Query(ge=0, le=MOST_ID, description="Only tasks of this project.")]
StatusAsked = Annotated[Status | None, Query(description="Only tasks with this status.")]
Ids = Annotated[
    str, Query(min_length=1, max_length=LONGEST_IDS, examples=["1,2,3"], description="At most 100 numbers.")
]
Force = Annotated[bool, Query(description="Cancel a running task, too: its worker stops at its next step.")]


@router.get("/tasks", summary="Tasks, the newest first", **requires(Scope.READ))
async def list_tasks(
    *,
    caller: CurrentCaller,
    tools: ToolsHere,
    words: WordsHere,
    project_id: ProjectAsked = None,
    status: StatusAsked = None,
    limit: Limit = 20,
    offset: Offset = 0,
) -> TaskPage:
    """The caller's tasks; an admin sees everyone's. What runs is shown as its worker last told of it."""
    wanted = Wanted(project_id=project_id, status=status, limit=limit + 1, offset=offset)
    found = await track.list_tasks(tools, caller, wanted)
    return TaskPage(
        tasks=[task_view(task, words) for task in found[:limit]],
        limit=limit,
        offset=offset,
        next_offset=next_offset(found, limit=limit, offset=offset),
    )


@router.get("/tasks/batch", summary="Several tasks by their numbers", **requires(Scope.READ))
async def list_these_tasks(caller: CurrentCaller, tools: ToolsHere, words: WordsHere, task_ids: Ids) -> TaskList:
    """Those that exist and are the caller's; others are left out without a word."""
    ids = _numbers(task_ids)
    found = {task.id: task for task in await track.list_these(tools, caller, ids)}
    return TaskList(tasks=[task_view(found[task_id], words) for task_id in ids if task_id in found])


@router.get("/tasks/{task_id}", summary="One task", **requires(Scope.READ))
async def get_task(task_id: TaskId, caller: CurrentCaller, tools: ToolsHere, words: WordsHere) -> TaskView:
    """How far it is, and what became of it."""
    return task_view(await track.get_task(tools, caller, task_id), words)


@router.post(
    "/tasks/{task_id}/cancel",
    summary="Take a task back",
    responses=refusals({409: "It runs, or is over."}),
    **requires(Scope.WRITE),
)
async def cancel_task(
    task_id: TaskId, caller: CurrentCaller, tools: ToolsHere, words: WordsHere, force: Force = False
) -> MovedTask:
    """Only a task that waits can be cancelled; a running one (409) with `force`."""
    move = steer.abort if force else steer.cancel
    task = await move(tools, caller, task_id)
    return MovedTask(**shown_task(task, words), message=words("The task is cancelled.", "任务已取消。"))


@router.post(
    "/tasks/{task_id}/retry",
    summary="Try a task again",
    responses=refusals({409: "It is under way, or completed and not forced, or was never read."}),
    **requires(Scope.WRITE),
)
async def retry_task(
    task_id: TaskId, caller: CurrentCaller, tools: ToolsHere, words: WordsHere, retry: Retry | None = None
) -> MovedTask:
    """A failed or cancelled task; a completed one with `force`. A running one is refused (409)."""
    wanted = retry or Retry()
    task = await steer.retry(tools, caller, task_id, Again(from_stage=wanted.from_stage, force=wanted.force))
    return MovedTask(**shown_task(task, words), message=words("The task is tried again.", "任务将重试。"))


@router.delete(
    "/tasks/{task_id}",
    status_code=status.HTTP_204_NO_CONTENT,
    summary="Forget a task with its document and results",
    responses=refusals({409: "It is under way: cancel it first."}),
    **requires(Scope.WRITE),
)
async def delete_task(task_id: TaskId, caller: CurrentCaller, tools: ToolsHere) -> None:
    """The row, the artifacts and the results go; the audit log keeps that there was one."""
    await remove.delete_task(tools, caller, task_id)


def _numbers(text: str) -> list[int]:
    """`1,2,3` as numbers, each once."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() and 1 <= int(word) <= MOST_ID for word in words):
        raise _bad_ids("Numbers of tasks, with commas between them, are wanted", "应为以逗号分隔的任务编号")
    ids = list(dict.fromkeys(map(int, words)))
    if len(ids) > MOST_IDS:
        raise _bad_ids(f"At most {MOST_IDS} tasks can be asked for at once", f"一次最多查询 {MOST_IDS} 个任务")
    return ids


def _bad_ids(reason: str, reason_zh: str) -> BadFields:
    return BadFields(errors=[BadField(field="task_ids", reason=reason, reason_zh=reason_zh)])

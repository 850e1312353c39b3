"""Status of tasks, single or in lists, and the keys of their artifacts.

Clients poll this while a task runs: it costs one read of run state and one of the row, by primary key. Run state is
read first; the row is used if run state has no entry or is unavailable. Lists come from the rows, newest first, with
the run state of active tasks applied. Rows do not distinguish the running statuses, so a list filtered by one of them
scans all active tasks, of which there are at most ETL_QUEUE_SIZE.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.access.domain import Caller
from penstock.etl import lifecycle, papers, runs
from penstock.etl.deps import Deps
from penstock.etl.domain import FINAL, EtlTask, Status
from penstock.etl.errors import ArtifactNotReady
from penstock.etl.store import tasks
from penstock.etl.store.tasks import TaskFilter

PAGE = 200  # rows per query of a scan

ArtifactName = Literal["result", "markdown", "pages", "grounding"]


@dataclass(frozen=True, kw_only=True)
class TaskQuery:
    """Which tasks to list; None means any."""

    project_id: int | None = None
    status: Status | None = None
    limit: int = 100
    offset: int = 0


async def get_task(deps: Deps, caller: Caller, task_id: int) -> EtlTask:
    """The current state of a task, or `EtlTaskNotFound`. The row decides who owns it and whether it has ended.

    Run state of another database's task, which shares the Redis prefix by mistake, is not shown.
    """
    shown = await runs.look(deps, task_id)
    async with deps.db.read() as tx:
        return runs.laid_over(await lifecycle.get_owned_task(tx, caller, task_id), shown)


async def list_tasks(deps: Deps, caller: Caller, query: TaskQuery) -> list[EtlTask]:
    """A page of the caller's tasks, newest first; an admin sees everyone's."""
    owner = None if caller.is_admin else caller.user_id
    if query.status is None or query.status in FINAL:
        chosen = TaskFilter(user_id=owner, project_id=query.project_id, status=query.status)
        async with deps.db.read() as tx:
            rows = await tasks.list_tasks(tx, chosen, offset=query.offset, limit=query.limit)
        return await _with_run_state(deps, rows)
    active = TaskFilter(user_id=owner, project_id=query.project_id, status=Status.PENDING)
    found: list[EtlTask] = []
    async for page in _scan(deps, active):
        found += [task for task in page if task.status is query.status]
        if len(found) >= query.offset + query.limit:
            break
    return found[query.offset : query.offset + query.limit]


async def list_by_ids(deps: Deps, caller: Caller, ids: Sequence[int]) -> list[EtlTask]:
    """The tasks with these ids that exist and that the caller can access, newest first."""
    async with deps.db.read() as tx:
        rows = await tasks.list_by_ids(tx, ids)
    return await _with_run_state(deps, [row for row in rows if lifecycle.can_access(caller, row)])


async def artifact_key(deps: Deps, caller: Caller, task_id: int, what: ArtifactName) -> str:
    """The blob key of an artifact, or `ArtifactNotReady`. Markdown and pages exist as soon as OCR is done."""
    task = await get_task(deps, caller, task_id)
    if what in {"markdown", "pages"}:
        markdown_key: str | None = task.metadata.get("artifact_mineru_markdown_key")
        key = papers.pages_key(task) if markdown_key and what == "pages" else markdown_key
    elif task.status is Status.COMPLETED:
        key = papers.result_key(task) if what == "result" else papers.grounding_key(task)
    else:
        key = None
    if key is None:
        raise ArtifactNotReady(task_id=task_id, status=task.status.value, what=what)
    return key


async def _scan(deps: Deps, chosen: TaskFilter) -> AsyncIterator[list[EtlTask]]:
    """Pages of the matching tasks, with their run state applied."""
    before: int | None = None
    while True:
        async with deps.db.read() as tx:
            rows = await tasks.list_before(tx, chosen, before=before, limit=PAGE)
        yield await _with_run_state(deps, rows)
        if len(rows) < PAGE:
            return
        before = rows[-1].id


async def _with_run_state(deps: Deps, rows: Sequence[EtlTask]) -> list[EtlTask]:
    active = [row.id for row in rows if not row.is_final]
    shown = await runs.list_these(deps, active) if active else {}
    return [runs.laid_over(row, shown.get(row.id)) for row in rows]

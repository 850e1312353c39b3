"""Track: how far a task is. Run state is asked first; the row has to do when it knows nothing, or is away.

Lists come from the rows, newest first, with run state laid over those that are under way. Rows do not know which of
these are being read and which shaped, so a list by such a status walks through the ones that are under way, of which
there are never more than ETL_QUEUE_SIZE.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.access.domain import Caller
from penstock.etl import moves, papers, runs
from penstock.etl.deps import Deps
from penstock.etl.domain import FINAL, EtlTask, Status
from penstock.etl.errors import NotThereYet
from penstock.etl.store import tasks
from penstock.etl.store.tasks import Listing

PAGE = 200  # rows of one step of a walk

Paper = Literal["result", "markdown", "pages", "grounding"]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which tasks a caller wants to see; None is any."""

    project_id: int | None = None
    status: Status | None = None
    limit: int = 100
    offset: int = 0


async def get_task(tools: Deps, caller: Caller, task_id: int) -> EtlTask:
    """A task as it is now, or `EtlTaskNotFound`. The row says whose it is, and may know better that it is over."""
    shown = await runs.look(tools, task_id)
    async with tools.db.read() as tx:
        return runs.laid_over(await moves.get_own(tx, caller, task_id), shown)


async def list_tasks(tools: Deps, caller: Caller, wanted: Wanted) -> list[EtlTask]:
    """A page of the caller's tasks, newest first; an admin's are everyone's."""
    whose = None if caller.is_admin else caller.user_id
    listing = Listing(user_id=whose, project_id=wanted.project_id, status=wanted.status)
    if wanted.status is None or wanted.status in FINAL:
        async with tools.db.read() as tx:
            rows = await tasks.list_tasks(tx, listing, offset=wanted.offset, limit=wanted.limit)
        return await _laid_over(tools, rows)
    under_way = Listing(user_id=whose, project_id=wanted.project_id, status=Status.PENDING)
    found: list[EtlTask] = []
    async for page in _walk(tools, under_way):
        found += [task for task in page if task.status is wanted.status]
        if len(found) >= wanted.offset + wanted.limit:
            break
    return found[wanted.offset : wanted.offset + wanted.limit]


async def list_these(tools: Deps, caller: Caller, ids: Sequence[int]) -> list[EtlTask]:
    """Those of these tasks that exist and that the caller may see, newest first."""
    async with tools.db.read() as tx:
        rows = await tasks.list_these(tx, ids)
    return await _laid_over(tools, [row for row in rows if moves.may_see(caller, row)])


async def key_of(tools: Deps, caller: Caller, task_id: int, what: Paper) -> str:
    """Where a paper of a task lies, or `NotThereYet`. Markdown and pages are there as soon as the document is read."""
    task = await get_task(tools, caller, task_id)
    if what in {"markdown", "pages"}:
        read: str | None = task.metadata.get("artifact_mineru_markdown_key")
        key = papers.pages_key(task) if read and what == "pages" else read
    elif task.status is Status.COMPLETED:
        key = papers.result_key(task) if what == "result" else papers.grounding_key(task)
    else:
        key = None
    if key is None:
        raise NotThereYet(task_id=task_id, status=task.status.value, what=what)
    return key


async def _walk(tools: Deps, listing: Listing) -> AsyncIterator[list[EtlTask]]:
    """Pages of tasks that are under way, as run state has them."""
    before: int | None = None
    while True:
        async with tools.db.read() as tx:
            rows = await tasks.list_before(tx, listing, before=before, limit=PAGE)
        yield await _laid_over(tools, rows)
        if len(rows) < PAGE:
            return
        before = rows[-1].id


async def _laid_over(tools: Deps, rows: Sequence[EtlTask]) -> list[EtlTask]:
    under_way = [row.id for row in rows if not row.is_over]
    shown = await runs.list_these(tools, under_way) if under_way else {}
    return [runs.laid_over(row, shown.get(row.id)) for row in rows]

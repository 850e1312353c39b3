"""The feed of a project over HTTP: what changed, in order, so that nobody has to ask about every task."""

from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Response

from penstock.access.domain import Scope
from penstock.access.door import open_to
from penstock.kernel.http.envelope import Said, SayHere
from penstock.tasks import change_feed
from penstock.tasks.api.params import HolderHere, ProjectHere, ToolsHere, new_router
from penstock.tasks.api.views import moment
from penstock.tasks.store.feed import Line
from penstock.tasks.change_feed import Asked

router = new_router()

MOST_VERSION = 2**62
After = Annotated[int, Query(ge=0, le=MOST_VERSION, description="The `next` of the answer before; 0 for everything.")]
Limit = Annotated[int, Query(ge=1, le=1000)]
Wait = Annotated[float, Query(ge=0, allow_inf_nan=False, description="Seconds to wait for the next line.")]
Whose = Annotated[Literal["me"] | None, Query(description="`me`: only what happened to tasks in your hands.")]


async def _asked(
    project_id: ProjectHere, caller: HolderHere, after: After = 0, limit: Limit = 100, holder: Whose = None
) -> Asked:
    return Asked(project_id=project_id, after=after, limit=limit, holder=caller.name if holder else None)


@router.get(
    "/projects/{project_id}/changes",
    summary="What changed in a project, in order",
    **open_to(Scope.READ, bound=True),
)
async def list_changes(
    asked: Annotated[Asked, Depends(_asked)], tools: ToolsHere, say: SayHere, response: Response, wait: Wait = 0
) -> Said[dict[str, Any]]:
    page = await watch.watch(tools, asked, wait_seconds=min(wait, tools.rules.wait_seconds))
    response.headers["Cache-Control"] = "no-store"
    lines = [_shown(line) for line in page.lines]
    data = {"changes": lines, "next": page.next, "latest": page.latest, "missed": page.missed}
    return say(data, f"{len(lines)} changes.", f"{len(lines)} 条变更。")


def _shown(line: Line) -> dict[str, Any]:
    return {
        "version": line.version,
        "task_id": line.task_id,
        "queue_id": line.queue_id or None,
        "kind": line.kind,
        "status": line.status,
        "holder": line.holder,
        "by": line.by,
        "at": moment(line.at),
    }

"""Change feed route: the changes of a project in commit order, by long poll, instead of polling every task."""

from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Response

from penstock.access.domain import Scope
from penstock.access.guard import requires
from penstock.kernel.http.envelope import Said, SayHere
from penstock.tasks import change_feed
from penstock.tasks.api.params import DepsHere, HolderHere, ProjectHere, new_router
from penstock.tasks.api.views import format_time
from penstock.tasks.change_feed import FeedQuery
from penstock.tasks.store.feed import FeedEntry

router = new_router()

MAX_VERSION = 2**62
After = Annotated[
    int, Query(ge=0, le=MAX_VERSION, description="The `next` of the previous response; 0 for all entries.")
]
Limit = Annotated[int, Query(ge=1, le=1000)]
Wait = Annotated[float, Query(ge=0, allow_inf_nan=False, description="Seconds to wait for the next entry.")]
HolderFilter = Annotated[Literal["me"] | None, Query(description="`me`: only changes of tasks that this client held.")]


async def _query(
    project_id: ProjectHere, caller: HolderHere, after: After = 0, limit: Limit = 100, holder: HolderFilter = None
) -> FeedQuery:
    return FeedQuery(project_id=project_id, after=after, limit=limit, holder=caller.name if holder else None)


@router.get(
    "/projects/{project_id}/changes",
    summary="Change feed of a project",
    **requires(Scope.READ, bound=True),
)
async def list_changes(
    query: Annotated[FeedQuery, Depends(_query)], deps: DepsHere, say: SayHere, response: Response, wait: Wait = 0
) -> Said[dict[str, Any]]:
    """Entries after a version, oldest first. `next` is the version to send with the next request.

    `missed` is true if entries after the requested version may have been deleted: read the tasks again.
    """
    page = await change_feed.wait_for_changes(deps, query, wait_seconds=min(wait, deps.config.wait_seconds))
    response.headers["Cache-Control"] = "no-store"
    changes = [_entry_view(entry) for entry in page.entries]
    data = {"changes": changes, "next": page.next, "latest": page.latest, "missed": page.missed}
    return say(data, f"{len(changes)} changes.", f"{len(changes)} 条变更。")


def _entry_view(entry: FeedEntry) -> dict[str, Any]:
    return {
        "version": entry.version,
        "task_id": entry.task_id,
        "queue_id": entry.queue_id or None,
        "kind": entry.kind,
        "status": entry.status,
        "holder": entry.holder,
        "by": entry.by,
        "at": format_time(entry.at),
    }

"""Change feed route: the changes of a project in commit order, by long poll, instead of polling every task.

A waiting request is notified when something changes in the project, and also polls once a second. Waiting requests
coalesce the query of the project's version, so a thousand cost little more than one. None holds a transaction.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Response

from penstock.access.domain import Scope
from penstock.access.guard import requires
from penstock.kernel.http.envelope import EnvelopeRoute, Said, SayHere
from penstock.tasks import change_feed
from penstock.tasks.api.params import DepsHere, HolderHere, ProjectHere, new_router
from penstock.tasks.api.views import format_time
from penstock.tasks.change_feed import FeedPage, FeedPosition, FeedQuery
from penstock.tasks.deps import Deps
from penstock.tasks.lifecycle import feed_channel
from penstock.tasks.store.feed import FeedEntry

router = new_router(EnvelopeRoute)

MAX_VERSION = 2**62
POLL_SECONDS = 1.0  # in case a notification is lost
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
    page = await _wait_for_changes(deps, query, wait_seconds=min(wait, deps.config.wait_seconds))
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


async def _wait_for_changes(deps: Deps, query: FeedQuery, *, wait_seconds: float) -> FeedPage:
    """Entries of the feed; with `wait_seconds`, waits until there is one or the time is over."""
    deadline = deps.db.clock.now() + timedelta(seconds=wait_seconds)
    position = await _read_position(deps, query.project_id)
    page = await _read_page(deps, query, position)
    if page.entries or page.missed or wait_seconds <= 0:
        return page
    listener = deps.db.wakeups.listen([feed_channel(position.project_pk)])
    try:
        while True:  # read again after subscribing: a change in between was not notified
            page = await _read_page(deps, replace(query, after=page.next), await _read_position(deps, query.project_id))
            left = (deadline - deps.db.clock.now()).total_seconds()
            if page.entries or page.missed or left <= 0:
                return page
            if page.next == page.latest:
                await listener.wait(seconds=min(left, POLL_SECONDS))
    finally:
        deps.db.wakeups.unlisten(listener)


async def _read_position(deps: Deps, project_id: str) -> FeedPosition:
    async def read(requests: Sequence[None]) -> Sequence[FeedPosition]:
        async with deps.db.read() as tx:
            return [await change_feed.read_position(tx, project_id)] * len(requests)

    position: FeedPosition = await deps.coalescer.submit(("feed", project_id), None, read)
    return position


async def _read_page(deps: Deps, query: FeedQuery, position: FeedPosition) -> FeedPage:
    page = change_feed.page_at_end(query, position)
    if page is not None:
        return page
    async with deps.db.read() as tx:
        return await change_feed.read_page(tx, query, position)

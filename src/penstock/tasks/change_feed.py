"""Change feed: the changes of a project in commit order, resumed from any version, with long polling.

A holder learns here of edits, resets, releases and deletions of its tasks. A reader whose position is older than the
retained entries learns that entries were deleted (`missed`). A waiting request is notified when something changes in
the project, and also polls once a second. Waiting requests coalesce the query of the project's version, so a thousand
cost little more than one. No transaction stays open.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from penstock.tasks.deps import Deps
from penstock.tasks.lifecycle import feed_channel
from penstock.tasks.store import feed, projects
from penstock.tasks.store.feed import FeedEntry

POLL_SECONDS = 1.0  # in case a notification is lost
MAX_SCANNED = 10_000  # entries that one query scans for those of one holder


@dataclass(frozen=True, kw_only=True)
class FeedQuery:
    """Which entries: after which version, and optionally only of tasks that one client held."""

    project_id: str
    after: int
    limit: int
    holder: str | None = None


@dataclass(frozen=True, kw_only=True)
class FeedPage:
    """Entries, and how far they go. `missed`: entries after the requested version may have been deleted."""

    entries: Sequence[FeedEntry]
    next: int
    latest: int
    missed: bool


@dataclass(frozen=True, kw_only=True)
class FeedPosition:
    """The latest version of a project."""

    project_pk: str
    version: int


async def wait_for_changes(deps: Deps, query: FeedQuery, *, wait_seconds: float) -> FeedPage:
    """Entries of the feed; with `wait_seconds`, waits until there is one or the time is over."""
    deadline = deps.db.clock.now() + timedelta(seconds=wait_seconds)
    position = await _position(deps, query.project_id)
    page = await _read(deps, query, position)
    if page.entries or page.missed or wait_seconds <= 0:
        return page
    listener = deps.db.wakeups.listen([feed_channel(position.project_pk)])
    try:
        while True:  # read again after subscribing: a change in between was not notified
            page = await _read(deps, replace(query, after=page.next), await _position(deps, query.project_id))
            left = (deadline - deps.db.clock.now()).total_seconds()
            if page.entries or page.missed or left <= 0:
                return page
            if page.next == page.latest:
                await listener.wait(seconds=min(left, POLL_SECONDS))
    finally:
        deps.db.wakeups.unlisten(listener)


async def _position(deps: Deps, project_id: str) -> FeedPosition:
    position: FeedPosition = await deps.coalescer.submit(
        ("feed", project_id), None, partial(_read_position, deps, project_id)
    )
    return position


async def _read_position(deps: Deps, project_id: str, requests: Sequence[None]) -> Sequence[FeedPosition]:
    async with deps.db.read() as tx:
        project = await projects.get_project(tx, project_id)
    return [FeedPosition(project_pk=project.id, version=project.version)] * len(requests)


async def _read(deps: Deps, query: FeedQuery, position: FeedPosition) -> FeedPage:
    """The entries after a version, up to the given position of the project."""
    if query.after >= position.version:  # a version beyond ours belongs to a deleted project with the same id
        return FeedPage(
            entries=(), next=position.version, latest=position.version, missed=query.after > position.version
        )
    upto = position.version if query.holder is None else min(position.version, query.after + MAX_SCANNED)
    async with deps.db.read() as tx:
        entries = await feed.list_changes(
            tx, position.project_pk, after=query.after, upto=upto, limit=query.limit, holder=query.holder
        )
        oldest = await feed.find_oldest_version(
            tx, position.project_pk
        )  # last: entries that it says exist existed before
    last = entries[-1].version if len(entries) == query.limit else upto
    missed = oldest is None or oldest > query.after + 1
    return FeedPage(entries=entries, next=last, latest=position.version, missed=missed)

"""Change feed: the changes of a project in commit order, resumed from any version.

A holder learns here of edits, resets, releases and deletions of its tasks. A reader whose position is older than the
retained entries learns that entries were deleted (`missed`). `api/feed.py` waits for changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.kernel.db import Tx
from penstock.tasks.store import feed, projects
from penstock.tasks.store.feed import FeedEntry

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


async def read_position(tx: Tx, project_id: str) -> FeedPosition:
    """The latest version of a project. Raises `ProjectNotFound`."""
    project = await projects.get_project(tx, project_id)
    return FeedPosition(project_pk=project.id, version=project.version)


def page_at_end(query: FeedQuery, position: FeedPosition) -> FeedPage | None:
    """The empty page of a query that is up to date; None if there may be entries.

    A version beyond ours belongs to a deleted project with the same id: entries were missed.
    """
    if query.after < position.version:
        return None
    missed = query.after > position.version
    return FeedPage(entries=(), next=position.version, latest=position.version, missed=missed)


async def read_page(tx: Tx, query: FeedQuery, position: FeedPosition) -> FeedPage:
    """The entries after a version, up to the given position of the project."""
    upto = position.version if query.holder is None else min(position.version, query.after + MAX_SCANNED)
    entries = await feed.list_changes(
        tx, position.project_pk, after=query.after, upto=upto, limit=query.limit, holder=query.holder
    )
    oldest = await feed.find_oldest_version(tx, position.project_pk)  # last: entries that it says exist existed before
    last = entries[-1].version if len(entries) == query.limit else upto
    missed = oldest is None or oldest > query.after + 1
    return FeedPage(entries=entries, next=last, latest=position.version, missed=missed)

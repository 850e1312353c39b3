"""Watching a project: the lines of its feed after a number, and waiting for the next one.

Those who wait look when something changed in the project, and once a second by themselves. They share the look at the
project's number, so a thousand who wait cost little more than one. Nothing stays open in the database meanwhile.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from penstock.tasks.deps import Deps
from penstock.tasks.lifecycle import feed_channel
from penstock.tasks.store import feed, projects
from penstock.tasks.store.feed import Line

LOOK_AGAIN_SECONDS = 1.0  # should the bell be lost
MOST_WALKED = 10_000  # lines that one look passes over in search of those about one holder


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Which lines are wanted: after which number, and about whose tasks, if not everybody's."""

    project_id: str
    after: int
    limit: int
    holder: str | None = None


@dataclass(frozen=True, kw_only=True)
class Page:
    """Lines, and how far they go. `missed` says that lines after the number asked for may be gone."""

    lines: Sequence[Line]
    next: int
    latest: int
    missed: bool


@dataclass(frozen=True, kw_only=True)
class Stand:
    """How far the feed of a project has come."""

    project_pk: str
    version: int


async def watch(tools: Deps, asked: Asked, *, wait_seconds: float) -> Page:
    """Lines of the feed; with a wait, not before there is one or the time is over."""
    deadline = tools.db.clock.now() + timedelta(seconds=wait_seconds)
    stand = await _stand(tools, asked.project_id)
    page = await _read(tools, asked, stand)
    if page.lines or page.missed or wait_seconds <= 0:
        return page
    ear = tools.db.wakeups.listen([feed_channel(stand.project_pk)])
    try:
        while True:  # one more look after the ear is there: what came in between rang no bell
            page = await _read(tools, replace(asked, after=page.next), await _stand(tools, asked.project_id))
            left = (deadline - tools.db.clock.now()).total_seconds()
            if page.lines or page.missed or left <= 0:
                return page
            if page.next == page.latest:
                await ear.wait(seconds=min(left, LOOK_AGAIN_SECONDS))
    finally:
        tools.db.wakeups.forget(ear)


async def _stand(tools: Deps, project_id: str) -> Stand:
    stand: Stand = await tools.trips.ask(("feed", project_id), None, partial(_look, tools, project_id))
    return stand


async def _look(tools: Deps, project_id: str, wishes: Sequence[None]) -> Sequence[Stand]:
    async with tools.db.read() as tx:
        project = await projects.get_project(tx, project_id)
    return [Stand(project_pk=project.id, version=project.version)] * len(wishes)


async def _read(tools: Deps, asked: Asked, stand: Stand) -> Page:
    """The lines after a number, as far as the project had come when we looked."""
    if asked.after >= stand.version:  # a number that was never given is of another project of that name, now gone
        return Page(lines=(), next=stand.version, latest=stand.version, missed=asked.after > stand.version)
    upto = stand.version if asked.holder is None else min(stand.version, asked.after + MOST_WALKED)
    async with tools.db.read() as tx:
        lines = await feed.list_changes(
            tx, stand.project_pk, after=asked.after, upto=upto, limit=asked.limit, holder=asked.holder
        )
        oldest = await feed.oldest_version(tx, stand.project_pk)  # last: what it says to be kept was kept before
    last = lines[-1].version if len(lines) == asked.limit else upto
    missed = oldest is None or oldest > asked.after + 1
    return Page(lines=lines, next=last, latest=stand.version, missed=missed)

"""Reconciling rows with run state: both are walked through in pages, and runs without progress are found.

Each turn reads one page of active rows and one page of each running status of run state, and the next turn continues
there. What cannot be reconciled does not block the rest: after many failures in a page the turn ends, and the next one
continues behind them. Another process starts from the beginning.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from penstock.kernel.runstate import RunSnapshot, RunState

log = logging.getLogger(__name__)

PAGE = 200
MAX_FAILURES = 10  # per page: then something larger is wrong
STALE_MARGIN = timedelta(seconds=30)  # for the worker itself to report the timeout
# How long a stale run is watched before it is ended. After an outage of Redis every running task looks old until its
# worker reports the next step.
WATCHED = timedelta(seconds=20)


@dataclass(frozen=True, kw_only=True)
class ReconcileStep:
    """The work on one row or snapshot. The next turn may continue after `position`: its id, or its key."""

    name: str
    position: int | str
    work: Callable[[], Awaitable[None]]


class ReconciledRows(Protocol):
    """What a module does with its rows and their snapshots."""

    key_prefix: str  # of its snapshots

    async def check_rows(self, *, after: int, limit: int) -> Sequence[ReconcileStep]:
        """One step for each of the next active rows, by id."""
        ...

    async def check_snapshots(self, snapshots: Sequence[RunSnapshot]) -> Sequence[ReconcileStep]:
        """One step for each of these snapshots that needs one."""
        ...


@dataclass(frozen=True, kw_only=True)
class _Suspect:
    """A run without progress: its order, since when, and in which walk through which status it was seen."""

    order: int
    since: datetime
    status: str
    walk: int


class StaleWatch:
    """Finds runs that nobody updates, not even while they are watched."""

    def __init__(self, *, timeout_seconds: float) -> None:
        self._timeout = timedelta(seconds=timeout_seconds)
        self._suspects: dict[str, _Suspect] = {}  # by key
        self._walks: dict[str, int] = {}

    def is_stale(self, snapshot: RunSnapshot, *, updated_at: datetime, now: datetime) -> bool:
        """Whether a run has been silent for the timeout and its margin, and while it was watched."""
        silence = now - updated_at - self._timeout
        if silence <= timedelta():
            self.clear(snapshot.key)
            return False
        known, walk = self._suspects.get(snapshot.key), self._walks.get(snapshot.status, 0)
        since = known.since if known is not None and known.order == snapshot.order else now
        self._suspects[snapshot.key] = _Suspect(order=snapshot.order, since=since, status=snapshot.status, walk=walk)
        return silence > STALE_MARGIN and now - since >= WATCHED

    def clear(self, key: str) -> None:
        """Stop watching a run: it has a reason for its silence."""
        self._suspects.pop(key, None)

    def end_walk(self, status: str) -> None:
        """Drop suspects that were not seen on the whole walk: they have ended or progressed."""
        walk = self._walks.get(status, 0)
        kept = {key: one for key, one in self._suspects.items() if one.status != status or one.walk == walk}
        self._suspects, self._walks[status] = kept, walk + 1


class Reconciler:
    """Walks through the active rows of a module and the snapshots of its running statuses."""

    def __init__(self, runs: RunState, rows: ReconciledRows, watch: StaleWatch, *, statuses: Sequence[str]) -> None:
        self._runs = runs
        self._rows = rows
        self._watch = watch
        self._statuses = statuses
        self._row = 0
        self._keys: dict[str, str] = {}

    async def run(self) -> None:
        """Run one turn."""
        steps = await self._rows.check_rows(after=self._row, limit=PAGE)
        last = int(steps[-1].position) if len(steps) == PAGE else 0
        self._row = int(await _run_all(steps) or last)
        for status in self._statuses:
            await self._walk(status)

    async def _walk(self, status: str) -> None:
        found = await self._runs.list_by_status(status, after=self._keys.get(status, ""), limit=PAGE)
        last = found[-1].key if len(found) == PAGE else ""
        mine = [one for one in found if one.key.startswith(self._rows.key_prefix)]
        stopped = await _run_all(await self._rows.check_snapshots(mine)) if mine else None
        self._keys[status] = str(stopped or last)
        if not self._keys[status]:
            self._watch.end_walk(status)


async def _run_all(steps: Sequence[ReconcileStep]) -> int | str | None:
    """Run the steps; returns the position at which too many had failed, if any."""
    failures = 0
    for step in steps:
        try:
            await step.work()
        except Exception as error:  # noqa: BLE001  (an error of one row must not block the others)
            log.warning("cannot reconcile %s: %r", step.name, error)
            failures += 1
        if failures == MAX_FAILURES:
            return step.position
    return None

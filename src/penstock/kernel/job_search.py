"""Jobs as operators look for them: by state, module, kind, error and time, page by page; failed ones in bulk.

Every query walks an index in order and stops after a page.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, literal, literal_column, select, tuple_

from penstock.kernel.columns import Id, UtcTime
from penstock.kernel.db import Tx
from penstock.kernel.queue import FINISHED, Job, JobQueue, JobState, job

_j = job.c

JobPosition = tuple[datetime, str]  # the end and the id of the last job of a page


@dataclass(frozen=True, kw_only=True)
class JobFilter:
    """Which jobs to list; None means any. Times are those at which jobs ended: from `since`, before `until`.

    Running jobs have not ended, so times do not restrict them.
    """

    state: JobState = JobState.FAILED
    module: str | None = None
    kind: str | None = None
    error_code: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def shown(self) -> dict[str, str]:
        """The given filters as text, for the audit log."""
        return {name: str(value) for name, value in vars(self).items() if value is not None}

    def conditions(self) -> list[ColumnElement[bool]]:
        """The filter in SQL, without its state and its times."""
        columns = {_j.partition_key: self.module, _j.kind: self.kind, _j.error_code: self.error_code}
        return [column == value for column, value in columns.items() if value is not None]


async def list_ended_jobs(
    tx: Tx, chosen: JobFilter, *, after: JobPosition | None = None, limit: int = 100
) -> list[Job]:
    """Failed, cancelled or finished jobs, latest first; the next page begins after the last job of this one."""
    page = _ended(chosen).order_by(_j.finished_at.desc(), _j.id.desc()).limit(limit)
    if after is not None:
        last: tuple[Any, ...] = (literal(after[0], UtcTime), literal(after[1], Id))
        page = page.where(tuple_(_j.finished_at, _j.id) < tuple_(*last))
    return [Job.from_row(row) for row in await tx.conn.execute(page)]


async def list_running_jobs(tx: Tx, chosen: JobFilter, *, limit: int = 1000) -> list[Job]:
    """Running jobs, by the end of their lease. There are as many as the cluster has busy worker slots."""
    running = select(job).where(_j.state == literal_column("'running'"), *chosen.conditions())
    rows = await tx.conn.execute(running.order_by(_j.leased_until).limit(limit))
    return [Job.from_row(row) for row in rows]


async def revive_failed_jobs(tx: Tx, queue: JobQueue, chosen: JobFilter, *, limit: int) -> list[str]:
    """Revive up to `limit` failed jobs, those that failed first; returns their ids.

    With `until`, a job that fails again is not found again: repeat the call until it returns fewer than `limit`.
    """
    oldest = _ended(chosen).order_by(_j.finished_at, _j.id).limit(limit).with_for_update(skip_locked=True)
    return await queue.revive_all(tx, [Job.from_row(row) for row in await tx.conn.execute(oldest)])


def position_of(last: Job) -> JobPosition:
    """Where the page after this job begins."""
    assert last.finished_at is not None, "only jobs that ended have a position"
    return last.finished_at, last.id


def _ended(chosen: JobFilter) -> Select[Any]:
    """The state is a constant, so that the partial index matches."""
    in_state = (FINISHED, _j.state == literal_column(f"'{chosen.state.value}'"))
    found = select(job).where(*in_state, *chosen.conditions())
    if chosen.since is not None:
        found = found.where(_j.finished_at >= chosen.since)
    return found if chosen.until is None else found.where(_j.finished_at < chosen.until)

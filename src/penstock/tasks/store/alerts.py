"""Counts behind pull metrics and alerts, and the active alerts.

Every count scans an index from its newest end and stops at a bound, so a busy hour does not slow down other work.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, func, or_, select

from penstock.access.audit import audit_log
from penstock.kernel.db import Tx
from penstock.kernel.dialect.sql import any_of, upsert
from penstock.tasks.domain import AlertRule
from penstock.tasks.store.tables import HELD, project, task, task_alarm, task_pull

t, tp, a, p = task.c, task_pull.c, audit_log.c, project.c
ta = task_alarm.c
MAX_ENDED = 100_000
MAX_HELD = 100_000
MAX_OPERATIONS = 10_000
STEPS = (1_000, 10_000, 100_000, 1_000_000)  # how many pulls back the start of a minute is searched


@dataclass(frozen=True, kw_only=True)
class ActiveAlert:
    """An active alert of a project, since when, and the value that raised it."""

    project_pk: str
    rule: AlertRule
    since: datetime
    value: float


async def count_outcomes(tx: Tx, *, since: datetime) -> Mapping[str, int]:
    """Outcomes of the newest pulls that ended since then, in all projects."""
    some = select(tp.outcome).where(tp.ended_at > since).order_by(tp.ended_at.desc()).limit(MAX_ENDED).subquery()
    rows = await tx.conn.execute(select(some.c.outcome, func.count()).group_by(some.c.outcome))
    return {row[0]: row[1] for row in rows}


async def count_outcomes_by_project(tx: Tx, *, since: datetime) -> Mapping[str, Mapping[str, int]]:
    """Outcomes of the newest pulls that ended since then, by project."""
    newest = select(tp.project_pk, tp.outcome).where(tp.ended_at > since).order_by(tp.ended_at.desc())
    some = newest.limit(MAX_ENDED).subquery().c
    counted: defaultdict[str, dict[str, int]] = defaultdict(dict)
    grouped = select(some.project_pk, some.outcome, func.count()).group_by(some.project_pk, some.outcome)
    for project_pk, outcome, number in await tx.conn.execute(grouped):
        counted[project_pk][outcome] = number
    return counted


async def count_overdue(tx: Tx, *, pulled_before: datetime) -> int:
    """Tasks held for longer than PULL_TIMEOUT, pulled before then, or whose lease has expired."""
    held = select(t.pulled_at, t.leased_until).where(HELD).order_by(t.leased_until).limit(MAX_HELD).subquery().c
    late = or_(held.leased_until <= tx.now, held.pulled_at <= pulled_before)
    return await tx.conn.scalar(select(func.count()).where(late)) or 0


async def count_requests_by_project(tx: Tx, *, since: datetime) -> Mapping[str, int]:
    """How many pulls got a task since then, by project."""
    recent = (tp.id > await _find_pull_before(tx, since), tp.pulled_at > since)
    counted = select(tp.project_pk, func.count(tp.pull_id.distinct())).where(*recent).group_by(tp.project_pk)
    return {row[0]: row[1] for row in await tx.conn.execute(counted)}


async def _find_pull_before(tx: Tx, since: datetime) -> int:
    """The id of a pull from before that time. Ids grow with time, so pulls need no index on their time."""
    newest = await tx.conn.scalar(select(func.max(tp.id))) or 0
    found = 0
    for step in STEPS:
        earlier = select(tp.id, tp.pulled_at).where(tp.id <= newest - step).order_by(tp.id.desc()).limit(1)
        row = (await tx.conn.execute(earlier)).one_or_none()
        if row is None:
            return 0
        found = row.id
        if row.pulled_at <= since:
            break
    return found


async def count_operations_by_project(tx: Tx, actions: Collection[str], *, since: datetime) -> Mapping[str, int]:
    """How often these audited actions happened since then, by `project_id`."""
    counted: defaultdict[str, int] = defaultdict(int)
    for action in actions:
        newest = select(a.target, a.at).where(a.action == action).order_by(a.id.desc()).limit(MAX_OPERATIONS)
        some = newest.subquery().c
        grouped = select(some.target, func.count()).where(some.at > since).group_by(some.target)
        for target, number in await tx.conn.execute(grouped):
            counted[target.removeprefix("project:")] += number
    return counted


async def list_project_ids(tx: Tx, pks: Collection[str]) -> Mapping[str, str]:
    """The `project_id` of projects by primary key, without deleted ones."""
    named = select(p.id, p.project_id).where(any_of(p.id, pks), p.deleted_at.is_(None))
    return {row[0]: row[1] for row in await tx.conn.execute(named)}


async def list_project_pks(tx: Tx, project_ids: Collection[str]) -> Mapping[str, str]:
    """The primary keys of projects by `project_id`, without deleted ones."""
    known = select(p.project_id, p.id).where(any_of(p.project_id, project_ids), p.deleted_at.is_(None))
    return {row[0]: row[1] for row in await tx.conn.execute(known)}


async def list_alerts(tx: Tx, *, limit: int = 10_000) -> list[ActiveAlert]:
    """The active alerts."""
    rows = await tx.conn.execute(select(task_alarm).order_by(ta.project_pk, ta.rule).limit(limit))
    return [ActiveAlert(**{**row._mapping, "rule": AlertRule(row.rule)}) for row in rows]


async def insert_alert(tx: Tx, new: ActiveAlert) -> bool:
    """Insert an alert; False if it is already active."""
    row = {"project_pk": new.project_pk, "rule": new.rule.value, "since": new.since, "value": new.value}
    statement = upsert(task_alarm).values(row).on_conflict_do_nothing().returning(ta.project_pk)
    return await tx.conn.scalar(statement) is not None


async def delete_alert(tx: Tx, over: ActiveAlert) -> bool:
    """Delete an alert; False if another process already did."""
    mine = delete(task_alarm).where(ta.project_pk == over.project_pk, ta.rule == over.rule.value)
    return (await tx.conn.execute(mine)).rowcount > 0

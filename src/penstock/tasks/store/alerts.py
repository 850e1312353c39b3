"""How pulls fare, counted for metrics and alarms; and the alarms that are raised.

Every count walks an index from its newest end and stops at a bound, so that a busy hour does not slow those who work.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, func, or_, select

from penstock.access.audit import audit_log
from penstock.kernel.bulk import among, upsert
from penstock.kernel.db import Tx
from penstock.tasks.domain import Alarm
from penstock.tasks.store.tables import HELD, project, task, task_alarm, task_pull

t, tp, a, p = task.c, task_pull.c, audit_log.c, project.c
alarm = task_alarm.c
MOST_ENDED = 100_000
MOST_HELD = 100_000
MOST_OPERATIONS = 10_000
STEPS = (1_000, 10_000, 100_000, 1_000_000)  # how far back a minute of pulls is looked for


@dataclass(frozen=True, kw_only=True)
class Raised:
    """An alarm that is raised: what is out of order in which project, since when."""

    project_pk: str
    rule: Alarm
    since: datetime
    value: float


async def count_outcomes(tx: Tx, *, since: datetime) -> Mapping[str, int]:
    """How the newest pulls that ended since then did, in all projects together."""
    some = select(tp.outcome).where(tp.ended_at > since).order_by(tp.ended_at.desc()).limit(MOST_ENDED).subquery()
    rows = await tx.conn.execute(select(some.c.outcome, func.count()).group_by(some.c.outcome))
    return {row[0]: row[1] for row in rows}


async def count_outcomes_by_project(tx: Tx, *, since: datetime) -> Mapping[str, Mapping[str, int]]:
    """The same, project by project."""
    newest = select(tp.project_pk, tp.outcome).where(tp.ended_at > since).order_by(tp.ended_at.desc())
    some = newest.limit(MOST_ENDED).subquery().c
    counted: defaultdict[str, dict[str, int]] = defaultdict(dict)
    grouped = select(some.project_pk, some.outcome, func.count()).group_by(some.project_pk, some.outcome)
    for project_pk, outcome, number in await tx.conn.execute(grouped):
        counted[project_pk][outcome] = number
    return counted


async def count_overdue(tx: Tx, *, pulled_before: datetime) -> int:
    """Tasks that are held though they were pulled before then, or their lease is over."""
    held = select(t.pulled_at, t.leased_until).where(HELD).order_by(t.leased_until).limit(MOST_HELD).subquery().c
    late = or_(held.leased_until <= tx.now, held.pulled_at <= pulled_before)
    return await tx.conn.scalar(select(func.count()).where(late)) or 0


async def count_requests_by_project(tx: Tx, *, since: datetime) -> Mapping[str, int]:
    """How many pulls got something since then, project by project."""
    recent = (tp.id > await _last_before(tx, since), tp.pulled_at > since)
    counted = select(tp.project_pk, func.count(tp.pull_id.distinct())).where(*recent).group_by(tp.project_pk)
    return {row[0]: row[1] for row in await tx.conn.execute(counted)}


async def _last_before(tx: Tx, since: datetime) -> int:
    """A pull from before that time. Ids grow with time, so no index of times is needed, which every pull would pay."""
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
    """How often these things were done since then, by the project's own id."""
    counted: defaultdict[str, int] = defaultdict(int)
    for action in actions:
        newest = select(a.target, a.at).where(a.action == action).order_by(a.id.desc()).limit(MOST_OPERATIONS)
        some = newest.subquery().c
        grouped = select(some.target, func.count()).where(some.at > since).group_by(some.target)
        for target, number in await tx.conn.execute(grouped):
            counted[target.removeprefix("project:")] += number
    return counted


async def list_project_ids(tx: Tx, pks: Collection[str]) -> Mapping[str, str]:
    """What clients call these projects; those that were deleted are left out."""
    named = select(p.id, p.project_id).where(among(tx, p.id, pks), p.deleted_at.is_(None))
    return {row[0]: row[1] for row in await tx.conn.execute(named)}


async def list_project_pks(tx: Tx, project_ids: Collection[str]) -> Mapping[str, str]:
    """Our ids of the projects that clients call so."""
    known = select(p.project_id, p.id).where(among(tx, p.project_id, project_ids), p.deleted_at.is_(None))
    return {row[0]: row[1] for row in await tx.conn.execute(known)}


async def list_alarms(tx: Tx, *, limit: int = 10_000) -> list[Raised]:
    """The alarms that are raised."""
    rows = await tx.conn.execute(select(task_alarm).order_by(alarm.project_pk, alarm.rule).limit(limit))
    return [Raised(**{**row._mapping, "rule": Alarm(row.rule)}) for row in rows]


async def insert_alarm(tx: Tx, new: Raised) -> bool:
    """Raise an alarm; False when it is raised already."""
    row = {"project_pk": new.project_pk, "rule": new.rule.value, "since": new.since, "value": new.value}
    statement = upsert(tx, task_alarm).values(row).on_conflict_do_nothing().returning(alarm.project_pk)
    return await tx.conn.scalar(statement) is not None


async def delete_alarm(tx: Tx, over: Raised) -> bool:
    """Take an alarm back; False when somebody else did."""
    mine = delete(task_alarm).where(alarm.project_pk == over.project_pk, alarm.rule == over.rule.value)
    return (await tx.conn.execute(mine)).rowcount > 0

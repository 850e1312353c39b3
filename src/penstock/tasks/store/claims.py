"""Claims: a pull selects and leases its tasks in one statement.

Selection, lease, pull history, tags and audit log are a chain of CTEs on PostgreSQL; SQLite runs the same parts one
after another.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from typing import Any

from sqlalchemy import (
    BindParameter,
    FromClause,
    Integer,
    Select,
    Text,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    literal_column,
    select,
    update,
)

from penstock.access.audit import insert_selected
from penstock.access.domain import Caller
from penstock.kernel.columns import UtcTime, to_json
from penstock.kernel.db import Tx
from penstock.kernel.dialect.select_then_write import ParameterTable, SelectThenWrite, StatementTables, Write
from penstock.tasks.store import offers
from penstock.tasks.store.offers import FilterShape, PullFilter
from penstock.tasks.store.tables import task, task_offer_tag, task_pull
from penstock.tasks.store.tasks import TaskRow

t = task.c
SLOT = ParameterTable("slot", ("owner", "token", "pull_id", "actor"))  # one per task that may be claimed
REQUEST = ParameterTable(
    "request", ("first", "actor", "detail", "request_id", "address")
)  # one per request; `first` is its first slot
NAMED = ParameterTable("named", ("id",))
HISTORY = ("project_pk", "queue_pk", "task_pk", "pull_id", "lease_token", "pulled_at", "pulled_by", "actor")


@dataclass(frozen=True, kw_only=True)
class LeaseGrant:
    """The lease that one request gets on up to `limit` tasks."""

    caller: Caller
    owner: str
    limit: int
    token: str
    pull_id: str


@dataclass(frozen=True, kw_only=True)
class ClaimTime:
    """When tasks of a project are claimed, and when their leases end."""

    project_id: str
    now: datetime
    until: datetime


async def claim_offered(
    tx: Tx, pull_filter: PullFilter, grants: Sequence[LeaseGrant], time: ClaimTime
) -> Sequence[TaskRow]:
    """Claim offered tasks for each grant, first come first served."""
    statement = _claim_by_shape(pull_filter.shape)
    values = pull_filter.values() | _common(time)
    values["most"] = sum(grant.limit for grant in grants)
    return await statement.rows(tx, values, slot=_slots(grants), request=_request_rows(grants))


async def claim_offered_by_pk(tx: Tx, pks: Collection[str], grant: LeaseGrant, time: ClaimTime) -> Sequence[TaskRow]:
    """Claim those of these tasks that are offered."""
    named = [(pk,) for pk in pks]
    slots, requests = _slots([grant]), _request_rows([grant])
    return await _claim_by_pk().rows(tx, _common(time), slot=slots, request=requests, named=named)


def _common(time: ClaimTime) -> dict[str, Any]:
    return {"now": time.now, "until": time.until, "audit_target": f"project:{time.project_id}"}


def _slots(grants: Sequence[LeaseGrant]) -> list[tuple[str, ...]]:
    return [
        slot
        for grant in grants
        for slot in [(grant.owner, grant.token, grant.pull_id, grant.caller.actor)] * grant.limit
    ]


def _request_rows(grants: Sequence[LeaseGrant]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    first = 1
    for grant in grants:
        by, detail = grant.caller, {"by": grant.caller.name, "client": grant.owner, "pull_id": grant.pull_id}
        rows.append((str(first), by.actor, to_json(detail), by.request_id, by.address))
        first += grant.limit
    return rows


@lru_cache(maxsize=512)
def _claim_by_shape(shape: FilterShape) -> SelectThenWrite:
    return SelectThenWrite(lambda _: offers.select_offered(shape), _writes, SLOT, REQUEST)


@cache
def _claim_by_pk() -> SelectThenWrite:
    return SelectThenWrite(
        lambda given: offers.select_offered_by_pk(select(given.table("named").c.id)), _writes, SLOT, REQUEST, NAMED
    )


def _writes(tables: StatementTables) -> Sequence[Write]:
    """The statements that lease the selected tasks."""
    chosen, request = tables.rows_with(t.partition_key, t.queue_pk, t.scheduled_at).c, tables.table("request")
    now, until = bindparam("now", type_=UtcTime), bindparam("until", type_=UtcTime)
    cells = (tables.cell("slot", name, chosen.n).label(name) for name in SLOT.columns)
    # `now` was read before the statement began; a task offered since then must not be pulled before it was offered.
    at = case((chosen.scheduled_at > now, chosen.scheduled_at), else_=now).label("at")
    mine = select(chosen.id, chosen.partition_key, chosen.queue_pk, at, *cells).subquery("mine").c
    hold: dict[str, Any] = {"state": literal_column("'held'"), "lease_owner": mine.owner, "lease_token": mine.token}
    hold |= {"leased_until": until, "pulled_at": mine.at, "lease_count": t.lease_count + 1, "status_at_pull": t.status}
    line = select(mine.partition_key, mine.queue_pk, mine.id, mine.pull_id, mine.token, mine.at, mine.owner, mine.actor)
    return [
        update(task).where(t.id == mine.id).values(hold),
        insert(task_pull).from_select(HISTORY, line, include_defaults=False),
        delete(task_offer_tag).where(task_offer_tag.c.task_pk.in_(select(tables.rows.c.id))),
        insert_selected(_audit(tables, request, now)),
    ]


def _audit(tables: StatementTables, request: FromClause, now: BindParameter[datetime]) -> Select[Any]:
    """Every pull is in the audit log: one line per request that got a task, which is when its first slot is filled."""
    taken = select(func.count()).select_from(tables.rows).scalar_subquery()
    target = bindparam("audit_target", type_=Text)
    columns = (request.c.actor, request.c.detail, request.c.request_id, request.c.address)
    lines: Select[Any] = select(now, literal_column("'tasks.pull'", Text), target, *columns)
    return lines.where(cast(request.c.first, Integer) <= taken)

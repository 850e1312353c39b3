"""Handing tasks out: chosen, put into their holders' hands, and written down, in one trip to the database."""

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

from penstock.access.audit import lines_from
from penstock.access.domain import Caller
from penstock.kernel.columns import UtcTime, to_json
from penstock.kernel.db import Tx
from penstock.kernel.one_trip import Given, OneTrip, Tables, Write
from penstock.tasks.domain import Status
from penstock.tasks.store import offers
from penstock.tasks.store.offers import Shape, Wanted
from penstock.tasks.store.tables import task, task_offer_tag, task_pull
from penstock.tasks.store.tasks import TaskRow

t = task.c
SLOT = Given("slot", ("owner", "token", "pull_id", "actor"))  # one for each task that may be handed out
ASK = Given("ask", ("first", "actor", "detail", "request_id", "address"))  # one for each who asks; `first` is a slot
NAMED = Given("named", ("id",))
HISTORY = ("project_pk", "queue_pk", "task_pk", "pull_id", "lease_token", "pulled_at", "pulled_by", "actor")


@dataclass(frozen=True, kw_only=True)
class Hand:
    """Someone who asks for so many tasks, and under what they will hold them."""

    caller: Caller
    owner: str
    limit: int
    token: str
    pull_id: str


@dataclass(frozen=True, kw_only=True)
class Moment:
    """When and where tasks are handed out, and until when they are held."""

    project_id: str
    now: datetime
    until: datetime


async def hand_out(tx: Tx, wanted: Wanted, status: Status, hands: Sequence[Hand], moment: Moment) -> Sequence[TaskRow]:
    """Give each as many tasks in one status as they asked for, first come first served, while there are any."""
    if len(wanted.tags) > 1:
        wanted = await offers.led_by_rarest(tx, wanted, status)
    trip = _by_shape(wanted.shape)
    values = wanted.values() | _common(moment) | {"in_status": status.value}
    values["most"] = sum(hand.limit for hand in hands)
    return await trip.rows(tx, values | trip.values(tx.on_postgres, slot=_slots(hands), ask=_asks(hands)))


async def hand_out_these(tx: Tx, pks: Collection[str], hand: Hand, moment: Moment) -> Sequence[TaskRow]:
    """Give those of these tasks that are on offer to one who asked for them."""
    trip = _by_name()
    given = trip.values(tx.on_postgres, slot=_slots([hand]), ask=_asks([hand]), named=[(pk,) for pk in pks])
    return await trip.rows(tx, _common(moment) | given)


def _common(moment: Moment) -> dict[str, Any]:
    target = f"project:{moment.project_id}"
    return {"now": moment.now, "until": moment.until, "audit_target": target}


def _slots(hands: Sequence[Hand]) -> list[tuple[str, ...]]:
    return [slot for hand in hands for slot in [(hand.owner, hand.token, hand.pull_id, hand.caller.actor)] * hand.limit]


def _asks(hands: Sequence[Hand]) -> list[tuple[str, ...]]:
    asks: list[tuple[str, ...]] = []
    first = 1
    for hand in hands:
        by, detail = hand.caller, {"by": hand.caller.name, "client": hand.owner, "pull_id": hand.pull_id}
        asks.append((str(first), by.actor, to_json(detail), by.request_id, by.address))
        first += hand.limit
    return asks


@lru_cache(maxsize=512)
def _by_shape(shape: Shape) -> OneTrip:
    return OneTrip(lambda _: offers.choose(shape), _then, SLOT, ASK)


@cache
def _by_name() -> OneTrip:
    return OneTrip(lambda given: offers.choose_these(select(given.table("named").c.id)), _then, SLOT, ASK, NAMED)


def _then(tables: Tables) -> Sequence[Write]:
    """What is done with the chosen tasks."""
    chosen, ask = tables.rows_with(t.partition_key, t.queue_pk, t.scheduled_at).c, tables.table("ask")
    now, until = bindparam("now", type_=UtcTime), bindparam("until", type_=UtcTime)
    cells = (tables.cell("slot", name, chosen.n).label(name) for name in SLOT.columns)
    # Our time was read before the statement began. What came on offer since then was not pulled before that.
    at = case((chosen.scheduled_at > now, chosen.scheduled_at), else_=now).label("at")
    mine = select(chosen.id, chosen.partition_key, chosen.queue_pk, at, *cells).subquery("mine").c
    hold: dict[str, Any] = {"state": literal_column("'held'"), "lease_owner": mine.owner, "lease_token": mine.token}
    hold |= {"leased_until": until, "pulled_at": mine.at, "lease_count": t.lease_count + 1, "status_at_pull": t.status}
    line = select(mine.partition_key, mine.queue_pk, mine.id, mine.pull_id, mine.token, mine.at, mine.owner, mine.actor)
    return [
        update(task).where(t.id == mine.id).values(hold),
        insert(task_pull).from_select(HISTORY, line, include_defaults=False),
        delete(task_offer_tag).where(task_offer_tag.c.task_pk.in_(select(tables.rows.c.id))),
        lines_from(_audit(tables, ask, now)),
    ]


def _audit(tables: Tables, ask: FromClause, now: BindParameter[datetime]) -> Select[Any]:
    """A line for each who got a task: whose first slot was filled."""
    taken = select(func.count()).select_from(tables.rows).scalar_subquery()
    target = bindparam("audit_target", type_=Text)
    who = (ask.c.actor, ask.c.detail, ask.c.request_id, ask.c.address)
    lines: Select[Any] = select(now, literal_column("'tasks.pull'", Text), target, *who)
    return lines.where(cast(ask.c.first, Integer) <= taken)

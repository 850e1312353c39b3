"""Pulling tasks by their ids: each is handed out, or the answer says why not."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from penstock.kernel.db import Tx
from penstock.kernel.errors import PenstockError
from penstock.tasks.deps import Deps
from penstock.tasks.domain import PullState, Side, Task
from penstock.tasks.errors import NotOffered, TaskIsHeld
from penstock.tasks.claims import Ask, Handed, Slip, begin_share, moment_of, slip_of, tell_again
from penstock.tasks.lifecycle import by_name, pick
from penstock.tasks.store import claims, locations, pulls, queues, tasks
from penstock.tasks.store.offers import Span, Wanted

ALREADY = ("it was pulled already", "已被拉取")
CLIENTS = ("a client wrote it last", "最后由客户端写入")
EXPIRED = ("it has expired", "已过期")
GIVEN_UP = ("it was pulled too often without a push", "被拉取多次而未推送")
FILTERED = ("the filters leave it out", "不符合过滤条件")
ENOUGH = ("this pull has as many tasks as it may take", "本次拉取的任务数已达上限")


@dataclass(frozen=True, kw_only=True)
class Named:
    """What was handed out, and what was not and why, by id."""

    handed: Handed
    failed: dict[str, PenstockError]
    chosen: Sequence[Task] = ()  # what can be handed out, before it is


@dataclass(frozen=True, kw_only=True)
class Names:
    """Which tasks are wanted, from where, and what must be true of them."""

    project_id: str
    queue_id: str | None
    task_ids: Sequence[str]
    wanted: Wanted | None = None  # filters; None for whatever is on offer
    idempotency_key: str | None = None


async def pull_named(tools: Deps, names: Names, ask: Ask) -> Named:
    """Hand out those of these tasks that can be, and no more than asked for."""
    slip = slip_of(names.idempotency_key, ask, names)
    if slip is not None:  # before the quota is asked: it has paid for these
        async with tools.db.read() as tx:
            again = await tell_again(tx, ask, slip)
            if again is not None:
                return await _sort(tx, names, replace(ask, limit=0), again)
    granted = await tools.gate.reserve(ask.caller.actor, min(len(names.task_ids), ask.limit))
    named: Named | None = None
    try:
        named = await _pull(tools, names, replace(ask, limit=granted), slip)
        return named
    finally:
        taken = len(named.handed.rows) if named is not None and not named.handed.is_again else 0
        await tools.gate.give_back(ask.caller.actor, granted - taken)


async def _pull(tools: Deps, names: Names, ask: Ask, slip: Slip | None) -> Named:
    async with tools.db.tx(actor=ask.holder.name) as tx:
        place = await places.get_place(tx, names.project_id, names.queue_id)
        pull_id, actor = tx.new_id("pull"), ask.caller.actor
        if slip is not None and not await pulls.insert_receipt(
            tx, actor=actor, key=slip.key, asked=slip.asked, pull_id=pull_id
        ):
            again = await tell_again(tx, ask, slip)
            if again is not None:
                return await _sort(tx, names, replace(ask, limit=0), again)
        named = await _sort(tx, names, ask, Handed(project_pk=place.project_pk))
        chosen = {one.id: one for one in named.chosen}
        mine = replace(ask, limit=max(1, len(chosen)))
        share = begin_share(tx, place, moment_of(tools, tx, place), mine, pull_id=pull_id)
        rows = await handing.hand_out_these(tx, list(chosen), share.hand, share.moment) if chosen else []
        for lost in chosen.keys() - {row.id for row in rows}:  # somebody was quicker
            named.failed[chosen[lost].task_id] = _not_offered(chosen[lost], ALREADY)
        if slip is not None and not rows:
            await pulls.delete_receipt(tx, actor=actor, key=slip.key)
        return replace(named, handed=share.handed(rows))


async def _sort(tx: Tx, names: Names, ask: Ask, handed: Handed) -> Named:
    """Those that can be handed out beside what was handed out before, and why the others cannot."""
    place = await places.get_place(tx, names.project_id, names.queue_id)
    queue = None
    if names.queue_id is not None:
        queue = await queues.get_queue(tx, place.project_pk, names.queue_id, project_id=names.project_id)
    namesakes = by_name(await tasks.list_namesakes(tx, place.project_pk, names.task_ids))
    had = {row.task_id for row in handed.rows}
    chosen: list[Task] = []
    failed: dict[str, PenstockError] = {}
    for task_id in names.task_ids:
        if task_id in had:
            continue
        try:
            one = pick(namesakes[task_id], names.project_id, task_id, queue)
            _refuse(one, names.wanted, tx.now)
            if len(chosen) >= ask.limit:
                raise _not_offered(one, ENOUGH)
        except PenstockError as error:
            failed[task_id] = error
        else:
            chosen.append(one)
    return Named(handed=handed, failed=failed, chosen=chosen)


def _refuse(one: Task, wanted: Wanted | None, now: datetime) -> None:
    """Say why a task cannot be handed out, if it cannot."""
    if one.state is PullState.HELD:
        raise TaskIsHeld(task_id=one.task_id, holder=one.lease_owner)
    if one.state is PullState.CLOSED:
        raise _not_offered(one, ALREADY)
    if one.source is not Side.SERVER:
        raise _not_offered(one, CLIENTS)
    if not one.may_be_offered(now):
        raise _not_offered(one, EXPIRED)
    if one.state is PullState.IDLE:
        raise _not_offered(one, GIVEN_UP)
    if wanted is not None and not _fits(one, wanted):
        raise _not_offered(one, FILTERED)


def _fits(one: Task, wanted: Wanted) -> bool:
    """Whether a task passes the filters; the same ones that `store/offers.py` asks of the database."""
    return (
        one.status in wanted.statuses
        and set(wanted.tags) <= set(one.tags)
        and wanted.first_rank <= one.priority <= wanted.last_rank
        and _inside(one.created_at, wanted.created)
        and _inside(one.server_modified_at, wanted.modified)
        and _inside(one.version, wanted.version)
    )


def _inside(value: datetime | int | None, span: Span) -> bool:
    if span == Span():
        return True
    if value is None:
        return False
    return not (_before(value, span.start) or not _before(value, span.end, otherwise=True))


def _before(value: datetime | int, end: datetime | int | None, *, otherwise: bool = False) -> bool:
    if isinstance(value, datetime) and isinstance(end, datetime):
        return value < end
    if isinstance(value, int) and isinstance(end, int):
        return value < end
    return otherwise


def _not_offered(one: Task, why: tuple[str, str]) -> NotOffered:
    return NotOffered(task_id=one.task_id, reason=why[0], reason_zh=why[1])

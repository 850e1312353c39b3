"""Handing tasks out: to whoever asks first, each to one holder, under a lease.

Pulls that want the same thing at the same time share one trip to the database. What a trip takes is locked, held, and
written down in one transaction, with a line in the audit log for each who asked.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

from penstock.kernel.db import Tx
from penstock.tasks.deps import Deps
from penstock.tasks.claims import Ask, Handed, Slip, begin_share, moment_of, slip_of, tell_again
from penstock.tasks.lifecycle import channel
from penstock.tasks.store import claims, locations, pulls
from penstock.tasks.store.claims import Hand
from penstock.tasks.store.offers import Wanted
from penstock.tasks.store.locations import Place
from penstock.tasks.store.tasks import TaskRow

SHARED_LIMIT = 10  # who asks for more travels alone: a large batch is worth a trip of its own, side by side with others
LOOK_AGAIN_SECONDS = 1.0  # a waiter is woken when something comes on offer; should the bell be lost, it looks by itself


@dataclass(frozen=True, kw_only=True)
class Wish:
    """A pull: from where, of what, and how long to wait for it. An `idempotency_key` finds a lost answer again."""

    project_id: str
    queue_id: str | None
    wanted: Wanted  # its place is filled in when it is known
    wait_seconds: float = 0
    idempotency_key: str | None = None
    still_there: Callable[[], Awaitable[bool]] = field(compare=False)

    @property
    def key(self) -> tuple[object, ...]:
        """What others must want too to share a trip."""
        return "pull", self.project_id, self.queue_id, self.wanted


async def pull(tools: Deps, wish: Wish, ask: Ask) -> Handed:
    """Hand out up to as many tasks as asked for; with a wait, not before there is one or the time is over."""
    slip = slip_of(wish.idempotency_key, ask, wish.key)
    if slip is not None:  # before the quota is asked: it has paid for these
        async with tools.db.read() as tx:
            again = await tell_again(tx, ask, slip)
        if again is not None:
            return again
    return await _wait_for_some(tools, wish, ask, slip)


async def _wait_for_some(tools: Deps, wish: Wish, ask: Ask, slip: Slip | None) -> Handed:
    handed = await _try(tools, wish, ask, slip)
    if handed.rows or wish.wait_seconds <= 0:
        return handed
    clock = tools.db.clock
    deadline = clock.now() + timedelta(seconds=wish.wait_seconds)
    ear = tools.db.wakeups.listen([channel(handed.project_pk)])
    try:
        while not (handed := await _try(tools, wish, ask, slip)).rows:
            left = (deadline - clock.now()).total_seconds()
            if left <= 0:
                break
            await ear.wait(seconds=min(left, LOOK_AGAIN_SECONDS))
            if not await wish.still_there():  # what is handed to nobody would be lost until its lease is over
                break
    finally:
        tools.db.wakeups.forget(ear)
    return handed


async def _try(tools: Deps, wish: Wish, ask: Ask, slip: Slip | None) -> Handed:
    """One look, with what the quota allows. Nothing is kept of it while the caller waits: others may want it."""
    actor, taken = ask.caller.actor, 0
    granted = await tools.gate.reserve(actor, ask.limit)
    try:
        handed = await _look(tools, wish, ask if granted == ask.limit else replace(ask, limit=granted), slip)
        taken = 0 if handed.is_again else len(handed.rows)
        return handed
    finally:
        await tools.gate.give_back(actor, granted - taken)


async def _look(tools: Deps, wish: Wish, ask: Ask, slip: Slip | None) -> Handed:
    if slip is not None:
        return await _once(tools, wish, ask, slip)
    if ask.limit > SHARED_LIMIT:
        [alone] = await _trip(tools, wish, [ask])
        return alone
    handed: Handed = await tools.trips.ask(wish.key, ask, partial(_trip, tools, wish))
    return handed


async def _trip(tools: Deps, wish: Wish, asks: Sequence[Ask]) -> Sequence[Handed]:
    """One trip for all who want the same. What is asked for in one status is handed out by one statement, which is a
    transaction of its own."""
    alone = len(wish.wanted.statuses) == 1
    async with tools.db.once(actor="pull") if alone else tools.db.tx(actor="pull") as tx:
        known = tools.atlas.find(wish.project_id, wish.queue_id)
        if known is not None and (handed := await _hand_out(tx, tools, wish, known, asks))[0].rows:
            return handed
        place = await tools.atlas.look_up(tx, wish.project_id, wish.queue_id)
        return await _hand_out(tx, tools, wish, place, asks)


async def _once(tools: Deps, wish: Wish, ask: Ask, slip: Slip) -> Handed:
    """A pull that gives the same answer when it is asked for again by the same caller with the same key."""
    async with tools.db.tx(actor="pull") as tx:
        place = await places.get_place(tx, wish.project_id, wish.queue_id)
        pull_id, actor = tx.new_id("pull"), ask.caller.actor
        if not await pulls.insert_receipt(tx, actor=actor, key=slip.key, asked=slip.asked, pull_id=pull_id):
            again = await tell_again(tx, ask, slip)
            if again is not None:
                return again
        [handed] = await _hand_out(tx, tools, wish, place, [ask], pull_id=pull_id)
        if not handed.rows:  # an empty answer is not worth keeping: the next try may find something
            await pulls.delete_receipt(tx, actor=actor, key=slip.key)
        return handed


async def _hand_out(
    tx: Tx, tools: Deps, wish: Wish, place: Place, asks: Sequence[Ask], *, pull_id: str | None = None
) -> list[Handed]:
    """Hand out what there is, first come first served, one status after another."""
    wanted = replace(wish.wanted, project_pk=place.project_pk, queue_pk=place.queue_pk)
    moment = moment_of(tools, tx, place)
    shares = [begin_share(tx, place, moment, ask, pull_id=pull_id) for ask in asks]
    rows: list[TaskRow] = []
    for status in wanted.statuses:
        if hands := _unfilled([share.hand for share in shares], len(rows)):
            rows += await handing.hand_out(tx, wanted, status, hands, moment)
    dealt, start = [], 0
    for share in shares:
        dealt.append(share.handed(rows[start : start + share.hand.limit]))
        start += share.hand.limit
    return dealt


def _unfilled(hands: Sequence[Hand], taken: int) -> list[Hand]:
    """Who is still to be served, and with how many, when so many have been handed out."""
    if not taken:
        return list(hands)
    left = []
    for hand in hands:
        served = min(taken, hand.limit)
        taken -= served
        if served < hand.limit:
            left.append(replace(hand, limit=hand.limit - served))
    return left

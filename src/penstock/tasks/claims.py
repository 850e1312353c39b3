"""What pulls have in common: who asks, under which lease they will hold what they get, and what they were given."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from penstock.access.domain import Caller
from penstock.kernel.columns import to_json
from penstock.kernel.db import Tx
from penstock.kernel.ids import new_token
from penstock.tasks.deps import Deps
from penstock.tasks.domain import Holder, Task
from penstock.tasks.errors import KeyReused
from penstock.tasks.store import pulls, tasks
from penstock.tasks.store.claims import Hand, Moment
from penstock.tasks.store.locations import Place
from penstock.tasks.store.tasks import TaskRow


@dataclass(frozen=True, kw_only=True)
class Ask:
    """Who asks for how many."""

    caller: Caller
    holder: Holder
    limit: int


@dataclass(frozen=True, kw_only=True)
class Handed:
    """What one ask was given: rows as they were before, and whose they are now."""

    project_pk: str
    rows: Sequence[TaskRow | Task] = ()
    holder: str = ""
    pull_id: str = ""
    token: str = ""
    at: datetime | None = None
    until: datetime | None = None
    is_again: bool = False  # whether it was handed out before, and is only told again


@dataclass(frozen=True, kw_only=True)
class Slip:
    """What a caller's Idempotency-Key stands for: a pull that asks for just this."""

    key: str
    asked: str


def slip_of(key: str | None, ask: Ask, *what: object) -> Slip | None:
    """The slip of a pull that came with a key."""
    if key is None:
        return None
    asked = to_json([repr(what), ask.holder.name, ask.limit])
    return Slip(key=key, asked=hashlib.sha256(asked.encode()).hexdigest())


async def tell_again(tx: Tx, ask: Ask, slip: Slip) -> Handed | None:
    """What is still held of what was handed out under this key, or None when nothing was."""
    receipt = await pulls.find_receipt(tx, actor=ask.caller.actor, key=slip.key)
    if receipt is None:
        return None
    if receipt.asked != slip.asked:
        raise KeyReused
    held = await tasks.list_held_by_pull(tx, receipt.pull_id)
    first = held[0] if held else None
    return Handed(
        project_pk=first.partition_key if first else "",
        rows=[replace(one, lease_count=one.lease_count - 1) for one in held],  # as they were before, as always
        holder=ask.holder.name,
        pull_id=receipt.pull_id,
        token=(first.lease_token or "") if first else "",
        at=first.pulled_at if first else None,
        until=first.leased_until if first else None,
        is_again=True,
    )


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one ask will hold its tasks under; the tasks are still to be found."""

    project_pk: str
    hand: Hand
    moment: Moment

    def handed(self, rows: Sequence[TaskRow]) -> Handed:
        """What it was given."""
        return Handed(
            project_pk=self.project_pk,
            rows=rows,
            holder=self.hand.owner,
            pull_id=self.hand.pull_id if rows else "",
            token=self.hand.token,
            at=self.moment.now,
            until=self.moment.until,
        )


def moment_of(tools: Deps, tx: Tx, place: Place) -> Moment:
    """Now and here, with a lease that lasts as long as the settings say."""
    until = tx.now + timedelta(seconds=tools.rules.pull_timeout)
    return Moment(project_id=place.project_id, now=tx.now, until=until)


def begin_share(tx: Tx, place: Place, moment: Moment, ask: Ask, *, pull_id: str | None = None) -> Share:
    """A new lease for one ask."""
    hand = Hand(
        caller=ask.caller,
        owner=ask.holder.name,
        limit=ask.limit,
        token=new_token(),
        pull_id=pull_id or tx.new_id("pull"),
    )
    return Share(project_pk=place.project_pk, hand=hand, moment=moment)

"""What pulls have in common: who asks, under which lease they will hold what they get, and what they were given."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.access.domain import Caller
from penstock.kernel.db import Tx
from penstock.kernel.ids import new_token
from penstock.tasks.domain import Holder, Task
from penstock.tasks.store.handing import Hand, Moment
from penstock.tasks.store.places import Place
from penstock.tasks.store.tasks import TaskRow
from penstock.tasks.tools import Tools


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


def begin_share(tools: Tools, tx: Tx, place: Place, ask: Ask, *, pull_id: str | None = None) -> Share:
    """A new lease for one ask."""
    until = tx.now + timedelta(seconds=tools.rules.pull_timeout)
    hand = Hand(
        caller=ask.caller,
        owner=ask.holder.name,
        limit=ask.limit,
        token=new_token(),
        pull_id=pull_id or tx.new_id("pull"),
    )
    return Share(
        project_pk=place.project_pk, hand=hand, moment=Moment(project_id=place.project_id, now=tx.now, until=until)
    )

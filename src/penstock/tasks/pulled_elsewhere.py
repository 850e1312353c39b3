"""Pushed tasks that the client pulled from elsewhere in the project: without a queue, or from another queue.

An existing client pushes what it pulled in a queue of its own. The task that it pulled stays where it is; the push
closes its pull and tells it status, report and result. The lease is found by the token that the client sent for the
task, by the token of the whole push, or by the client's name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from penstock.kernel.db import Tx
from penstock.tasks.conflicts import LEASE_ENDED
from penstock.tasks.domain import Holder, PullOutcome, Task
from penstock.tasks.errors import PullLost, task_ids_details
from penstock.tasks.lifecycle import by_task_id
from penstock.tasks.store import pulls, tasks
from penstock.tasks.store.tasks import QueueScope


class ListedTask(Protocol):
    """A task of a push."""

    @property
    def task_id(self) -> str:
        """Its id."""
        ...

    @property
    def lease_token(self) -> str | None:
        """The token that was sent for it."""
        ...


@dataclass(frozen=True, kw_only=True)
class PulledElsewhere:
    """A task that the client holds, or held until it pushed it, in another queue or without one."""

    task: Task
    holder: Holder


async def find_pulled_elsewhere(
    tx: Tx, where: QueueScope, pushed: Sequence[ListedTask], holder: Holder
) -> Mapping[str, PulledElsewhere]:
    """Of the pushed tasks those that this client pulled elsewhere, locked; by task id.

    Raises `PullLost` for a token of a pull elsewhere that is over, unless this push repeats the one that ended it.
    """
    tokens = {one.task_id: one.lease_token or holder.token for one in pushed}
    has_tokens = any(tokens.values())
    found = await tasks.claim_elsewhere(tx, where, list(tokens))
    candidates, pks = by_task_id(found), [one.id for one in found]
    last = await pulls.list_last_tokens(tx, pks) if has_tokens else {}
    if holder.token is not None:  # also pulls that are not the last
        last |= dict.fromkeys(await pulls.list_pulled_under(tx, holder.token, pks), (holder.token, None))
    here = {one.task_id for one in await tasks.claim_in_queue(tx, where, list(tokens))} if has_tokens else set()
    mine: dict[str, PulledElsewhere] = {}
    lost: list[str] = []
    for one in pushed:
        matched = _match(candidates[one.task_id], tokens[one.task_id], holder, last)
        if matched is not None:
            mine[one.task_id] = matched
        elif one.lease_token is not None and one.task_id not in here:
            lost.append(one.task_id)
    if lost:
        raise PullLost(task_id=lost[0], **LEASE_ENDED, **task_ids_details(lost))
    return mine


def _match(
    found: Sequence[Task],
    token: str | None,
    holder: Holder,
    last: Mapping[str, tuple[str, PullOutcome | None]],
) -> PulledElsewhere | None:
    by_token, by_name = replace(holder, token=token), replace(holder, token=None)
    for one in found:
        if token is not None and (by_token.holds(one) or last.get(one.id, ("", None))[0] == token):
            return PulledElsewhere(task=one, holder=by_token)
        if by_name.holds(one):
            return PulledElsewhere(task=one, holder=by_name)
    return None

"""Claims, shared by both kinds of pull: who claims how many tasks, under which lease, and the result.

An Idempotency-Key returns a lost response again: it replays the earlier claim, without using quota, instead of claiming
other tasks.
"""

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
from penstock.tasks.store.claims import ClaimTime, LeaseGrant
from penstock.tasks.store.locations import Location
from penstock.tasks.store.tasks import TaskRow


@dataclass(frozen=True, kw_only=True)
class ClaimRequest:
    """Who claims how many tasks."""

    caller: Caller
    holder: Holder
    limit: int


@dataclass(frozen=True, kw_only=True)
class ClaimResult:
    """The claimed tasks, as their rows were before the claim, and the lease they are under now."""

    project_pk: str
    rows: Sequence[TaskRow | Task] = ()
    holder: str = ""
    pull_id: str = ""
    token: str = ""
    at: datetime | None = None
    until: datetime | None = None
    is_replay: bool = False  # whether these tasks were claimed by an earlier request with the same key


@dataclass(frozen=True, kw_only=True)
class IdempotencyKey:
    """A caller's Idempotency-Key and the fingerprint of the request it came with."""

    key: str
    fingerprint: str


def idempotency_key_of(key: str | None, request: ClaimRequest, *, identity: str) -> IdempotencyKey | None:
    """The key of a request with its fingerprint, or None for a request without a key."""
    if key is None:
        return None
    content = to_json([identity, request.holder.name, request.limit])
    return IdempotencyKey(key=key, fingerprint=hashlib.sha256(content.encode()).hexdigest())


async def replay_claim(tx: Tx, request: ClaimRequest, idempotency: IdempotencyKey) -> ClaimResult | None:
    """The tasks still held from the claim that used this key; None if the key is new.

    Raises `KeyReused` if the key was used for a different request.
    """
    receipt = await pulls.find_receipt(tx, actor=request.caller.actor, key=idempotency.key)
    if receipt is None:
        return None
    if receipt.asked != idempotency.fingerprint:
        raise KeyReused
    held = await tasks.list_held_by_pull(tx, receipt.pull_id)
    first = held[0] if held else None
    return ClaimResult(
        project_pk=first.partition_key if first else "",
        rows=[replace(one, lease_count=one.lease_count - 1) for one in held],  # as before the claim
        holder=request.holder.name,
        pull_id=receipt.pull_id,
        token=(first.lease_token or "") if first else "",
        at=first.pulled_at if first else None,
        until=first.leased_until if first else None,
        is_replay=True,
    )


def claim_time(deps: Deps, tx: Tx, location: Location) -> ClaimTime:
    """When a claim happens, and when its leases end."""
    until = tx.now + timedelta(seconds=deps.config.pull_timeout)
    return ClaimTime(project_id=location.project_id, now=tx.now, until=until)


def new_lease(tx: Tx, request: ClaimRequest, *, pull_id: str | None = None) -> LeaseGrant:
    """A new lease token and pull id for one request."""
    return LeaseGrant(
        caller=request.caller,
        owner=request.holder.name,
        limit=request.limit,
        token=new_token(),
        pull_id=pull_id or tx.new_id("pull"),
    )


def claim_result(location: Location, grant: LeaseGrant, time: ClaimTime, rows: Sequence[TaskRow]) -> ClaimResult:
    """The result of one request, given the rows it claimed."""
    return ClaimResult(
        project_pk=location.project_pk,
        rows=rows,
        holder=grant.owner,
        pull_id=grant.pull_id if rows else "",
        token=grant.token,
        at=time.now,
        until=time.until,
    )

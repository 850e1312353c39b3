"""Claims, shared by both kinds of pull: who claims how many tasks, under which lease, and the result.

An Idempotency-Key returns a lost response again: it replays the earlier claim, without using quota, instead of claiming
other tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from penstock.access.domain import Caller
from penstock.kernel.db import Tx
from penstock.kernel.idempotency import (
    IdempotencyKeyReused,
    IdempotentRequest,
    claim_key,
    find_outcome,
    fingerprint,
)
from penstock.kernel.ids import new_token
from penstock.tasks.deps import Deps
from penstock.tasks.domain import Holder, Task
from penstock.tasks.errors import KeyReused
from penstock.tasks.store import tasks
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


class PullWithKey(Protocol):
    """A pull that may carry an Idempotency-Key."""

    @property
    def idempotency_key(self) -> str | None:
        """The key, if the client sent one."""
        ...

    @property
    def identity(self) -> str:
        """What the request asks for, as text."""
        ...


def idempotent_pull(request: PullWithKey, claim: ClaimRequest) -> IdempotentRequest | None:
    """The key of a pull with its fingerprint, or None for a pull without a key."""
    if request.idempotency_key is None:
        return None
    asked = fingerprint(request.identity, claim.holder.name, claim.limit)
    return IdempotentRequest(actor=claim.caller.actor, key=request.idempotency_key, fingerprint=asked)


async def replay_claim(tx: Tx, request: ClaimRequest, idempotency: IdempotentRequest) -> ClaimResult | None:
    """The tasks still held from the claim that used this key; None if the key is new.

    Raises `KeyReused` if the key was used for a different request.
    """
    try:
        outcome = await find_outcome(tx, idempotency)
    except IdempotencyKeyReused as error:
        raise KeyReused from error
    if outcome is None:
        return None
    held = await tasks.list_held_by_pull(tx, outcome["pull_id"])
    first = held[0] if held else None
    return ClaimResult(
        project_pk=first.partition_key if first else "",
        rows=[replace(one, lease_count=one.lease_count - 1) for one in held],  # as before the claim
        holder=request.holder.name,
        pull_id=outcome["pull_id"],
        token=(first.lease_token or "") if first else "",
        at=first.pulled_at if first else None,
        until=first.leased_until if first else None,
        is_replay=True,
    )


async def claim_pull_key(tx: Tx, idempotency: IdempotentRequest, pull_id: str) -> bool:
    """Store the key of a pull; False if it was used before. Waits for a concurrent pull with the same key."""
    try:
        return await claim_key(tx, idempotency, {"pull_id": pull_id}) is None
    except IdempotencyKeyReused as error:
        raise KeyReused from error


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

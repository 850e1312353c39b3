"""Pull: claim offered tasks, highest priority first. Each task goes to one client, which holds it under a lease.

Concurrent pulls with the same filters are coalesced into one statement (`api/coalesced_pulls.py`). It selects, locks
and leases the tasks and writes their history and one audit log line per request, in one transaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.kernel.db import Tx
from penstock.kernel.idempotency import IdempotentRequest, delete_key
from penstock.tasks.claims import (
    ClaimRequest,
    ClaimResult,
    claim_pull_key,
    claim_result,
    claim_time,
    new_lease,
    replay_claim,
)
from penstock.tasks.deps import Deps
from penstock.tasks.store import claims, locations
from penstock.tasks.store.locations import Location
from penstock.tasks.store.offers import PullFilter


@dataclass(frozen=True, kw_only=True)
class PullRequest:
    """A pull: from where, and with which filter."""

    project_id: str
    queue_id: str | None
    filter: PullFilter  # its location is filled in once it is known
    idempotency_key: str | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Pulls with the same key are coalesced."""
        return "pull", self.project_id, self.queue_id, self.filter

    @property
    def identity(self) -> str:
        """What the request asks for, as text. Receipts store its hash, so its form stays the same across releases."""
        return f"(('pull', {self.project_id!r}, {self.queue_id!r}, {self.filter.identity}),)"


async def pull(tx: Tx, deps: Deps, request: PullRequest, requests: Sequence[ClaimRequest]) -> Sequence[ClaimResult]:
    """Claim up to `limit` tasks for each of the coalesced requests, in a single statement.

    The location is cached. A pull that finds nothing looks it up again, so a deleted project is noticed.
    """
    key = (request.project_id, request.queue_id)
    cached = deps.locations.find(key)
    if cached is not None and (results := await _claim(tx, deps, request, cached.value, requests))[0].rows:
        return results
    location = await locations.get_location(tx, *key)
    deps.locations.put(key, location)
    return await _claim(tx, deps, request, location, requests)


async def pull_once(
    tx: Tx, deps: Deps, request: PullRequest, claim: ClaimRequest, idempotency: IdempotentRequest
) -> ClaimResult:
    """Claim under an Idempotency-Key: a second request of the caller with the same key gets the same result."""
    location = await locations.get_location(tx, request.project_id, request.queue_id)
    pull_id = tx.new_id("pull")
    if not await claim_pull_key(tx, idempotency, pull_id):
        replay = await replay_claim(tx, claim, idempotency)
        if replay is not None:
            return replay
    [result] = await _claim(tx, deps, request, location, [claim], pull_id=pull_id)
    if not result.rows:  # an empty result is not kept: the next attempt may find a task
        await delete_key(tx, idempotency)
    return result


async def _claim(
    tx: Tx,
    deps: Deps,
    request: PullRequest,
    location: Location,
    requests: Sequence[ClaimRequest],
    *,
    pull_id: str | None = None,
) -> list[ClaimResult]:
    """Claim what is offered, first come first served."""
    offered = replace(request.filter, project_pk=location.project_pk, queue_pk=location.queue_pk)
    time = claim_time(deps, tx, location)
    grants = [new_lease(tx, one, pull_id=pull_id) for one in requests]
    rows = await claims.claim_offered(tx, offered, grants, time)
    results, start = [], 0
    for grant in grants:
        results.append(claim_result(location, grant, time, rows[start : start + grant.limit]))
        start += grant.limit
    return results

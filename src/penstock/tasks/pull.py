"""Pull: claim offered tasks, highest priority first. Each task goes to one client, which holds it under a lease.

A pull can long-poll: it waits for a task. Concurrent pulls with the same filters are coalesced into one statement. It
selects, locks and leases the tasks and writes their history and one audit log line per request, in one transaction.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

from penstock.kernel.db import Tx
from penstock.tasks.claims import (
    ClaimRequest,
    ClaimResult,
    IdempotencyKey,
    claim_result,
    claim_time,
    idempotency_key_of,
    new_lease,
    replay_claim,
)
from penstock.tasks.deps import Deps
from penstock.tasks.lifecycle import offer_channel
from penstock.tasks.store import claims, locations, pulls
from penstock.tasks.store.claims import LeaseGrant
from penstock.tasks.store.locations import Location
from penstock.tasks.store.offers import PullFilter
from penstock.tasks.store.tasks import TaskRow

COALESCED_LIMIT = 10  # a larger batch runs as its own statement, in parallel with others
POLL_SECONDS = 1.0  # a waiting pull is notified of new offers; it also polls, in case a notification is lost


@dataclass(frozen=True, kw_only=True)
class PullRequest:
    """A pull: from where, with which filter, and how long to wait for a task."""

    project_id: str
    queue_id: str | None
    filter: PullFilter  # its location is filled in once it is known
    wait_seconds: float = 0
    idempotency_key: str | None = None
    is_connected: Callable[[], Awaitable[bool]] = field(compare=False)

    @property
    def key(self) -> tuple[object, ...]:
        """Pulls with the same key are coalesced."""
        return "pull", self.project_id, self.queue_id, self.filter

    @property
    def identity(self) -> str:
        """What the request asks for, as text. Receipts store its hash, so its form stays the same across releases."""
        return f"(('pull', {self.project_id!r}, {self.queue_id!r}, {self.filter.identity}),)"


async def pull(deps: Deps, request: PullRequest, claim: ClaimRequest) -> ClaimResult:
    """Claim up to `claim.limit` tasks; wait for the first one if the request says so."""
    idempotency = idempotency_key_of(request.idempotency_key, claim, identity=request.identity)
    if idempotency is not None:  # before the quota: the first request has paid for these tasks
        async with deps.db.read() as tx:
            replay = await replay_claim(tx, claim, idempotency)
        if replay is not None:
            return replay
    return await _poll(deps, request, claim, idempotency)


async def _poll(
    deps: Deps, request: PullRequest, claim: ClaimRequest, idempotency: IdempotencyKey | None
) -> ClaimResult:
    result = await _try(deps, request, claim, idempotency)
    if result.rows or request.wait_seconds <= 0:
        return result
    clock = deps.db.clock
    deadline = clock.now() + timedelta(seconds=request.wait_seconds)
    listener = deps.db.wakeups.listen([offer_channel(result.project_pk)])
    try:
        while not (result := await _try(deps, request, claim, idempotency)).rows:
            left = (deadline - clock.now()).total_seconds()
            if left <= 0:
                break
            await listener.wait(seconds=min(left, POLL_SECONDS))
            if not await request.is_connected():  # tasks claimed for a closed connection wait until the lease expires
                break
    finally:
        deps.db.wakeups.unlisten(listener)
    return result


async def _try(
    deps: Deps, request: PullRequest, claim: ClaimRequest, idempotency: IdempotencyKey | None
) -> ClaimResult:
    """One attempt, within the quota. The unused part of the quota is returned at once, not held while waiting."""
    actor, taken = claim.caller.actor, 0
    granted = await deps.limiter.reserve(actor, claim.limit)
    allowed = claim if granted == claim.limit else replace(claim, limit=granted)
    try:
        if idempotency is not None:
            result = await _claim_once(deps, request, allowed, idempotency)
        elif allowed.limit > COALESCED_LIMIT:
            [result] = await _claim_all(deps, request, [allowed])
        else:
            result = await deps.coalescer.submit(request.key, allowed, partial(_claim_all, deps, request))
        taken = 0 if result.is_replay else len(result.rows)
        return result
    finally:
        await deps.limiter.give_back(actor, granted - taken)


async def _claim_all(deps: Deps, request: PullRequest, requests: Sequence[ClaimRequest]) -> Sequence[ClaimResult]:
    """Claim for all coalesced requests. With one status it is a single statement that autocommits.

    The location is cached. A pull that finds nothing looks it up again, so a deleted project is noticed.
    """
    is_single = len(request.filter.statuses) == 1
    async with deps.db.autocommit(actor="pull") if is_single else deps.db.tx(actor="pull") as tx:
        known = deps.location_cache.find(request.project_id, request.queue_id)
        if known is not None and (results := await _claim(tx, deps, request, known, requests))[0].rows:
            return results
        location = await deps.location_cache.refresh(tx, request.project_id, request.queue_id)
        return await _claim(tx, deps, request, location, requests)


async def _claim_once(
    deps: Deps, request: PullRequest, claim: ClaimRequest, idempotency: IdempotencyKey
) -> ClaimResult:
    """Claim under an Idempotency-Key: a second request of the caller with the same key gets the same result."""
    async with deps.db.tx(actor="pull") as tx:
        location = await locations.get_location(tx, request.project_id, request.queue_id)
        pull_id, actor = tx.new_id("pull"), claim.caller.actor
        if not await pulls.insert_receipt(
            tx, actor=actor, key=idempotency.key, asked=idempotency.fingerprint, pull_id=pull_id
        ):
            replay = await replay_claim(tx, claim, idempotency)
            if replay is not None:
                return replay
        [result] = await _claim(tx, deps, request, location, [claim], pull_id=pull_id)
        if not result.rows:  # an empty result is not kept: the next attempt may find a task
            await pulls.delete_receipt(tx, actor=actor, key=idempotency.key)
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
    """Claim what is offered, first come first served, one status after another."""
    offered = replace(request.filter, project_pk=location.project_pk, queue_pk=location.queue_pk)
    time = claim_time(deps, tx, location)
    grants = [new_lease(tx, one, pull_id=pull_id) for one in requests]
    rows: list[TaskRow] = []
    for status in offered.statuses:
        if unfilled := _unfilled(grants, len(rows)):
            rows += await claims.claim_offered(tx, offered, status, unfilled, time)
    results, start = [], 0
    for grant in grants:
        results.append(claim_result(location, grant, time, rows[start : start + grant.limit]))
        start += grant.limit
    return results


def _unfilled(grants: Sequence[LeaseGrant], taken: int) -> list[LeaseGrant]:
    """The grants that still need tasks after `taken` tasks were claimed, with what each still needs."""
    if not taken:
        return list(grants)
    unfilled = []
    for grant in grants:
        filled = min(taken, grant.limit)
        taken -= filled
        if filled < grant.limit:
            unfilled.append(replace(grant, limit=grant.limit - filled))
    return unfilled

"""The edge of pulls: quota, replay, long polling, and the transaction of a batch of coalesced requests.

Concurrent pulls of this process with the same filters share a statement. Everything that waits happens between
transactions: rate limits and quotas are asked for before one is opened, and a waiting pull holds none.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

from penstock.kernel.idempotency import IdempotentRequest
from penstock.tasks import pull as verb
from penstock.tasks import pull_by_id as by_id
from penstock.tasks.claims import ClaimRequest, ClaimResult, idempotent_pull, replay_claim
from penstock.tasks.deps import Deps
from penstock.tasks.lifecycle import offer_channel
from penstock.tasks.pull import PullRequest
from penstock.tasks.pull_by_id import PullByIdRequest, PullByIdResult

COALESCED_LIMIT = 10  # a larger batch runs as its own statement, in parallel with others
POLL_SECONDS = 1.0  # a waiting pull is notified of new offers; it also polls, in case a notification is lost


async def pull(
    deps: Deps,
    request: PullRequest,
    claim: ClaimRequest,
    *,
    wait_seconds: float,
    is_connected: Callable[[], Awaitable[bool]],
) -> ClaimResult:
    """Claim up to `claim.limit` tasks; wait for the first one if the request says so."""
    idempotency = idempotent_pull(request, claim)
    if idempotency is not None:  # before the quota: the first request has paid for these tasks
        async with deps.db.read() as tx:
            replay = await replay_claim(tx, claim, idempotency)
        if replay is not None:
            return replay
    result = await _try(deps, request, claim, idempotency)
    if result.rows or wait_seconds <= 0:
        return result
    clock = deps.db.clock
    deadline = clock.now() + timedelta(seconds=wait_seconds)
    listener = deps.db.wakeups.listen([offer_channel(result.project_pk)])
    try:
        while not (result := await _try(deps, request, claim, idempotency)).rows:
            left = (deadline - clock.now()).total_seconds()
            if left <= 0:
                break
            await listener.wait(seconds=min(left, POLL_SECONDS))
            if not await is_connected():  # tasks claimed for a closed connection wait until the lease expires
                break
    finally:
        deps.db.wakeups.unlisten(listener)
    return result


async def pull_by_id(deps: Deps, request: PullByIdRequest, claim: ClaimRequest) -> PullByIdResult:
    """Claim those of the named tasks that are offered, within the limit and the quota."""
    idempotency = idempotent_pull(request, claim)
    if idempotency is not None:  # before the quota: the first request has paid for these tasks
        async with deps.db.read() as tx:
            replay = await by_id.find_replay(tx, request, claim, idempotency)
        if replay is not None:
            return replay
    actor, taken = claim.caller.actor, 0
    granted = await deps.limiter.reserve(actor, min(len(request.task_ids), claim.limit))
    try:
        async with deps.db.tx(actor=claim.holder.name) as tx:
            result = await by_id.pull_by_id(tx, deps, request, replace(claim, limit=granted), idempotency)
        taken = 0 if result.claimed.is_replay else len(result.claimed.rows)
        return result
    finally:
        await deps.limiter.give_back(actor, granted - taken)


async def _try(
    deps: Deps, request: PullRequest, claim: ClaimRequest, idempotency: IdempotentRequest | None
) -> ClaimResult:
    """One attempt, within the quota. The unused part of the quota is returned at once, not held while waiting."""
    actor, taken = claim.caller.actor, 0
    granted = await deps.limiter.reserve(actor, claim.limit)
    allowed = claim if granted == claim.limit else replace(claim, limit=granted)
    try:
        if idempotency is not None:
            async with deps.db.tx(actor="pull") as tx:
                result = await verb.pull_once(tx, deps, request, allowed, idempotency)
        elif allowed.limit > COALESCED_LIMIT:
            [result] = await _pull_batch(deps, request, [allowed])
        else:
            result = await deps.coalescer.submit(request.key, allowed, partial(_pull_batch, deps, request))
        taken = 0 if result.is_replay else len(result.rows)
        return result
    finally:
        await deps.limiter.give_back(actor, granted - taken)


async def _pull_batch(deps: Deps, request: PullRequest, requests: Sequence[ClaimRequest]) -> Sequence[ClaimResult]:
    """Claim for all coalesced requests, in one statement, which commits by itself."""
    async with deps.db.autocommit(actor="pull") as tx:
        return await verb.pull(tx, deps, request, requests)

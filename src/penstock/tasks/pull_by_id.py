"""Pull tasks by id, one or a batch: each task is claimed, or the result gives the reason of its failure.

Ids beyond the limit or the daily quota fail too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from penstock.kernel.db import Tx
from penstock.kernel.errors import PenstockError
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
from penstock.tasks.domain import PullState, Side, Task
from penstock.tasks.errors import NotOffered, TaskIsHeld
from penstock.tasks.lifecycle import by_task_id, resolve_task
from penstock.tasks.store import claims, locations, queues, tasks
from penstock.tasks.store.offers import PullFilter, ValueRange, matched_tags

ALREADY_PULLED = ("it was already pulled", "已被拉取")
WRITTEN_BY_CLIENT = ("a client wrote it last", "最后由客户端写入")
EXPIRED = ("it has expired", "已过期")
TOO_MANY_ATTEMPTS = ("it was pulled too many times without a push", "被拉取多次而未推送")
FILTERED = ("it does not match the filters", "不符合过滤条件")
LIMIT_REACHED = ("this pull has reached its limit", "本次拉取的任务数已达上限")


@dataclass(frozen=True, kw_only=True)
class PullByIdRequest:
    """The task ids to claim, from where, and the filters they must match."""

    project_id: str
    queue_id: str | None
    task_ids: Sequence[str]
    filter: PullFilter | None = None  # None claims whatever is offered
    idempotency_key: str | None = None

    @property
    def identity(self) -> str:
        """What the request asks for, as text. Receipts store its hash, so its form stays the same across releases."""
        filters = None if self.filter is None else self.filter.identity
        place = f"project_id={self.project_id!r}, queue_id={self.queue_id!r}"
        return (
            f"(Names({place}, task_ids={self.task_ids!r}, wanted={filters}, idempotency_key={self.idempotency_key!r}),)"
        )


@dataclass(frozen=True, kw_only=True)
class PullByIdResult:
    """What was claimed, and the error for each id that was not."""

    claimed: ClaimResult
    failed: dict[str, PenstockError]
    claimable: Sequence[Task] = ()  # what can be claimed, before the claim


async def find_replay(
    tx: Tx, request: PullByIdRequest, claim: ClaimRequest, idempotency: IdempotentRequest
) -> PullByIdResult | None:
    """The result of an earlier request with this key; None if the key is new."""
    replay = await replay_claim(tx, claim, idempotency)
    return None if replay is None else await _check(tx, request, replace(claim, limit=0), replay)


async def pull_by_id(
    tx: Tx, deps: Deps, request: PullByIdRequest, claim: ClaimRequest, idempotency: IdempotentRequest | None
) -> PullByIdResult:
    """Claim those of the named tasks that are offered, up to `claim.limit`."""
    location = await locations.get_location(tx, request.project_id, request.queue_id)
    pull_id = tx.new_id("pull")
    if idempotency is not None and not await claim_pull_key(tx, idempotency, pull_id):
        replay = await find_replay(tx, request, claim, idempotency)
        if replay is not None:
            return replay
    result = await _check(tx, request, claim, ClaimResult(project_pk=location.project_pk))
    claimable = {one.id: one for one in result.claimable}
    time = claim_time(deps, tx, location)
    grant = new_lease(tx, replace(claim, limit=max(1, len(claimable))), pull_id=pull_id)
    rows = await claims.claim_offered_by_pk(tx, list(claimable), grant, time) if claimable else []
    for lost in claimable.keys() - {row.id for row in rows}:  # another pull was faster
        result.failed[claimable[lost].task_id] = _not_offered(claimable[lost], ALREADY_PULLED)
    if idempotency is not None and not rows:
        await delete_key(tx, idempotency)
    return replace(result, claimed=claim_result(location, grant, time, rows))


async def _check(tx: Tx, request: PullByIdRequest, claim: ClaimRequest, claimed: ClaimResult) -> PullByIdResult:
    """Which tasks can be claimed in addition to `claimed`, and the error for each of the others."""
    location = await locations.get_location(tx, request.project_id, request.queue_id)
    queue = None
    if request.queue_id is not None:
        queue = await queues.get_queue(tx, location.project_pk, request.queue_id, project_id=request.project_id)
    candidates = by_task_id(await tasks.list_by_task_id(tx, location.project_pk, request.task_ids))
    already = {row.task_id for row in claimed.rows}
    claimable: list[Task] = []
    failed: dict[str, PenstockError] = {}
    for task_id in request.task_ids:
        if task_id in already:
            continue
        try:
            one = resolve_task(candidates[task_id], request.project_id, task_id, queue)
            _refuse_unclaimable(one, request.filter, tx.now)
            if len(claimable) >= claim.limit:
                raise _not_offered(one, LIMIT_REACHED)
        except PenstockError as error:
            failed[task_id] = error
        else:
            claimable.append(one)
    return PullByIdResult(claimed=claimed, failed=failed, claimable=claimable)


def _refuse_unclaimable(one: Task, pull_filter: PullFilter | None, now: datetime) -> None:
    if one.state is PullState.HELD:
        raise TaskIsHeld(task_id=one.task_id, holder=one.lease_owner)
    if one.state is PullState.CLOSED:
        raise _not_offered(one, ALREADY_PULLED)
    if one.source is not Side.SERVER:
        raise _not_offered(one, WRITTEN_BY_CLIENT)
    if not one.is_offerable(now):
        raise _not_offered(one, EXPIRED)
    if one.state is PullState.IDLE:
        raise _not_offered(one, TOO_MANY_ATTEMPTS)
    if pull_filter is not None and not _matches(one, pull_filter):
        raise _not_offered(one, FILTERED)


def _matches(one: Task, pull_filter: PullFilter) -> bool:
    """Whether a task matches the filters; `store/offers.py` has the same conditions in SQL."""
    return (
        one.status in pull_filter.statuses
        and (not pull_filter.tags or not set(pull_filter.tags).isdisjoint(matched_tags(one.tags)))
        and pull_filter.first_rank <= one.priority <= pull_filter.last_rank
        and _is_inside(one.created_at, pull_filter.created)
        and _is_inside(one.server_modified_at, pull_filter.modified)
        and _is_inside(one.version, pull_filter.version)
    )


def _is_inside(value: datetime | int | None, limits: ValueRange) -> bool:
    if limits == ValueRange():
        return True
    if value is None:
        return False
    return not (_is_before(value, limits.start) or not _is_before(value, limits.end, otherwise=True))


def _is_before(value: datetime | int, end: datetime | int | None, *, otherwise: bool = False) -> bool:
    if isinstance(value, datetime) and isinstance(end, datetime):
        return value < end
    if isinstance(value, int) and isinstance(end, int):
        return value < end
    return otherwise


def _not_offered(one: Task, reason: tuple[str, str]) -> NotOffered:
    return NotOffered(task_id=one.task_id, reason=reason[0], reason_zh=reason[1])

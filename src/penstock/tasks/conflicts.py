"""Conflicts: when a client's update of a task is rejected.

The task was deleted, the client's pull of it has ended (a late push with an old token), or, with the conflict policy
`reject`, the server or another holder has changed it. By default a push overwrites what the server wrote. The error
names all such tasks, and nothing is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.kernel.db import Tx
from penstock.kernel.errors import PenstockError
from penstock.tasks.domain import Holder, Policy, Project, PullOutcome, Task
from penstock.tasks.errors import NotPulled, NotTheHolder, PullLost, PushRefused, TasksGone, task_ids_details
from penstock.tasks.store import pulls

LEASE_ENDED = {"reason": "it was pushed, released or revoked before", "reason_zh": "此前已被推送、归还或收回"}
REASONS = {
    PullOutcome.PUSHED: ("it was pushed by {by}", "已由 {by} 推送"),
    PullOutcome.RELEASED: ("it was released by {by}", "已由 {by} 释放"),
    PullOutcome.TIMED_OUT: ("its lease expired", "已超时"),
    PullOutcome.REVOKED: ("it was edited or reset by {by}", "已被 {by} 编辑或重置"),
    PullOutcome.OVERWRITTEN: ("it was pushed by {by}, who did not hold it", "已由未持有它的 {by} 推送"),
}
NOT_HELD = ("nobody holds it", "没有人持有该任务")
HELD_BY_ANOTHER = ("{holder} holds it now", "现由 {holder} 持有")


@dataclass(frozen=True, kw_only=True)
class ClientUpdate:
    """An update that a client sends for a stored task."""

    holder: Holder
    task: Task
    changes: bool  # whether it differs from what is stored


async def refuse_conflicts(tx: Tx, project: Project, updates: Sequence[ClientUpdate]) -> None:
    """Raise the first conflict of a whole push: deleted tasks, lost leases, then overwrites."""
    deleted = [one.task.task_id for one in updates if one.task.deleted_at is not None]
    if deleted:
        raise TasksGone(project_id=project.project_id, **task_ids_details(deleted))
    lost = [one.task.task_id for one in await list_lost_leases(tx, updates)]
    if lost:
        raise PullLost(task_id=lost[0], **LEASE_ENDED, **task_ids_details(lost))
    refuse_overwrites(project, updates)


def refuse_overwrites(project: Project, updates: Sequence[ClientUpdate]) -> None:
    """With the policy `reject`, refuse to overwrite server edits and tasks that others hold."""
    if project.conflict_policy is Policy.OVERWRITE:
        return
    overwritten = [one.task.task_id for one in updates if one.holder.would_overwrite(one.task)]
    if overwritten:
        raise PushRefused(project_id=project.project_id, **task_ids_details(overwritten))


async def list_lost_leases(tx: Tx, updates: Sequence[ClientUpdate]) -> list[ClientUpdate]:
    """Updates under a lease that is over. Repeating the push that ended the lease is accepted."""
    lost = [one for one in updates if one.holder.lost_lease(one.task)]
    repeated = [one.task.id for one in lost if not one.changes]
    last = await pulls.list_last_tokens(tx, repeated) if repeated else {}
    return [one for one in lost if one.changes or last.get(one.task.id) != (one.holder.token, PullOutcome.PUSHED)]


def push_outcome(holder: Holder, before: Task) -> PullOutcome:
    """How a push ends the pull of a task: the holder's own push, or one by another client."""
    return PullOutcome.PUSHED if holder.holds(before) else PullOutcome.OVERWRITTEN


def differs(before: Task, after: Task) -> bool:
    """Whether there is more to write than a renewed lease."""
    return after is not before and replace(after, leased_until=before.leased_until) != before


async def lease_lost_error(tx: Tx, task: Task, holder: Holder) -> PenstockError:
    """The error for a client that does not hold a task: how its pull ended and who holds the task now.

    A client that never held the task gets `NotTheHolder`.
    """
    last = await pulls.find_pull(tx, task.id, name=holder.name, token=holder.token)
    if last is None and holder.token is None and task.is_held:
        return NotTheHolder(task_id=task.task_id, holder=task.lease_owner)
    outcome = None if last is None else last.outcome
    reasons = [] if outcome is None else [REASONS[outcome]]
    if task.is_held:
        reasons.append(HELD_BY_ANOTHER)
    values = {"by": None if last is None else last.ended_by, "holder": task.lease_owner if task.is_held else None}
    english, chinese = zip(*(reasons or [NOT_HELD]), strict=True)
    return PullLost(
        task_id=task.task_id,
        reason="; ".join(english).format(**values),
        reason_zh="；".join(chinese).format(**values),
        outcome=outcome,
        holder=values["holder"],
    )


def not_pulled_error(lost: PenstockError) -> NotPulled:
    """The error of a release of a task that nobody holds: invalid, as existing clients expect."""
    return NotPulled(**lost.values)

"""What someone is told who acts on a task that is not in their hands: how their pull ended, and who has it now."""

from penstock.kernel.db import Tx
from penstock.kernel.errors import PenstockError
from penstock.tasks.domain import Holder, Outcome, Task
from penstock.tasks.errors import NotTheHolder, PullLost
from penstock.tasks.store import pulls
from penstock.tasks.store.pulls import Pull

REASONS = {
    Outcome.PUSHED: ("it was pushed by {by}", "已由 {by} 推送"),
    Outcome.RELEASED: ("it was released by {by}", "已由 {by} 释放"),
    Outcome.TIMED_OUT: ("its time ran out", "已超时"),
    Outcome.REVOKED: ("it was edited or reset by {by}", "已被 {by} 编辑或重置"),
}
NOBODY = ("nobody holds it", "没有人持有该任务")
ANOTHER = ("{holder} holds it now", "现由 {holder} 持有")


async def lost(tx: Tx, task: Task, holder: Holder) -> PenstockError:
    """The error for a holder who does not hold the task. Who never had it is told that it is not theirs."""
    last = await pulls.find_pull(tx, task.id, name=holder.name, token=holder.token)
    if last is None and holder.token is None and task.is_held:
        return NotTheHolder(task_id=task.task_id, holder=task.lease_owner)
    return _pull_lost(task, last)


def _pull_lost(task: Task, last: Pull | None) -> PullLost:
    outcome = None if last is None else last.outcome
    reasons = [] if outcome is None else [REASONS[outcome]]
    if task.is_held:
        reasons.append(ANOTHER)
    values = {"by": None if last is None else last.ended_by, "holder": task.lease_owner if task.is_held else None}
    english, chinese = zip(*(reasons or [NOBODY]), strict=True)
    return PullLost(
        task_id=task.task_id,
        reason="; ".join(english).format(**values),
        reason_zh="；".join(chinese).format(**values),
        outcome=outcome,
        holder=values["holder"],
    )

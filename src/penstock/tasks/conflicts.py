"""When a client's word on a task is not taken: the task is gone, the client's pull of it is over, or, where the project
says so, others have written since. Every task in question is named, and nothing is written."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.kernel.db import Tx
from penstock.tasks.domain import Holder, Outcome, Policy, Project, Task
from penstock.tasks.errors import PullLost, PushRefused, TasksGone, naming
from penstock.tasks.lifecycle import by_name
from penstock.tasks.store import pulls, tasks

OVER = {"reason": "it was pushed, given back or taken away before", "reason_zh": "此前已被推送、归还或收回"}

MOVED = {"reason": "it is not in this queue, or no longer", "reason_zh": "它不在或已不在此队列中"}


@dataclass(frozen=True, kw_only=True)
class Saying:
    """What a client says of a task that is here."""

    holder: Holder
    task: Task
    changes: bool  # whether it says anything that is not so already


async def refuse(tx: Tx, project: Project, said: Sequence[Saying]) -> None:
    """Raise what speaks against all of it being taken, if anything does."""
    gone = [one.task.task_id for one in said if one.task.deleted_at is not None]
    if gone:
        raise TasksGone(project_id=project.project_id, **naming(gone))
    over = [one.task.task_id for one in await list_lost(tx, said)]
    if over:
        raise PullLost(task_id=over[0], **OVER, **naming(over))
    refuse_running_over(project, said)


async def refuse_moved(tx: Tx, project: Project, unknown: Sequence[tuple[str, Holder]]) -> None:
    """Refuse tasks that are not where they are pushed to, but in this client's hands elsewhere: someone moved them, and
    taken they would be there twice."""
    if not unknown:
        return
    elsewhere = by_name(await tasks.list_namesakes(tx, project.id, [task_id for task_id, _ in unknown]))
    moved = [
        task_id
        for task_id, holder in unknown
        if holder.token is not None or any(holder.holds(one) for one in elsewhere[task_id])
    ]
    if moved:
        raise PullLost(task_id=moved[0], **MOVED, **naming(moved))


def refuse_running_over(project: Project, said: Sequence[Saying]) -> None:
    """Keep what the server wrote last, and what others hold, where the project's policy protects it."""
    if project.conflict_policy is Policy.OVERWRITE:
        return
    over = [one.task.task_id for one in said if one.holder.runs_over(one.task)]
    if over:
        raise PushRefused(project_id=project.project_id, **naming(over))


async def list_lost(tx: Tx, said: Sequence[Saying]) -> list[Saying]:
    """Those who speak for a pull that is over. Who closed it, and only says the same again, is welcome."""
    lost = [one for one in said if one.holder.lost(one.task)]
    again = [one.task.id for one in lost if not one.changes]
    last = await pulls.list_last_tokens(tx, again) if again else {}
    return [one for one in lost if one.changes or last.get(one.task.id) != (one.holder.token, Outcome.PUSHED)]


def differs(before: Task, after: Task) -> bool:
    """Whether there is more to write than for how long its holder may keep it."""
    return after is not before and replace(after, leased_until=before.leased_until) != before

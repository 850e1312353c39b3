"""What can be wrong in the tasks room. Its envelope shows these under nine codes; `details.code` has ours."""

from collections.abc import Sequence
from typing import Any

from penstock.kernel.errors import Conflict, Gone, Invalid, NotFound, Refused, TooMany

SHOWN_IDS = 100


class ProjectNotFound(NotFound):
    """There is no such project."""

    code = "PROJECT_NOT_FOUND"
    message = "There is no project {project_id}."
    message_zh = "没有项目 {project_id}。"
    hint = "Projects are made by a push, or by POST /api/v1/projects."
    hint_zh = "项目由推送或 POST /api/v1/projects 创建。"


class QueueNotFound(NotFound):
    """There is no such queue in the project."""

    code = "QUEUE_NOT_FOUND"
    message = "There is no queue {queue_id} in project {project_id}."
    message_zh = "项目 {project_id} 中没有队列 {queue_id}。"
    hint = "Look at the project's queues; a queue is made by a push, or by POST /projects/{project}/queues."
    hint_zh = "请查看项目的队列；队列由推送或 POST /projects/{project}/queues 创建。"


class TaskNotFound(NotFound):
    """There is no such task where it was looked for."""

    code = "TASK_NOT_FOUND"
    message = "There is no task {task_id} in {place}."
    message_zh = "{place_zh}中没有任务 {task_id}。"
    hint = "A task is known by its id inside its queue, or inside its project when it has none."
    hint_zh = "任务以其在队列中的编号识别；没有队列的任务以其在项目中的编号识别。"


class OtherProject(Refused):
    """The key is bound to another project."""

    code = "OTHER_PROJECT"
    message = "This key is bound to another project."
    message_zh = "此密钥绑定在另一个项目上。"
    hint = "Use a key of this project, or one that is bound to none."
    hint_zh = "请使用该项目的密钥，或未绑定项目的密钥。"


class NotTheHolder(Refused):
    """Only who holds a task, or an admin, may let go of it."""

    code = "NOT_THE_HOLDER"
    message = "The task {task_id} is held by {holder}."
    message_zh = "任务 {task_id} 由 {holder} 持有。"
    hint = "Send the lease_token of the pull, or the X-Client-Id it was made with."
    hint_zh = "请发送拉取时得到的 lease_token，或拉取时使用的 X-Client-Id。"


class AmbiguousTask(Conflict):
    """Several queues have a task of that id."""

    code = "AMBIGUOUS_TASK"
    is_shown_by_its_code = True
    message = "There are several tasks {task_id} in project {project_id}, in the queues {shown}."
    message_zh = "项目 {project_id} 中有多个任务 {task_id}，分别在队列 {shown}。"
    hint = "Name the queue: /projects/{project}/queues/{queue}/tasks/{task}."
    hint_zh = "请指明队列：/projects/{project}/queues/{queue}/tasks/{task}。"


class ProjectExists(Conflict):
    """There is a project of that id already."""

    code = "PROJECT_EXISTS"
    message = "There is a project {project_id} already."
    message_zh = "已有项目 {project_id}。"
    hint = "Choose another id, or change the project with PUT."
    hint_zh = "请换一个编号，或用 PUT 修改该项目。"


class QueueExists(Conflict):
    """There is a queue of that id already in the project."""

    code = "QUEUE_EXISTS"
    message = "There is a queue {queue_id} already in project {project_id}."
    message_zh = "项目 {project_id} 中已有队列 {queue_id}。"
    hint = "Choose another id, or change the queue with PUT."
    hint_zh = "请换一个编号，或用 PUT 修改该队列。"


class TaskExists(Conflict):
    """There is a task of that id already, perhaps a deleted one."""

    code = "TASK_EXISTS"
    message = "There is a task {task_id} already in {place}."
    message_zh = "{place_zh}中已有任务 {task_id}。"
    hint = "Choose another id; a deleted task keeps its id."
    hint_zh = "请换一个编号；已删除的任务仍占用其编号。"


class TaskIsHeld(Conflict):
    """Somebody holds the task."""

    code = "TASK_IS_HELD"
    message = "The task {task_id} is held by {holder}."
    message_zh = "任务 {task_id} 由 {holder} 持有。"
    hint = "Wait until it comes back, or reset its pull."
    hint_zh = "请等待其归还，或重置其拉取状态。"


class NotOffered(Conflict):
    """The task is not on offer to those who pull."""

    code = "TASK_NOT_OFFERED"
    message = "The task {task_id} cannot be pulled: {reason}."
    message_zh = "任务 {task_id} 不能被拉取：{reason_zh}。"
    hint = "Only tasks that the server wrote last, and that have not expired, can be pulled."
    hint_zh = "只有服务端最后写入且未过期的任务才能被拉取。"


class PullLost(Conflict):
    """The task is no longer in this holder's hands."""

    code = "PULL_LOST"
    message = "The pull of task {task_id} is over: {reason}."
    message_zh = "任务 {task_id} 的拉取已结束：{reason_zh}。"
    hint = "Pull again; what was done under the old pull is not taken."
    hint_zh = "请重新拉取；旧的拉取下完成的内容不被接受。"


class PushRefused(Conflict):
    """The project refuses pushes of tasks that were changed meanwhile; nothing was written."""

    code = "PUSH_CONFLICT"
    message = "{count} tasks were changed here, or are held by others: {shown}."
    message_zh = "{count} 个任务已在服务端变更或由他人持有：{shown}。"
    hint = "Pull these tasks again, then push."
    hint_zh = "请重新拉取这些任务后再推送。"


class TasksGone(Gone):
    """Tasks of a push were deleted here; nothing was written."""

    code = "TASKS_DELETED"
    message = "{count} tasks were deleted: {shown}."
    message_zh = "{count} 个任务已被删除：{shown}。"
    hint = "Leave these tasks out of the push."
    hint_zh = "请从推送中去掉这些任务。"


class TaskGone(Gone):
    """The task was deleted."""

    code = "TASK_DELETED"
    message = "The task {task_id} was deleted."
    message_zh = "任务 {task_id} 已被删除。"
    hint = "Its history can still be read under /pull/history."
    hint_zh = "仍可在 /pull/history 查看其拉取历史。"


class TaskArchived(Gone):
    """The task was archived."""

    code = "TASK_ARCHIVED"
    message = "The task {task_id} was archived."
    message_zh = "任务 {task_id} 已归档。"
    hint = "What is archived can be read, and is no longer worked on."
    hint_zh = "已归档的任务可以查看，但不再执行。"


class KeyReused(Conflict):
    """An Idempotency-Key was used again for something else."""

    code = "IDEMPOTENCY_KEY_REUSED"
    message = "This Idempotency-Key was used for another pull."
    message_zh = "此 Idempotency-Key 已用于另一次拉取。"
    hint = "Use a new key for every new pull; the same key only to ask for the same answer again."
    hint_zh = "每次新的拉取请使用新的键；只有在重新索取同一答复时才使用相同的键。"


class BadTask(Invalid):
    """A value of a task cannot be taken."""

    code = "BAD_TASK"
    message = "{field}: {reason}"
    message_zh = "字段 {field}：{reason_zh}"
    hint = "See docs/reference/tasks.md for what each field may hold."
    hint_zh = "各字段的取值见 docs/reference/tasks.md。"


class TooManyPulls(TooMany):
    """A key pulls more often than it may."""

    code = "TOO_MANY_PULLS"
    message = "This key may pull {limit}; try again in {whole_seconds} s."
    message_zh = "此密钥的拉取上限为 {limit_zh}，请在 {whole_seconds} 秒后重试。"
    hint = "Pull more tasks at once, or use wait= instead of asking again and again."
    hint_zh = "请一次拉取更多任务，或使用 wait= 代替反复请求。"


class PullQuotaSpent(TooMany):
    """A key has pulled as many tasks today as it may."""

    code = "PULL_QUOTA_SPENT"
    message = "This key may pull {limit} tasks a day, and has; try again in {whole_seconds} s."
    message_zh = "此密钥每天最多拉取 {limit} 个任务，已用完，请在 {whole_seconds} 秒后重试。"
    hint = "The quota is full again at midnight UTC."
    hint_zh = "配额在 UTC 零点恢复。"


def naming(task_ids: Sequence[str]) -> dict[str, Any]:
    """The values of an error about many tasks: all of them for a program, within reason, and a few for a person."""
    return {"count": len(task_ids), "shown": ", ".join(task_ids[:5]), "tasks": list(task_ids[:SHOWN_IDS])}


def place_of(project_id: str, queue_id: str | None) -> dict[str, Any]:
    """The values of an error about a task: where it was looked for."""
    beside = {"place": f"project {project_id}", "place_zh": f"项目 {project_id} "}
    inside = {"place": f"queue {queue_id} of project {project_id}", "place_zh": f"项目 {project_id} 的队列 {queue_id} "}
    return {"project_id": project_id, "queue_id": queue_id or None, **(inside if queue_id else beside)}

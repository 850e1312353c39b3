"""Errors of the tasks module. The envelope maps them to a few codes; `details.code` has the specific one."""

from collections.abc import Sequence
from typing import Any

from penstock.kernel.errors import Conflict, Gone, Invalid, NotFound, Refused, TooMany, Unauthenticated
from penstock.kernel.idempotency import IdempotencyKeyReused

MAX_LISTED_IDS = 100


class ProjectNotFound(NotFound):
    """The project does not exist."""

    code = "PROJECT_NOT_FOUND"
    message = "Project {project_id} does not exist."
    message_zh = "没有项目 {project_id}。"
    hint = "Create a project with a push, or with POST /api/v1/projects."
    hint_zh = "请通过推送或 POST /api/v1/projects 创建项目。"


class QueueNotFound(NotFound):
    """The queue does not exist in the project."""

    code = "QUEUE_NOT_FOUND"
    message = "Queue {queue_id} does not exist in project {project_id}."
    message_zh = "项目 {project_id} 中没有队列 {queue_id}。"
    hint = "List the project's queues. Create a queue with a push, or with POST /projects/{project}/queues."
    hint_zh = "请查看项目的队列；可通过推送或 POST /projects/{project}/queues 创建队列。"


class TaskNotFound(NotFound):
    """The task does not exist in that queue or project."""

    code = "TASK_NOT_FOUND"
    message = "Task {task_id} does not exist in {place}."
    message_zh = "{place_zh}中没有任务 {task_id}。"
    hint = "A task id is unique inside its queue, or inside the project for a task without a queue."
    hint_zh = "任务编号在其队列内唯一；没有队列的任务，其编号在项目内唯一。"


class OperationNotFound(NotFound):
    """The queue operation does not exist, or its record was deleted after its retention."""

    code = "OPERATION_NOT_FOUND"
    message = "Operation {operation_id} does not exist."
    message_zh = "没有操作 {operation_id}。"
    hint = "List the operations of the project: GET /projects/{project}/operations."
    hint_zh = "请查看项目的操作：GET /projects/{project}/operations。"


class OperationRunning(Conflict):
    """Another operation on the queue is running in the background."""

    code = "OPERATION_RUNNING"
    message = "A {kind} of queue {queue_id} is running: {done} of {total} tasks are done."
    message_zh = "队列 {queue_id} 正在执行 {kind}：已完成 {done}/{total} 个任务。"
    hint = "Wait until it has ended: GET /projects/{project}/operations/{operation_id}."
    hint_zh = "请等待其结束：GET /projects/{project}/operations/{operation_id}。"
    retryable = True


class OtherProject(Refused):
    """The API key is bound to another project."""

    code = "OTHER_PROJECT"
    message = "This API key is bound to another project."
    message_zh = "此密钥绑定在另一个项目上。"
    hint = "Use a key of this project, or an unbound key."
    hint_zh = "请使用该项目的密钥，或未绑定项目的密钥。"


class OwnerRefused(Refused):
    """Only an admin of all projects can set the merchant of a project."""

    code = "OWNER_REFUSED"
    message = "Only an admin of all projects can set the merchant of a project."
    message_zh = "只有可以访问全部项目的管理员才能设置项目所属的商户。"
    hint = "Leave merchant_id out, or use an admin key that is not bound to a project."
    hint_zh = "请不要提供 merchant_id，或使用未绑定项目的管理员密钥。"


class ProjectRequired(Invalid):
    """A caller who may use only some projects must name the project of a statistic."""

    code = "PROJECT_REQUIRED"
    message = "project_id is required: this token may use only some projects."
    message_zh = "需要 project_id：此令牌只能使用部分项目。"
    hint = "Name one of the projects that GET /api/v1/projects lists."
    hint_zh = "请指定 GET /api/v1/projects 列出的某个项目。"

    def __init__(self) -> None:
        super().__init__(field="project_id")


class OtherProjectPush(Unauthenticated):
    """A push with an API key that is bound to another project. Existing clients know it as an invalid key."""

    code = "OTHER_PROJECT_PUSH"
    message = "This API key is bound to another project than {project_id}."
    message_zh = "此密钥绑定在 {project_id} 以外的项目上。"
    hint = "Push with a key of this project, or with an unbound key."
    hint_zh = "请使用该项目的密钥或未绑定项目的密钥推送。"


class NotPulled(Invalid):
    """A release of a task that nobody holds."""

    code = "TASK_NOT_PULLED"
    message = "Task {task_id} cannot be released: {reason}."
    message_zh = "任务 {task_id} 不能释放：{reason_zh}。"
    hint = "Only a pulled task can be released."
    hint_zh = "只有已拉取的任务才能释放。"


class NotTheHolder(Refused):
    """Another client holds the task. Only the holder can confirm or renew a pull; the holder or an admin releases."""

    code = "NOT_THE_HOLDER"
    message = "Task {task_id} is held by {holder}."
    message_zh = "任务 {task_id} 由 {holder} 持有。"
    hint = "Send the lease_token of the pull, or the X-Client-Id it was made with."
    hint_zh = "请发送拉取时得到的 lease_token，或拉取时使用的 X-Client-Id。"


class AmbiguousTask(Conflict):
    """The task id is ambiguous: several queues of the project have a task with that id."""

    code = "AMBIGUOUS_TASK"
    envelope_code = code
    message = "Task id {task_id} is ambiguous in project {project_id}: it exists in the queues {shown}."
    message_zh = "项目 {project_id} 中的任务编号 {task_id} 不唯一，存在于队列 {shown}。"
    hint = "Name the queue: /projects/{project}/queues/{queue}/tasks/{task}."
    hint_zh = "请指明队列：/projects/{project}/queues/{queue}/tasks/{task}。"


class ProjectExists(Conflict):
    """A project with that id already exists."""

    code = "PROJECT_EXISTS"
    envelope_code = "DUPLICATE_KEY"
    message = "Project {project_id} already exists."
    message_zh = "项目 {project_id} 已存在。"
    hint = "Choose another id, or change the project with PUT."
    hint_zh = "请换一个编号，或用 PUT 修改该项目。"


class QueueExists(Conflict):
    """A queue with that id already exists in the project."""

    code = "QUEUE_EXISTS"
    envelope_code = "DUPLICATE_KEY"
    message = "Queue {queue_id} already exists in project {project_id}."
    message_zh = "项目 {project_id} 中已存在队列 {queue_id}。"
    hint = "Choose another id, or change the queue with PUT."
    hint_zh = "请换一个编号，或用 PUT 修改该队列。"


class TaskExists(Conflict):
    """A task with that id already exists, possibly deleted."""

    code = "TASK_EXISTS"
    envelope_code = "DUPLICATE_KEY"
    message = "Task {task_id} already exists in {place}."
    message_zh = "{place_zh}中已存在任务 {task_id}。"
    hint = "Choose another id; a deleted task keeps its id."
    hint_zh = "请换一个编号；已删除的任务仍占用其编号。"


class TaskIsHeld(Conflict):
    """A pull by id found a task that another client holds."""

    code = "TASK_IS_HELD"
    message = "Task {task_id} is held by {holder}."
    message_zh = "任务 {task_id} 由 {holder} 持有。"
    hint = "Wait until it is released or pushed, or reset its pull."
    hint_zh = "请等待其释放或推送，或重置其拉取状态。"


class NotOffered(Conflict):
    """The task is not on offer, so it cannot be pulled."""

    code = "TASK_NOT_OFFERED"
    message = "Task {task_id} cannot be pulled: {reason}."
    message_zh = "任务 {task_id} 不能被拉取：{reason_zh}。"
    hint = "Only unexpired tasks that the server wrote last can be pulled."
    hint_zh = "只有服务端最后写入且未过期的任务才能被拉取。"


class PullLost(Conflict):
    """The client's pull of the task has ended: the task was pushed, released, timed out, edited, reset or moved."""

    code = "PULL_LOST"
    message = "The pull of task {task_id} has ended: {reason}."
    message_zh = "任务 {task_id} 的拉取已结束：{reason_zh}。"
    hint = "Pull again; work done under the old lease is not accepted."
    hint_zh = "请重新拉取；在旧租约下完成的内容不被接受。"


class PushRefused(Conflict):
    """The conflict policy is reject, and the server or another holder has changed pushed tasks; nothing was written."""

    code = "PUSH_CONFLICT"
    message = "{count} tasks were changed on the server, or are held by other clients: {shown}."
    message_zh = "{count} 个任务已在服务端变更或由他人持有：{shown}。"
    hint = "Pull these tasks again, then push."
    hint_zh = "请重新拉取这些任务后再推送。"


class TasksGone(Gone):
    """The push conflicts with deleted tasks; nothing was written."""

    code = "TASKS_DELETED"
    message = "{count} tasks were deleted: {shown}."
    message_zh = "{count} 个任务已被删除：{shown}。"
    hint = "Remove these tasks from the push."
    hint_zh = "请从推送中去掉这些任务。"


class TaskGone(Gone):
    """The task was deleted."""

    code = "TASK_DELETED"
    message = "Task {task_id} was deleted."
    message_zh = "任务 {task_id} 已被删除。"
    hint = "Its pull history is still available under /pull/history."
    hint_zh = "仍可在 /pull/history 查看其拉取历史。"


class TaskArchived(Gone):
    """The expired task was archived, so it cannot be reset or re-run."""

    code = "TASK_ARCHIVED"
    message = "Task {task_id} was archived."
    message_zh = "任务 {task_id} 已归档。"
    hint = "Archived tasks can be read but not worked on."
    hint_zh = "已归档的任务可以查看，但不再执行。"


class KeyReused(IdempotencyKeyReused):
    """An Idempotency-Key was reused for a different pull. Clients know it as a conflict."""

    status = 409


class BadTask(Invalid):
    """A field of a task has an invalid value."""

    code = "BAD_TASK"
    message = "{field}: {reason}"
    message_zh = "字段 {field}：{reason_zh}"
    hint = "See docs/reference/tasks.md for the allowed values."
    hint_zh = "各字段的取值见 docs/reference/tasks.md。"


class TooManyPulls(TooMany):
    """An API key exceeds its pull rate."""

    code = "TOO_MANY_PULLS"
    message = "This API key may pull {limit}; retry in {whole_seconds} s."
    message_zh = "此密钥的拉取上限为 {limit_zh}，请在 {whole_seconds} 秒后重试。"
    hint = "Pull more tasks per request, or use wait= instead of polling."
    hint_zh = "请每次拉取更多任务，或使用 wait= 代替轮询。"


class PullQuotaSpent(TooMany):
    """An API key has used up its daily pull quota."""

    code = "PULL_QUOTA_SPENT"
    envelope_code = "QUOTA_EXCEEDED"
    message = "This API key has used its quota of {limit} tasks per day; retry in {whole_seconds} s."
    message_zh = "此密钥每天最多拉取 {limit} 个任务，已用完，请在 {whole_seconds} 秒后重试。"
    hint = "The quota resets at midnight UTC."
    hint_zh = "配额在 UTC 零点重置。"


def task_ids_details(task_ids: Sequence[str]) -> dict[str, Any]:
    """Error details about many tasks: the count, the first few for the message, and up to `MAX_LISTED_IDS` ids."""
    return {"count": len(task_ids), "shown": ", ".join(task_ids[:5]), "tasks": list(task_ids[:MAX_LISTED_IDS])}


def location_details(project_id: str, queue_id: str | None) -> dict[str, Any]:
    """Error details about the project or queue of a task."""
    in_project = {"place": f"project {project_id}", "place_zh": f"项目 {project_id} "}
    in_queue = {
        "place": f"queue {queue_id} of project {project_id}",
        "place_zh": f"项目 {project_id} 的队列 {queue_id} ",
    }
    return {"project_id": project_id, "queue_id": queue_id or None, **(in_queue if queue_id else in_project)}

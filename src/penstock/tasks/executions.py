"""Executions: a task that a client reports as done or failed, counted per hour, queue, host and kind of error.

Existing clients read these counts as statistics. They are added in the transaction that changes the tasks.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from penstock.tasks.domain import Change, ChangeKind, Project, Status, Task
from penstock.tasks.store.executions import SUCCESS, ExecutionCount

OTHER = "other"
UNFINISHED = (Status.PENDING, Status.RUNNING)
EXECUTED = (Status.DONE, Status.ERROR)
ERROR_WORDS = {  # by type, in the order in which they are tried
    "timeout": ("timeout", "timed out", "超时"),
    "network": ("network", "connection", "econn", "socket", "dns", "网络", "连接"),
    "permission": ("permission", "denied", "forbidden", "unauthorized", "权限", "未授权"),
    "not_found": ("not found", "no such", "does not exist", "enoent", "不存在", "未找到", "找不到"),
    "validation": ("validation", "invalid", "校验", "验证", "无效"),
}
ERROR_LABELS = {  # in English and Chinese
    "timeout": ("Timeout", "超时"),
    "network": ("Network", "网络"),
    "validation": ("Validation", "验证"),
    "permission": ("Permission", "权限"),
    "not_found": ("Not found", "未找到"),
    "other": ("Other", "其他"),
}
MILLISECONDS = 1000


def list_executions(project: Project, changes: Iterable[Change], *, now: datetime) -> list[ExecutionCount]:
    """The executions among changes of one unit of work. A task and the copy that its client pushed count once."""
    seen: set[str] = set()
    found = []
    for change in changes:
        before, after = change.before, change.after
        if change.kind is not ChangeKind.PUSHED or before is None or after is None or after.task_id in seen:
            continue
        if before.status in UNFINISHED and after.status in EXECUTED:
            seen.add(after.task_id)
            found.append(_execution(project, before, after, now))
    return found


def find_error_type(text: str | None) -> str:
    """The type of an error, by the words of its text."""
    lower = (text or "").lower()
    return next((kind for kind, words in ERROR_WORDS.items() if any(word in lower for word in words)), OTHER)


def _execution(project: Project, before: Task, after: Task, now: datetime) -> ExecutionCount:
    kind = SUCCESS if after.status is Status.DONE else find_error_type(after.error_reason or after.report)
    started = before.started_at or before.pulled_at or _latest([before.created_at, before.server_modified_at])
    return ExecutionCount.single(
        project_pk=project.id,
        hour=now.replace(minute=0, second=0, microsecond=0),
        queue_id=after.queue_id,
        hostname=project.hostname or "",
        kind=kind,
        milliseconds=max(0, round((now - started).total_seconds() * MILLISECONDS)),
    )


def _latest(times: Sequence[datetime | None]) -> datetime:
    return max(at for at in times if at is not None)

"""Response bodies of projects, queues and tasks. Times are UTC with milliseconds."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from fastapi import Request

from penstock.kernel.errors import PenstockError
from penstock.kernel.http.language import localized
from penstock.tasks.domain import PULL_STATE_LABELS, Counts, Project, Task, TaskQueue, priority_label, priority_of
from penstock.tasks.store.task_messages import LogLine, TaskMessage
from penstock.tasks.store.tasks import TaskRow

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


@lru_cache(maxsize=4096)  # tasks that were created together share their times
def format_time(at: datetime | None) -> str | None:
    """A time as ISO 8601. It must be in UTC already: a pull formats thousands, so it is not converted."""
    return None if at is None else at.isoformat(timespec="milliseconds")[:23] + "Z"


def counts_view(counts: Counts) -> dict[str, int]:
    """The `task_stats` of a project or a queue."""
    return {
        "total": counts.total,
        "pending": counts.pending,
        "running": counts.running,
        "done": counts.done,
        "error": counts.error,
        "cancelled": counts.cancelled,
    }


def metadata_view(project: Project) -> dict[str, Any] | None:
    """The metadata of a project, or None if there is none."""
    if project.metadata_created_at is None:
        return None
    return {"customTitle": project.custom_title, "notes": project.notes, "tags": list(project.tags)}


def metadata_response(project: Project) -> dict[str, Any]:
    """The metadata of a project as a resource of its own; without metadata its fields are null and it has no times."""
    shown = {
        "projectId": project.project_id,
        "customTitle": project.custom_title,
        "notes": project.notes,
        "tags": list(project.tags),
    }
    times = {
        "createdAt": format_time(project.metadata_created_at),
        "updatedAt": format_time(project.metadata_updated_at),
    }
    return shown if project.metadata_created_at is None else shown | times


def project_view(project: Project) -> dict[str, Any]:
    """A project."""
    client = {"username": project.username, "hostname": project.hostname, "project_path": project.project_path}
    git = {"repository": project.repository, "branch": project.branch}
    return {
        "id": project.project_id,
        "project_id": project.project_id,
        "name": project.name,
        "displayTitle": project.display_title,
        "metadata": metadata_view(project),
        "clientInfo": client if any(client.values()) else None,
        "gitInfo": git if any(git.values()) else None,
        "conflict_policy": project.conflict_policy,
        "merchant_id": project.merchant_id,
        "version": project.version,
        "queue_count": project.queue_count,
        "task_count": project.queue_counts.total,
        "task_stats": counts_view(project.queue_counts),
        "unqueued_count": project.unqueued.total,
        "last_task_at": format_time(project.last_task_at),
        "created_at": format_time(project.created_at),
        "updated_at": format_time(project.updated_at),
    }


def queue_view(queue: TaskQueue, *, project_id: str) -> dict[str, Any]:
    """A queue."""
    return {
        "id": queue.queue_id,
        "queue_id": queue.queue_id,
        "project_id": project_id,
        "name": queue.name,
        "meta": queue.meta,
        "task_count": queue.counts.total,
        "task_stats": counts_view(queue.counts),
        "last_task_at": format_time(queue.last_task_at),
        "last_reset_at": format_time(queue.last_reset_at),
        "last_operation": queue.last_operation,
        "last_operation_by": queue.last_operation_by,
        "created_at": format_time(queue.created_at),
        "updated_at": format_time(queue.updated_at),
    }


def task_view(task: Task | TaskRow, *, project_id: str) -> dict[str, Any]:
    """A task with every field of the data model, except its lease token, which is shown to its holder only."""
    return {
        "task_id": task.task_id,
        "id": task.task_id,
        "project_id": project_id,
        "queue_id": task.queue_id or None,
        "name": task.name,
        "prompt": task.prompt,
        "spec_file": task.spec_file,
        "status": task.status,
        "source": task.source,
        "origin": task.origin,
        "priority": priority_of(task.priority),
        "priority_label": priority_label(task.priority),
        "tags": task.tags,
        "report": task.report,
        "result": task.result,
        "result_schema": task.result_schema,
        "error_reason": task.error_reason,
        "created_at": format_time(task.created_at),
        "created_by": task.created_by,
        "updated_at": format_time(task.updated_at),
        "updated_by": task.updated_by,
        "server_modified_at": format_time(task.server_modified_at),
        "version": task.version,
        "pull_state": PULL_STATE_LABELS[task.state],
        "pulled_status": PULL_STATE_LABELS[task.state],  # its older name
        "pulled_at": format_time(task.pulled_at),
        "pulled_by": task.lease_owner,
        "confirmed_at": format_time(task.confirmed_at),
        "leased_until": format_time(task.leased_until),
        "pull_attempts": task.lease_count,
        "pushed_at": format_time(task.pushed_at),
        "pushed_by": task.pushed_by,
        "started_at": format_time(task.started_at),
        "finished_at": format_time(task.finished_at),
        "expires_at": format_time(task.expires_at),
        "expired_at": format_time(task.expired_at),
        "archived_at": format_time(task.archived_at),
        "deleted_at": format_time(task.deleted_at),
        "message_count": task.message_count,
        "log_count": task.log_count,
    }


def task_views(tasks: Sequence[Task | TaskRow], *, project_id: str) -> list[dict[str, Any]]:
    """Tasks."""
    return [task_view(task, project_id=project_id) for task in tasks]


def failures_view(failed: Sequence[tuple[str, PenstockError]], request: Request) -> dict[str, Any]:
    """The failed tasks of a batch, with a reason for each failure in the caller's language."""
    failures = [{"task_id": task_id, "reason": localized(why, request)[0], "code": why.code} for task_id, why in failed]
    return {"failed_count": len(failures), "failed": failures, "failed_tasks": failures}


def message_view(message: TaskMessage) -> dict[str, Any]:
    """A message of a task, as its detail shows it."""
    return {
        "message_id": message.number,
        "role": message.role.lower(),
        "content": message.content,
        "session_id": message.session_id,
        "created_at": format_time(message.created_at),
    }


def log_line_view(line: LogLine) -> dict[str, Any]:
    """A line of a task's log."""
    return {"log_id": line.number, "content": line.content, "created_at": format_time(line.created_at)}


def check_view(last: datetime | None, *, count: int, since: datetime | None, now: datetime) -> dict[str, Any]:
    """For polling clients: a version that differs after every change, the time of the last one, and how many there are.

    With `since`, also whether anything has changed since then. All from one stored time, in milliseconds, which is the
    precision that clients receive.
    """
    at = None if last is None else last.replace(microsecond=last.microsecond // 1000 * 1000)
    shown = {
        "version": 0 if at is None else (at - EPOCH) // MILLISECOND,
        "last_updated_at": format_time(at or now),
        "count": count,
        "checked_at": format_time(now),
    }
    if since is None:
        return shown
    changed = at is not None and at > since
    return shown | {"has_changes": changed, "hasChanges": changed, "changed": changed}

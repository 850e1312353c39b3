"""How things look on the wire. Times are UTC with milliseconds; names are as this family's clients know them."""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from fastapi import Request

from penstock.kernel.errors import PenstockError
from penstock.kernel.http.language import words
from penstock.tasks.domain import LOWEST, SHOWN, Counts, Project, Queue, Task
from penstock.tasks.store.task_messages import LogLine, Message
from penstock.tasks.store.tasks import TaskRow


@lru_cache(maxsize=4096)  # tasks that were planned together have their times in common
def moment(at: datetime | None) -> str | None:
    """A time that is in UTC already: quicker than to ask it, and a pull shows a thousand of them."""
    return None if at is None else at.isoformat(timespec="milliseconds")[:23] + "Z"


def shown_counts(counts: Counts) -> dict[str, int]:
    """The `task_stats` of a project or a queue."""
    return {
        "total": counts.total,
        "pending": counts.pending,
        "running": counts.running,
        "done": counts.done,
        "error": counts.error,
        "cancelled": counts.cancelled,
    }


def shown_metadata(project: Project) -> dict[str, Any] | None:
    """What people added to a project, or None when nobody did."""
    if project.metadata_created_at is None:
        return None
    return {"customTitle": project.custom_title, "notes": project.notes, "tags": list(project.tags)}


def shown_metadata_alone(project: Project) -> dict[str, Any]:
    """The same as a thing of its own: where nobody added anything it is all null, so that a form can be filled in."""
    return {
        "projectId": project.project_id,
        "customTitle": project.custom_title,
        "notes": project.notes,
        "tags": list(project.tags),
        "createdAt": moment(project.metadata_created_at),
        "updatedAt": moment(project.metadata_updated_at),
    }


def shown_project(project: Project) -> dict[str, Any]:
    """A project, as lists and its own page have it."""
    client = {"username": project.username, "hostname": project.hostname, "project_path": project.project_path}
    git = {"repository": project.repository, "branch": project.branch}
    return {
        "id": project.project_id,
        "project_id": project.project_id,
        "name": project.name,
        "displayTitle": project.display_title,
        "metadata": shown_metadata(project),
        "clientInfo": client if any(client.values()) else None,
        "gitInfo": git if any(git.values()) else None,
        "conflict_policy": project.conflict_policy,
        "version": project.version,
        "queue_count": project.queue_count,
        "task_count": project.counts.total,
        "task_stats": shown_counts(project.counts),
        "last_task_at": moment(project.last_task_at),
        "created_at": moment(project.created_at),
        "updated_at": moment(project.updated_at),
    }


def shown_queue(queue: Queue, *, project_id: str) -> dict[str, Any]:
    """A queue."""
    return {
        "id": queue.queue_id,
        "queue_id": queue.queue_id,
        "project_id": project_id,
        "name": queue.name,
        "meta": queue.meta,
        "task_count": queue.counts.total,
        "task_stats": shown_counts(queue.counts),
        "last_task_at": moment(queue.last_task_at),
        "last_reset_at": moment(queue.last_reset_at),
        "last_operation": queue.last_operation,
        "last_operation_by": queue.last_operation_by,
        "created_at": moment(queue.created_at),
        "updated_at": moment(queue.updated_at),
    }


def shown_task(task: Task | TaskRow, *, project_id: str) -> dict[str, Any]:
    """A task, from a value or straight from its row. Its lease token is not in it."""
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
        "priority": LOWEST + 1 - task.priority,
        "tags": task.tags,
        "report": task.report,
        "result": task.result,
        "result_schema": task.result_schema,
        "error_reason": task.error_reason,
        "created_at": moment(task.created_at),
        "created_by": task.created_by,
        "updated_at": moment(task.updated_at),
        "updated_by": task.updated_by,
        "server_modified_at": moment(task.server_modified_at),
        "version": task.version,
        "pull_state": SHOWN[task.state],
        "pulled_at": moment(task.pulled_at),
        "pulled_by": task.lease_owner,
        "confirmed_at": moment(task.confirmed_at),
        "leased_until": moment(task.leased_until),
        "pull_attempts": task.lease_count,
        "pushed_at": moment(task.pushed_at),
        "pushed_by": task.pushed_by,
        "started_at": moment(task.started_at),
        "finished_at": moment(task.finished_at),
        "expires_at": moment(task.expires_at),
        "expired_at": moment(task.expired_at),
        "archived_at": moment(task.archived_at),
        "deleted_at": moment(task.deleted_at),
        "message_count": task.message_count,
        "log_count": task.log_count,
    }


def shown_tasks(tasks: Sequence[Task | TaskRow], *, project_id: str) -> list[dict[str, Any]]:
    """Some tasks."""
    return [shown_task(task, project_id=project_id) for task in tasks]


def shown_failures(failed: Sequence[tuple[str, PenstockError]], request: Request) -> dict[str, Any]:
    """What a batch could not do, each with its reason, in the caller's language."""
    told = [{"task_id": task_id, "reason": words(why, request)[0], "code": why.code} for task_id, why in failed]
    return {"failed_count": len(told), "failed_tasks": told}


def shown_message(message: Message) -> dict[str, Any]:
    """A message of a task's conversation."""
    return {
        "message_id": message.number,
        "role": message.role.upper(),
        "content": message.content,
        "session_id": message.session_id,
        "created_at": moment(message.created_at),
    }


def shown_log_line(line: LogLine) -> dict[str, Any]:
    """A line of a task's log."""
    return {"log_id": line.number, "content": line.content, "created_at": moment(line.created_at)}


def shown_check(last: datetime | None, *, since: datetime, now: datetime) -> dict[str, Any]:
    """Whether anything has changed since. Clients know times by the millisecond and send them back: so we compare."""
    changed = last is not None and last.replace(microsecond=last.microsecond // 1000 * 1000) > since
    return {
        "has_changes": changed,
        "hasChanges": changed,
        "changed": changed,
        "last_updated_at": moment(last),
        "checked_at": moment(now),
    }

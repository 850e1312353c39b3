"""What an import takes in: projects, metadata, queues and tasks of the older store, as values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from penstock.tasks.domain.words import Operation, Side, Status


@dataclass(frozen=True, kw_only=True)
class ImportedProject:
    """A project."""

    project_id: str
    name: str
    about: Mapping[str, str | None] = field(default_factory=dict)  # columns about the client and its repository
    last_task_at: datetime | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class ImportedMetadata:
    """The metadata of a project."""

    project_id: str
    has_project: bool = False  # whether the project is in the export too
    custom_title: str | None
    notes: str | None
    tags: tuple[str, ...]
    created_at: datetime | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class ImportedQueue:
    """A queue without its tasks."""

    project_id: str
    queue_id: str
    name: str
    meta: Mapping[str, Any] | None = None
    last_task_at: datetime | None = None
    last_reset_at: datetime | None = None
    last_operation: Operation | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class ImportedMessage:
    """A message, or without a role a log line."""

    content: str
    role: str = ""
    session_id: str | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class ImportedPull:
    """An entry of a task's pull history."""

    pulled_at: datetime
    pulled_by: str
    released_at: datetime | None = None
    released_by: str | None = None


@dataclass(frozen=True, kw_only=True)
class ImportedTask:
    """A task. `fields` has the columns that exist here under the same name."""

    project_id: str
    project_name: str | None = None
    about: Mapping[str, str | None] = field(default_factory=dict)
    queue_id: str | None = None
    queue_name: str | None = None
    task_id: str
    status: Status
    source: Side = Side.CLIENT
    fields: Mapping[str, Any]
    messages: Sequence[ImportedMessage] = ()
    logs: Sequence[ImportedMessage] = ()
    pulled_at: datetime | None = None
    pulled_by: str | None = None
    pulls: Sequence[ImportedPull] = ()
    deleted_at: datetime | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What identifies it inside its project."""
        return self.queue_id or "", self.task_id


Imported = ImportedProject | ImportedMetadata | ImportedQueue | ImportedTask

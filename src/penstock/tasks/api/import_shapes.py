"""The documents of an import: what each collection of the older store has, and how it is taken in.

A document is recognised by its fields, so files may have any name. Besides the collections there is a plain form, one
task per line with the ids of its project and queue. Unknown fields are ignored. Fields have the same limits as in a
push.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, StringConstraints, ValidationError

from penstock.tasks.api.fields import (
    MAX_NAME_LENGTH,
    Content,
    Files,
    KnownId,
    Meta,
    Name,
    NewId,
    NullAsAbsent,
    ProjectTags,
    Prompt,
    PushedRank,
    PushedTags,
    PushedTime,
    RoleWord,
    StatusWord,
    Text,
)
from penstock.tasks.api.params import MAX_ID_LENGTH, When
from penstock.tasks.domain import Operation, Side
from penstock.tasks.domain.imported import (
    Imported,
    ImportedMessage,
    ImportedMetadata,
    ImportedProject,
    ImportedPull,
    ImportedQueue,
    ImportedTask,
)
from penstock.tasks.store.task_messages import MAX_KEPT

OBJECT_ID = re.compile("[0-9a-f]{24}")
MAX_LISTED_PROBLEMS = 3
MAX_NOTES_LENGTH = 5000
QUEUE_COLUMNS = (
    *("queue_id", "name", "meta", "last_task_at", "last_reset_at", "last_operation"),
    *("created_at", "updated_at"),
)
GIVEN = ("name", "prompt", "spec_file", "tags", "priority", "report", "expires_at", "server_modified_at")


class Collection(StrEnum):
    """The collections of the older store in the order in which they are imported, and the plain form."""

    PROJECTS = "projects"
    METADATA = "projectmetadatas"
    QUEUES = "queues"
    TASKS = "tasks"
    PLAIN_TASKS = "plain tasks"
    KEYS = "apikeys"
    USERS = "users"
    STATISTICS = "statisticslogs"


# The fields by which a document is recognised: the first collection whose fields are all there.
MARKS: tuple[tuple[Collection, frozenset[str]], ...] = (
    (Collection.STATISTICS, frozenset({"executionResult"})),
    (Collection.KEYS, frozenset({"key", "name", "isActive"})),
    (Collection.USERS, frozenset({"username", "password"})),
    (Collection.QUEUES, frozenset({"projectId", "queueId", "tasks"})),
    (Collection.QUEUES, frozenset({"projectId", "queueId", "name"})),
    (Collection.TASKS, frozenset({"projectId", "taskId"})),
    (Collection.PROJECTS, frozenset({"projectId", "name"})),
    (Collection.METADATA, frozenset({"projectId"})),
)


def recognize(document: Mapping[str, Any]) -> Collection:
    """The collection of a document; the plain form if it is none of them."""
    return next((name for name, marks in MARKS if marks <= document.keys()), Collection.PLAIN_TASKS)


def _as_text(value: object) -> object:
    return str(value) if type(value) is int else value  # older clients used numbers as ids


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _as_log_line(line: object) -> object:
    return {"content": line} if isinstance(line, str) else line


def _known_operation(value: object) -> object:
    return value if value in set(Operation) else None


def _either(snake: str, camel: str, *more: str) -> Any:
    return Field(default=None, validation_alias=AliasChoices(snake, camel, *more))


def _trimmed(longest: int) -> StringConstraints:
    return StringConstraints(strip_whitespace=True, max_length=longest)


Id = Annotated[KnownId, BeforeValidator(_as_text)]
TaskKey = Annotated[NewId, BeforeValidator(_as_text)]
ShortText = Annotated[str, _trimmed(MAX_ID_LENGTH)]
LongText = Annotated[str, _trimmed(MAX_NAME_LENGTH)]
Notes = Annotated[str, _trimmed(MAX_NOTES_LENGTH)]


class ExportedAbout(NullAsAbsent):
    """What a project knows of its client and repository."""

    username: ShortText | None = None
    hostname: ShortText | None = None
    project_path: LongText | None = None
    repository: LongText | None = None
    branch: ShortText | None = None


class ExportedDocument(NullAsAbsent):
    """What every document has."""

    created_at: When | None = _either("created_at", "createdAt")
    updated_at: When | None = _either("updated_at", "updatedAt")
    client_info: ExportedAbout = Field(default_factory=ExportedAbout, alias="clientInfo")
    git_info: ExportedAbout = Field(default_factory=ExportedAbout, alias="gitInfo")

    @property
    def about(self) -> dict[str, str | None]:
        """The columns about the client and its repository that are given."""
        return self.client_info.model_dump(exclude_unset=True) | self.git_info.model_dump(exclude_unset=True)


class ExportedProject(ExportedDocument):
    """A document of `projects`."""

    project_id: Id = Field(alias="projectId")
    name: Name
    last_task_at: When | None = _either("last_task_at", "lastTaskAt")


class ExportedMetadata(ExportedDocument):
    """A document of `projectmetadatas`."""

    project_id: Id = Field(alias="projectId")
    custom_title: LongText | None = Field(default=None, alias="customTitle")
    notes: Notes | None = None
    tags: ProjectTags = Field(default_factory=list)


class ExportedQueue(ExportedDocument):
    """A document of `queues`; its tasks are read one by one."""

    queue_id: Id = Field(alias="queueId")
    name: Name
    meta: Meta | None = None
    last_task_at: When | None = _either("last_task_at", "lastTaskAt")
    last_reset_at: When | None = None
    last_operation: Annotated[Operation | None, BeforeValidator(_known_operation)] = None
    tasks: list[Any] = Field(default_factory=list)


class ExportedMessage(NullAsAbsent):
    """A message of a task."""

    role: RoleWord
    content: Content
    session_id: Annotated[str, Field(max_length=MAX_ID_LENGTH)] | None = _either("session_id", "sessionId")
    created_at: When | None = _either("created_at", "createdAt", "timestamp")


class ExportedLog(NullAsAbsent):
    """A line of a task's log."""

    content: Content
    created_at: When | None = _either("created_at", "createdAt", "timestamp")


class ExportedPull(NullAsAbsent):
    """An entry of a task's pull history."""

    pulled_at: When
    pulled_by: ShortText = "unknown"
    released_at: When | None = None
    released_by: ShortText | None = None


class ExportedTask(ExportedDocument):
    """A task: of a queue, of `tasks`, or in the plain form."""

    task_id: TaskKey = Field(validation_alias=AliasChoices("task_id", "taskId", "id"))
    name: Name
    prompt: Prompt
    status: StatusWord
    source: Side = Side.CLIENT
    report: Text | None = None
    tags: PushedTags = Field(default_factory=list)
    priority: PushedRank = Field(default=None, validate_default=True)
    spec_file: Annotated[Files, BeforeValidator(_as_list)] = Field(default_factory=list)
    messages: Annotated[list[ExportedMessage], Field(max_length=MAX_KEPT)] = Field(default_factory=list)
    logs: Annotated[list[Annotated[ExportedLog, BeforeValidator(_as_log_line)]], Field(max_length=MAX_KEPT)] = Field(
        default_factory=list
    )
    server_modified_at: When | None = None
    expires_at: PushedTime = None
    deleted_at: When | None = None
    pulled_at: When | None = None
    pulled_by: ShortText | None = None
    pull_history: Annotated[list[ExportedPull], Field(max_length=MAX_KEPT)] = Field(default_factory=list)

    def imported(self, **place: Any) -> ImportedTask:
        """The task as the verb takes it, in its project and queue."""
        return ImportedTask(
            **place,
            task_id=self.task_id,
            status=self.status,
            source=self.source,
            fields={name: getattr(self, name) for name in GIVEN},
            messages=[ImportedMessage(**_values(one)) for one in self.messages],
            logs=[ImportedMessage(**_values(one)) for one in self.logs],
            pulled_at=self.pulled_at,
            pulled_by=self.pulled_by,
            pulls=[ImportedPull(**_values(one)) for one in self.pull_history],
            deleted_at=self.deleted_at,
            created_at=self.created_at,
            updated_at=self.updated_at,
        )


class ExportedPlainTask(ExportedTask):
    """A task in the plain form."""

    project_id: Id
    project_name: Name | None = None
    queue_id: Id | None = None
    queue_name: Name | None = None


class ExportedKey(NullAsAbsent):
    """A document of `apikeys`."""

    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_ID_LENGTH)]
    key: Annotated[str, StringConstraints(strip_whitespace=True, max_length=2000)]
    project_id: Id | None = Field(default=None, alias="projectId")
    is_active: bool = Field(default=True, alias="isActive")


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a document gives: a value, an API key, or a problem. `where` names the part of the document."""

    value: Imported | ExportedKey | None = None
    problem: str = ""
    where: str = ""


@dataclass(kw_only=True)
class DocumentReader:
    """Reads documents of all collections. Queues and tasks name their project by the object id of its document, so the
    ids of the projects are kept: one entry per project."""

    project_ids: dict[str, str] = field(default_factory=dict)
    _known_projects: set[str] = field(default_factory=set)

    def read(self, collection: Collection, document: Mapping[str, Any]) -> Iterator[Part]:
        """The parts of a document."""
        try:
            yield from self._readers()[collection](document)
        except ValueError as error:
            yield Part(problem=describe(error))

    def _readers(self) -> Mapping[Collection, Callable[[Mapping[str, Any]], Iterator[Part]]]:
        return {
            Collection.PROJECTS: self._read_project,
            Collection.METADATA: self._read_metadata,
            Collection.QUEUES: self._read_queue,
            Collection.TASKS: self._read_task,
            Collection.PLAIN_TASKS: self._read_plain_task,
            Collection.KEYS: self._read_key,
        }

    def _read_project(self, document: Mapping[str, Any]) -> Iterator[Part]:
        given = ExportedProject.model_validate(document)
        if isinstance(document.get("_id"), str):
            self.project_ids[document["_id"]] = given.project_id
        self._known_projects.add(given.project_id)
        yield Part(
            value=ImportedProject(
                project_id=given.project_id,
                name=given.name,
                about=given.about,
                last_task_at=given.last_task_at,
                created_at=given.created_at,
                updated_at=given.updated_at,
            )
        )

    def _read_metadata(self, document: Mapping[str, Any]) -> Iterator[Part]:
        given = ExportedMetadata.model_validate(document)
        yield Part(
            value=ImportedMetadata(
                project_id=given.project_id,
                has_project=given.project_id in self._known_projects,
                custom_title=given.custom_title or None,
                notes=given.notes or None,
                tags=tuple(given.tags),
                created_at=given.created_at,
                updated_at=given.updated_at,
            )
        )

    def _read_queue(self, document: Mapping[str, Any]) -> Iterator[Part]:
        project_id = self._project_of(document)
        given = ExportedQueue.model_validate(document)
        columns = {name: getattr(given, name) for name in QUEUE_COLUMNS}
        yield Part(value=ImportedQueue(project_id=project_id, **columns))
        times = {name: columns[name] for name in ("created_at", "updated_at")}
        for number, task in enumerate(given.tasks):
            try:
                read = ExportedTask.model_validate(_with_times(task, times))
                yield Part(value=read.imported(project_id=project_id, queue_id=given.queue_id, queue_name=given.name))
            except ValueError as error:
                yield Part(problem=describe(error), where=f"tasks[{number}]")

    def _read_task(self, document: Mapping[str, Any]) -> Iterator[Part]:
        project_id = self._project_of(document)
        yield Part(value=ExportedTask.model_validate(document).imported(project_id=project_id))

    def _read_plain_task(self, document: Mapping[str, Any]) -> Iterator[Part]:
        given = ExportedPlainTask.model_validate(document)
        place = {name: getattr(given, name) for name in ("project_id", "project_name", "queue_id", "queue_name")}
        yield Part(value=given.imported(**place, about=given.about))

    def _read_key(self, document: Mapping[str, Any]) -> Iterator[Part]:
        yield Part(value=ExportedKey.model_validate(document))

    def _project_of(self, document: Mapping[str, Any]) -> str:
        named = str(document.get("projectId"))
        if named in self.project_ids:
            return self.project_ids[named]
        if OBJECT_ID.fullmatch(named):
            raise ValueError(f"projectId: no project with _id {named} in the imported files; import `projects` too")
        return named


def _with_times(task: Any, times: Mapping[str, Any]) -> Any:
    """A task of a queue; one without times of its own has those of the queue."""
    if not isinstance(task, dict):
        return task
    given = {name: value for name, value in task.items() if value is not None}
    missing = {name: value for name, value in times.items() if not {name, _camel(name)} & given.keys()}
    return {**missing, **given}


def _camel(name: str) -> str:
    first, _, last = name.partition("_")
    return first + last.capitalize()


def _values(part: BaseModel) -> dict[str, Any]:
    return {name: getattr(part, name) for name in type(part).model_fields}


def describe(error: ValueError) -> str:
    """The problem of a document for people; values are not repeated."""
    if not isinstance(error, ValidationError):
        return str(error)
    found = error.errors(include_url=False, include_context=False, include_input=False)
    problems = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found[:MAX_LISTED_PROBLEMS]]
    return "; ".join(problems + (["…"] if len(found) > MAX_LISTED_PROBLEMS else []))

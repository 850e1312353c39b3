"""The file format of an import: JSON lines, one task of the older store per line, as `mongoexport` writes them.

MongoDB Extended JSON is supported ({"$date": …}, {"$oid": …}, {"$numberInt": …}). Unknown fields are ignored. Fields
have the same limits as in a push.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, BinaryIO

import msgspec
from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, ValidationError

from penstock.tasks.api.fields import (
    Content,
    Files,
    KnownId,
    Name,
    NewId,
    NullAsAbsent,
    Prompt,
    Rank,
    RoleWord,
    StatusWord,
    Tags,
    Text,
)
from penstock.tasks.api.params import MAX_ID_LENGTH, When
from penstock.tasks.api.push import ClientInfo, GitInfo
from penstock.tasks.import_tasks import ImportedMessage, ImportedTask, ImportLine
from penstock.tasks.store.task_messages import MAX_KEPT

MAX_LINE_LENGTH = 16 * 1024 * 1024
MAX_DEPTH = 4  # of Extended JSON that is read: the time of a message
MAX_LISTED_PROBLEMS = 3
NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
EXTENDED_JSON = frozenset({"$oid", "$date"})
EXTENDED_NUMBERS = frozenset({"$numberInt", "$numberLong", "$numberDouble"})
GIVEN = ("name", "prompt", "spec_file", "tags", "priority", "report")


def _as_text(value: object) -> object:
    return str(value) if type(value) is int else value  # older clients used numbers as ids


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _as_log_line(line: object) -> object:
    return {"content": line} if isinstance(line, str) else line


def _named(*names: str) -> Any:
    return Field(default=None, validation_alias=AliasChoices(*names))


Id = Annotated[KnownId, BeforeValidator(_as_text)]
CreatedAt = Annotated[When | None, _named("created_at", "createdAt", "timestamp")]


class ExportedMessage(NullAsAbsent):
    """A message of a task."""

    role: RoleWord
    content: Content
    session_id: Annotated[str, Field(max_length=MAX_ID_LENGTH)] | None = None
    created_at: CreatedAt = None


class ExportedLog(NullAsAbsent):
    """A line of a task's log."""

    content: Content
    created_at: CreatedAt = None


class ExportedTask(NullAsAbsent):
    """A task of the older store."""

    project_id: Id
    project_name: Name | None = None
    queue_id: Id | None = None
    queue_name: Name | None = None
    task_id: Annotated[NewId, BeforeValidator(_as_text), Field(validation_alias=AliasChoices("task_id", "id"))]
    name: Name
    prompt: Prompt
    status: StatusWord
    report: Text | None = None
    tags: Annotated[Tags, BeforeValidator(_as_list)] = Field(default_factory=list)
    priority: Rank = Field(default=None, validate_default=True)
    spec_file: Annotated[Files, BeforeValidator(_as_list)] = Field(default_factory=list)
    messages: Annotated[list[ExportedMessage], Field(max_length=MAX_KEPT)] = Field(default_factory=list)
    logs: Annotated[list[Annotated[ExportedLog, BeforeValidator(_as_log_line)]], Field(max_length=MAX_KEPT)] = Field(
        default_factory=list
    )
    created_at: Annotated[When | None, _named("created_at", "createdAt")] = None
    updated_at: Annotated[When | None, _named("updated_at", "updatedAt")] = None
    client_info: ClientInfo = Field(default_factory=ClientInfo, alias="clientInfo")
    git_info: GitInfo = Field(default_factory=GitInfo, alias="gitInfo")

    def imported(self) -> ImportedTask:
        """The request as the verb takes it."""
        return ImportedTask(
            project_id=self.project_id,
            project_name=self.project_name,
            about={**self.client_info.model_dump(), **self.git_info.model_dump()},
            queue_id=self.queue_id,
            queue_name=self.queue_name,
            task_id=self.task_id,
            status=self.status,
            fields={name: getattr(self, name) for name in GIVEN},
            messages=[ImportedMessage(**_values(one)) for one in self.messages],
            logs=[ImportedMessage(**_values(one)) for one in self.logs],
            created_at=self.created_at,
            updated_at=self.updated_at,
        )


def read_lines(file: BinaryIO, *, project: str | None = None) -> Iterator[ImportLine]:
    """Read the lines of an export, skipping blank ones.

    With a `project`, lines of other projects have no task, and a line without a project belongs to it.
    """
    number = 0
    while raw := file.readline(MAX_LINE_LENGTH + 1):
        number, size_bytes = number + 1, len(raw)
        while not raw.endswith(b"\n") and (rest := file.readline(MAX_LINE_LENGTH)):  # too long: skip to its end
            size_bytes += len(rest)
            raw = raw[:MAX_LINE_LENGTH] + rest[-1:]
        if not raw.strip():
            continue
        try:
            task = _read(raw, size_bytes, project)
        except ValueError as error:
            yield ImportLine(number=number, size_bytes=size_bytes, problem=_describe(error))
        else:
            yield ImportLine(number=number, size_bytes=size_bytes, task=task)


def _read(raw: bytes, size_bytes: int, project: str | None) -> ImportedTask | None:
    if size_bytes > MAX_LINE_LENGTH:
        raise ValueError(f"longer than {MAX_LINE_LENGTH} bytes")
    if NUL.search(raw):
        raise ValueError("contains a NUL character")
    try:
        given = _plain(msgspec.json.decode(raw), MAX_DEPTH)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"not valid JSON: {error}") from error
    if not isinstance(given, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004  (the line is invalid, not an argument)
    if project is not None and str(given.setdefault("project_id", project)) != project:
        return None
    return ExportedTask.model_validate(given).imported()


def _plain(value: Any, depth: int) -> Any:
    """The value without MongoDB Extended JSON."""
    if depth and isinstance(value, list):
        return [_plain(one, depth - 1) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        [(name, inner)] = value.items()
        if name in EXTENDED_JSON:
            return _plain(inner, 1)
        if name in EXTENDED_NUMBERS and isinstance(inner, str):
            return float(inner) if name == "$numberDouble" else int(inner)
    return {name: _plain(one, depth - 1) for name, one in value.items()} if depth else value


def _values(part: BaseModel) -> dict[str, Any]:
    return {name: getattr(part, name) for name in type(part).model_fields}


def _describe(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    found = error.errors(include_url=False, include_context=False, include_input=False)
    problems = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found[:MAX_LISTED_PROBLEMS]]
    return "; ".join(problems + (["…"] if len(found) > MAX_LISTED_PROBLEMS else []))

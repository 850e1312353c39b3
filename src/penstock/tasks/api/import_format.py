"""How a task looks in an export of the older store: a JSON object on a line of its own.

What MongoDB's tools write is understood ({"$date": …}, {"$oid": …}, {"$numberInt": …}); fields that nobody knows are
let be. The bounds of fields are those of a push.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, BinaryIO

import msgspec
from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, ValidationError

from penstock.tasks.api.fields import Files, KnownId, Name, NewId, Prompt, Rank, StatusWord, Tags, Text
from penstock.tasks.api.params import LONGEST_ID, When
from penstock.tasks.api.push import ClientInfo, GitInfo
from penstock.tasks.api.telling import Content, Part, RoleWord
from penstock.tasks.import_tasks import Entry, Line, Said
from penstock.tasks.store.task_messages import KEPT

LONGEST_LINE = 16 * 1024 * 1024
DEEPEST = 4  # where the last form of MongoDB's stands that we read: the time of a message
SHOWN_PROBLEMS = 3
NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
FORMS = frozenset({"$oid", "$date"})
NUMBERS = frozenset({"$numberInt", "$numberLong", "$numberDouble"})
GIVEN = ("name", "prompt", "spec_file", "tags", "priority", "report")


def _as_text(value: object) -> object:
    return str(value) if type(value) is int else value  # older clients numbered their tasks


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _spoken(line: object) -> object:
    return {"content": line} if isinstance(line, str) else line


def _named(*names: str) -> Any:
    return Field(default=None, validation_alias=AliasChoices(*names))


Id = Annotated[KnownId, BeforeValidator(_as_text)]
MadeAt = Annotated[When | None, _named("created_at", "createdAt", "timestamp")]


class ExportedMessage(Part):
    """A message of a task."""

    role: RoleWord
    content: Content
    session_id: Annotated[str, Field(max_length=LONGEST_ID)] | None = None
    created_at: MadeAt = None


class ExportedLog(Part):
    """A line of a task's log."""

    content: Content
    created_at: MadeAt = None


class Exported(Part):
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
    messages: Annotated[list[ExportedMessage], Field(max_length=KEPT)] = Field(default_factory=list)
    logs: Annotated[list[Annotated[ExportedLog, BeforeValidator(_spoken)]], Field(max_length=KEPT)] = Field(
        default_factory=list
    )
    created_at: Annotated[When | None, _named("created_at", "createdAt")] = None
    updated_at: Annotated[When | None, _named("updated_at", "updatedAt")] = None
    client_info: ClientInfo = Field(default_factory=ClientInfo, alias="clientInfo")
    git_info: GitInfo = Field(default_factory=GitInfo, alias="gitInfo")

    def entry(self) -> Entry:
        """The same in our words."""
        return Entry(
            project_id=self.project_id,
            project_name=self.project_name,
            about={**self.client_info.model_dump(), **self.git_info.model_dump()},
            queue_id=self.queue_id,
            queue_name=self.queue_name,
            task_id=self.task_id,
            status=self.status,
            fields={name: getattr(self, name) for name in GIVEN},
            messages=[Said(**_values(one)) for one in self.messages],
            logs=[Said(**_values(one)) for one in self.logs],
            created_at=self.created_at,
            updated_at=self.updated_at,
        )


def read_lines(file: BinaryIO, *, project: str | None = None) -> Iterator[Line]:
    """The lines of an export; blank ones are passed over.

    With a `project`, those of other projects say nothing, and a line that names none belongs to it.
    """
    number = 0
    while raw := file.readline(LONGEST_LINE + 1):
        number, size_bytes = number + 1, len(raw)
        while not raw.endswith(b"\n") and (rest := file.readline(LONGEST_LINE)):  # too long: only its end is looked for
            size_bytes += len(rest)
            raw = raw[:LONGEST_LINE] + rest[-1:]
        if not raw.strip():
            continue
        try:
            entry = _read(raw, size_bytes, project)
        except ValueError as error:
            yield Line(number=number, size_bytes=size_bytes, problem=_in_words(error))
        else:
            yield Line(number=number, size_bytes=size_bytes, entry=entry)


def _read(raw: bytes, size_bytes: int, project: str | None) -> Entry | None:
    if size_bytes > LONGEST_LINE:
        raise ValueError(f"it is longer than {LONGEST_LINE} bytes")
    if NUL.search(raw):
        raise ValueError("it holds a NUL character")
    try:
        given = _plain(msgspec.json.decode(raw), DEEPEST)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}") from error
    if not isinstance(given, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004  (the line is wrong, not a type of ours)
    if project is not None and str(given.setdefault("project_id", project)) != project:
        return None
    return Exported.model_validate(given).entry()


def _plain(value: Any, depth: int) -> Any:
    """Without MongoDB's forms."""
    if depth and isinstance(value, list):
        return [_plain(one, depth - 1) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        [(name, inner)] = value.items()
        if name in FORMS:
            return _plain(inner, 1)
        if name in NUMBERS and isinstance(inner, str):
            return float(inner) if name == "$numberDouble" else int(inner)
    return {name: _plain(one, depth - 1) for name, one in value.items()} if depth else value


def _values(part: BaseModel) -> dict[str, Any]:
    return {name: getattr(part, name) for name in type(part).model_fields}


def _in_words(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    found = error.errors(include_url=False, include_context=False, include_input=False)
    told = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found[:SHOWN_PROBLEMS]]
    return "; ".join(told + (["…"] if len(found) > SHOWN_PROBLEMS else []))

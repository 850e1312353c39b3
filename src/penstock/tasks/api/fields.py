"""Field types of request bodies, shared by all request models: how many characters, allowed values, what is trimmed."""

from collections.abc import Collection
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from penstock.kernel.json_schema.cost import find_schema_problem
from penstock.tasks.api.params import MAX_ID_LENGTH, MAX_TOKEN_LENGTH, NO_CONTROLS, When
from penstock.tasks.domain import PRIORITY_WORDS, UNSET_RANK, Status, rank_of

MAX_NAME_LENGTH = 1000
MAX_TEXT_LENGTH = 1_000_000
MAX_CONTENT_LENGTH = 100_000
MAX_PROMPT_LENGTH = 100_000
MAX_TAG_LENGTH = 50
MAX_TAGS = 20
MAX_PUSHED_TAG_LENGTH = 255
MAX_PUSHED_TAGS = 100
MAX_PATH_LENGTH = 500
MAX_FILES = 100
NUMBERS = {str(number): number for number in range(1, 11)}
RESERVED_IDS = frozenset({"pull", "batch", "check", "tags", "stats"})  # path segments in the position of a task id
UNCHECKED: JsonSchemaValue = {"description": "Not checked: what cannot be read is ignored."}
PRIORITY_SCHEMA = {
    "description": "1 to 10, larger first, or a word: high is 8, medium is 5, low is 2.",
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": 10},
        {"type": "string", "enum": [*PRIORITY_WORDS, *NUMBERS]},
        {"type": "null"},
    ],
}


class AlsoNull:
    """Documents that a field may be null; its validators accept that already."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema, or null."""
        return nullable(handler(schema))


class OneOrMany:
    """Documents that a list may also be one item, or null; its validators accept that already."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The list, its item, or null."""
        many = handler(schema)
        return {"anyOf": [many, many["items"], {"type": "null"}]}


def nullable(schema: JsonSchemaValue) -> JsonSchemaValue:
    """A JSON schema that also allows null, without a default."""
    kept: JsonSchemaValue = {name: value for name, value in schema.items() if name in {"title", "description"}}
    rest = {name: value for name, value in schema.items() if name not in kept and name != "default"}
    if {"type": "null"} in rest.get("anyOf", ()):
        return kept | rest
    return {**kept, "anyOf": [rest, {"type": "null"}]}


def without_defaults(schema: JsonSchemaValue) -> None:
    """For `json_schema_extra` of models whose defaults are unused, because only the fields that were sent count."""
    for declared in schema["properties"].values():
        declared.pop("default", None)


def _not_reserved(reserved: Collection[str], given: str) -> str:
    if given.lower() in reserved:
        raise PydanticCustomError("route_word", "This id is reserved: it is a path segment of the API")
    return given


def _rank(priority: object) -> int:
    """The rank of a priority given as 1 to 10, as its text, or as a word; null is no priority."""
    if priority is None:
        return UNSET_RANK
    number = priority
    if isinstance(priority, str):
        word = priority.strip().lower()
        number = NUMBERS.get(word) or PRIORITY_WORDS.get(word)
    if type(number) is int and 1 <= number <= 10:  # a bool is an int too
        return rank_of(number)
    raise PydanticCustomError("enum", "Input should be {expected}", {"expected": "1-10, high, medium, low"})


def _lower(word: object) -> object:
    return word.strip().lower() if isinstance(word, str) else word


def _rank_if_known(priority: object) -> int:
    """The rank of a pushed priority, which is not checked: one that we do not know is no priority."""
    try:
        return _rank(priority)
    except PydanticCustomError:
        return UNSET_RANK


_WHEN: TypeAdapter[datetime] = TypeAdapter(When)


def _time_if_known(at: object) -> datetime | None:
    """A pushed time, which is not checked: one that we cannot read is none."""
    try:
        return None if at is None else _WHEN.validate_python(at)
    except ValidationError:
        return None


def _texts(values: object) -> object:
    """Pushed tags, which are not checked: one is a list of one, and only texts and numbers are tags."""
    given = values if isinstance(values, list) else [] if values is None else [values]
    return [str(one) for one in given if isinstance(one, str | int | float) and not isinstance(one, bool)]


def _normalized(tags: list[str]) -> list[str]:
    """The tags of a project: trimmed, in lower case, without blanks and duplicates."""
    return list(dict.fromkeys(tag for one in tags if (tag := one.strip().lower())))


def _not_blank(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("blank", "Must not be blank")
    return text


def _distinct(paths: list[str]) -> list[str]:
    if len(set(paths)) < len(paths):
        raise PydanticCustomError("duplicate", "Duplicate path")
    return paths


def _bounded(value: Any) -> Any:
    if len(msgspec.json.encode(value)) > MAX_TEXT_LENGTH:
        raise PydanticCustomError("string_too_long", "At most {max_length} bytes", {"max_length": MAX_TEXT_LENGTH})
    return value


def _checked(schema: dict[str, Any]) -> dict[str, Any]:
    problem = find_schema_problem(schema)
    if problem is not None:
        raise PydanticCustomError("result_schema", "{flaw}", {"flaw": problem})
    return schema


def _upper(word: object) -> object:
    return word.strip().upper() if isinstance(word, str) else word


def _empty_if_null(values: object) -> object:
    return [] if values is None else values


def _as_list(values: object) -> object:
    """One value as a list of one, null as an empty list."""
    return [] if values is None else [values] if isinstance(values, str) else values


_Id = StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_ID_LENGTH, pattern=NO_CONTROLS)
KnownId = Annotated[str, _Id]
NewId = Annotated[str, _Id, AfterValidator(partial(_not_reserved, RESERVED_IDS))]
NewProjectId = Annotated[str, _Id, AfterValidator(partial(_not_reserved, {"check", "tags"}))]
NewQueueId = Annotated[str, _Id, AfterValidator(partial(_not_reserved, {"check"}))]
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_NAME_LENGTH)]
Prompt = Annotated[str, StringConstraints(max_length=MAX_PROMPT_LENGTH), AfterValidator(_not_blank)]
Text = Annotated[str, StringConstraints(max_length=MAX_TEXT_LENGTH)]
StatusWord = Annotated[Status, BeforeValidator(_lower)]  # accepted in any case
Rank = Annotated[int, BeforeValidator(_rank), WithJsonSchema(PRIORITY_SCHEMA)]
PushedRank = Annotated[int, BeforeValidator(_rank_if_known), WithJsonSchema(UNCHECKED | {"examples": [8, "high"]})]
PushedTime = Annotated[
    datetime | None, BeforeValidator(_time_if_known), WithJsonSchema(UNCHECKED | {"examples": ["2026-01-01T00:00:00Z"]})
]
_Tag = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TAG_LENGTH)]
Tags = Annotated[list[_Tag], Field(max_length=MAX_TAGS), BeforeValidator(_empty_if_null), AlsoNull()]  # kept as sent
_PushedTag = Annotated[str, StringConstraints(max_length=MAX_PUSHED_TAG_LENGTH)]
PushedTags = Annotated[
    list[_PushedTag],
    Field(max_length=MAX_PUSHED_TAGS),
    BeforeValidator(_texts),
    WithJsonSchema(UNCHECKED | {"examples": [["fr"]]}),
]
_ProjectTag = Annotated[str, StringConstraints(max_length=MAX_TAG_LENGTH)]
ProjectTags = Annotated[
    list[_ProjectTag],
    Field(max_length=MAX_TAGS),
    AfterValidator(_normalized),
    BeforeValidator(_empty_if_null),
    AlsoNull(),
]
_File = Annotated[str, StringConstraints(max_length=MAX_PATH_LENGTH), AfterValidator(_not_blank)]
Files = Annotated[
    list[_File], Field(max_length=MAX_FILES), AfterValidator(_distinct), BeforeValidator(_as_list), OneOrMany()
]
PushedReport = Annotated[str, StringConstraints(max_length=MAX_PATH_LENGTH)]
Result = Annotated[Any, AfterValidator(_bounded)]
Meta = Annotated[Any, AfterValidator(_bounded)]
ResultSchema = Annotated[dict[str, Any], AfterValidator(_checked)]
RoleWord = Annotated[Literal["USER", "ASSISTANT"], BeforeValidator(_upper)]
Content = Annotated[str, StringConstraints(max_length=MAX_CONTENT_LENGTH)]
RequiredContent = Annotated[Content, AfterValidator(_not_blank)]
Token = Annotated[str, Field(max_length=MAX_TOKEN_LENGTH)]


class NullAsAbsent(BaseModel):
    """A model that treats null fields as absent."""

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Optional fields may be null; a default is what is used if they are absent, and is not sent."""
        described = handler(schema)
        own = handler.resolve_ref_schema(described)
        required = own.get("required", ())
        for name, declared in own.get("properties", {}).items():
            own["properties"][name] = declared if name in required else nullable(declared)
        return described

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, given: Any) -> Any:
        return {name: value for name, value in given.items() if value is not None} if isinstance(given, dict) else given

"""Field types of request bodies: lengths, allowed values and normalisation, shared by all request models."""

from collections.abc import Collection
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from penstock.tasks.api.params import MAX_ID_LENGTH, MAX_TOKEN_LENGTH, NO_CONTROLS
from penstock.tasks.domain import DEFAULT_PRIORITY, PRIORITY_WORDS, Status, rank_of
from penstock.tasks.result_schema import find_schema_problem

MAX_NAME_LENGTH = 1000
MAX_TEXT_LENGTH = 1_000_000
MAX_CONTENT_LENGTH = 100_000
MAX_TAG_LENGTH = 50
MAX_TAGS = 20
MAX_FILES = 100
NUMBERS = {str(number): number for number in range(1, 11)}
RESERVED_IDS = frozenset({"pull", "batch", "check", "tags", "stats"})  # path segments in the position of a task id


def _not_reserved(reserved: Collection[str], given: str) -> str:
    if given.lower() in reserved:
        raise PydanticCustomError("route_word", "This id is reserved: it is a path segment of the API")
    return given


def _rank(priority: object) -> int:
    """The rank of a priority given as 1 to 10, as its text, or as a word."""
    if priority is None:
        return rank_of(DEFAULT_PRIORITY)
    number = priority
    if isinstance(priority, str):
        word = priority.strip().lower()
        number = NUMBERS.get(word) or PRIORITY_WORDS.get(word)
    if type(number) is int and 1 <= number <= 10:  # a bool is an int too
        return rank_of(number)
    raise PydanticCustomError("enum", "Input should be {expected}", {"expected": "1-10, high, medium, low"})


def _lower(word: object) -> object:
    return word.strip().lower() if isinstance(word, str) else word


def _unique(words: list[str]) -> list[str]:
    return list(dict.fromkeys(words))


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


_Id = StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_ID_LENGTH, pattern=NO_CONTROLS)
KnownId = Annotated[str, _Id]
NewId = Annotated[str, _Id, AfterValidator(partial(_not_reserved, RESERVED_IDS))]
NewProjectId = Annotated[str, _Id, AfterValidator(partial(_not_reserved, {"check", "tags"}))]
NewQueueId = Annotated[str, _Id, AfterValidator(partial(_not_reserved, {"check"}))]
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_NAME_LENGTH)]
Prompt = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TEXT_LENGTH)]
Text = Annotated[str, StringConstraints(max_length=MAX_TEXT_LENGTH)]
StatusWord = Annotated[Status, BeforeValidator(_lower)]  # accepted in any case
Rank = Annotated[int, BeforeValidator(_rank)]
_Tag = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_TAG_LENGTH)]
Tags = Annotated[list[_Tag], Field(max_length=MAX_TAGS), AfterValidator(_unique), BeforeValidator(_empty_if_null)]
_File = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_LENGTH)]
Files = Annotated[list[_File], Field(max_length=MAX_FILES), BeforeValidator(_empty_if_null)]
Result = Annotated[Any, AfterValidator(_bounded)]
Meta = Annotated[dict[str, Any], AfterValidator(_bounded)]
ResultSchema = Annotated[dict[str, Any], AfterValidator(_checked)]
RoleWord = Annotated[Literal["USER", "ASSISTANT"], BeforeValidator(_upper)]
Content = Annotated[str, StringConstraints(max_length=MAX_CONTENT_LENGTH)]
Token = Annotated[str, Field(max_length=MAX_TOKEN_LENGTH)]


class NullAsAbsent(BaseModel):
    """A model that treats null fields as absent."""

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, given: Any) -> Any:
        return {name: value for name, value in given.items() if value is not None} if isinstance(given, dict) else given

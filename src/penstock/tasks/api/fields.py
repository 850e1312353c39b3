"""What each field of a task may hold in a body: one place for all who send tasks."""

from collections.abc import Collection
from functools import partial
from typing import Annotated, Any

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from penstock.tasks.api.params import LONGEST_ID, NO_CONTROLS
from penstock.tasks.domain import MIDDLE, WORDS, Status, rank_of
from penstock.tasks.result_schema import flaw_of

LONGEST_NAME = 1000
LONGEST_TEXT = 1_000_000
LONGEST_TAG = 50
MOST_TAGS = 20
MOST_FILES = 100
NUMBERS = {str(number): number for number in range(1, 11)}
ROUTE_WORDS = frozenset({"pull", "batch", "check", "tags", "stats"})  # paths have these words where a task's id stands


def _no_word_of(words: Collection[str], given: str) -> str:
    if given.lower() in words:
        raise PydanticCustomError("route_word", "Our paths have this word where an id stands")
    return given


def _rank(priority: object) -> int:
    """1 to 10, also as a text, or a word, as the rank that databases sort by."""
    if priority is None:
        return rank_of(MIDDLE)
    number = priority
    if isinstance(priority, str):
        word = priority.strip().lower()
        number = NUMBERS.get(word) or WORDS.get(word)
    if type(number) is int and 1 <= number <= 10:  # a bool is an int, too
        return rank_of(number)
    raise PydanticCustomError("enum", "Input should be {expected}", {"expected": "1-10, high, medium, low"})


def _lower(word: object) -> object:
    return word.strip().lower() if isinstance(word, str) else word


def _once_each(words: list[str]) -> list[str]:
    return list(dict.fromkeys(words))


def _bounded(value: Any) -> Any:
    if len(msgspec.json.encode(value)) > LONGEST_TEXT:
        raise PydanticCustomError("string_too_long", "At most {max_length} bytes", {"max_length": LONGEST_TEXT})
    return value


def _checked(schema: dict[str, Any]) -> dict[str, Any]:
    flaw = flaw_of(schema)
    if flaw is not None:
        raise PydanticCustomError("result_schema", "{flaw}", {"flaw": flaw})
    return schema


def _or_none(words: object) -> object:
    return [] if words is None else words


_Id = StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST_ID, pattern=NO_CONTROLS)
KnownId = Annotated[str, _Id]
NewId = Annotated[str, _Id, AfterValidator(partial(_no_word_of, ROUTE_WORDS))]
NewProjectId = Annotated[str, _Id, AfterValidator(partial(_no_word_of, {"check", "tags"}))]
NewQueueId = Annotated[str, _Id, AfterValidator(partial(_no_word_of, {"check"}))]
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST_NAME)]
Prompt = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_TEXT)]
Text = Annotated[str, StringConstraints(max_length=LONGEST_TEXT)]
StatusWord = Annotated[Status, BeforeValidator(_lower)]
Rank = Annotated[int, BeforeValidator(_rank)]
_Tag = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST_TAG)]
Tags = Annotated[list[_Tag], Field(max_length=MOST_TAGS), AfterValidator(_once_each), BeforeValidator(_or_none)]
_File = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME)]
Files = Annotated[list[_File], Field(max_length=MOST_FILES), BeforeValidator(_or_none)]
Result = Annotated[Any, AfterValidator(_bounded)]
Meta = Annotated[dict[str, Any], AfterValidator(_bounded)]
ResultSchema = Annotated[dict[str, Any], AfterValidator(_checked)]

"""JSON Pointers (RFC 6901): where one leads in a value, how its field is called, and whether a schema knows the place.

A pointer has one spelling only: `~0` for ~, `~1` for /, and numbers of a list without leading zeros. `-`, the place
behind the end of a list, holds no value and so leads nowhere.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import msgspec

from penstock.documents.extract.fields.schema import escape_pointer, unescape_pointer
from penstock.documents.extract.llm.subschemas import as_list, resolve_ref
from penstock.kernel.json_object import JsonObject

MOST_POINTER = 1000  # characters
MOST_DIGITS = 9  # of a place in a list
MOST_PARTS = 1000  # of a schema that are looked at for one step
BRANCHES = ("allOf", "anyOf", "oneOf")
CONDITIONS = ("then", "else")
HALF_ESCAPE = re.compile("~(?![01])")
ABSENT: Any = msgspec.UNSET

Tokens: TypeAlias = tuple[str, ...]


class BadPointer(Exception):
    """A pointer that leads nowhere, in both languages."""

    def __init__(self, reason: str, reason_zh: str) -> None:
        super().__init__(reason)
        self.reason, self.reason_zh = reason, reason_zh


def tokens_of(pointer: str) -> Tokens:
    """The steps of a pointer, or `BadPointer`."""
    if len(pointer) > MOST_POINTER:
        raise BadPointer(f"It is longer than {MOST_POINTER} characters.", f"超过 {MOST_POINTER} 个字符。")
    if not pointer:
        return ()
    if not pointer.startswith("/"):
        raise BadPointer("A JSON Pointer begins with a slash.", "JSON Pointer 以斜杠开头。")
    if HALF_ESCAPE.search(pointer):
        raise BadPointer("After a ~ comes 0 or 1.", "~ 之后应为 0 或 1。")
    return tuple(map(unescape_pointer, pointer[1:].split("/")))


def pointer_of(tokens: Sequence[str | int]) -> str:
    """The pointer of these steps."""
    return "".join(f"/{escape_pointer(str(token))}" for token in tokens)


def lies_in(inner: Tokens, outer: Tokens) -> bool:
    """Whether one place is another, or is inside of it."""
    return inner[: len(outer)] == outer


def around(tokens: Tokens) -> Iterator[Tokens]:
    """A place and all that it lies in."""
    return (tokens[:length] for length in range(len(tokens) + 1))


def find_overlap(places: Sequence[Tokens]) -> tuple[Tokens, Tokens] | None:
    """Two of these places of which the second lies in the first."""
    for outer, inner in pairwise(sorted(places)):  # whatever lies in a place comes right behind it
        if lies_in(inner, outer):
            return outer, inner
    return None


def found(whole: Any, tokens: Tokens) -> Any:
    """Where a pointer leads, or ABSENT."""
    for token in tokens:
        if isinstance(whole, dict):
            whole = whole.get(token, ABSENT)
        elif isinstance(whole, list) and (number := _number(token)) is not None and number < len(whole):
            whole = whole[number]
        else:
            return ABSENT
    return whole


def placed(whole: Any, tokens: Tokens, value: Any) -> Any:
    """A value put where a pointer leads: in place of another, or as a new member of an object."""
    if not tokens:
        return value
    parent, last = found(whole, tokens[:-1]), tokens[-1]
    parent[int(last) if isinstance(parent, list) else last] = value
    return whole


def field_of(whole: Any, tokens: Tokens) -> str:
    """A pointer with * for each number in a list."""
    told = ""
    for token in tokens:
        told += "/*" if isinstance(whole, list) else f"/{escape_pointer(token)}"
        whole = found(whole, (token,))
    return told


def knows(schema: JsonObject, tokens: Tokens) -> bool:
    """Whether a schema speaks of the place that these steps lead to, on whatever branch.

    So a value that is missing in a result can be added, and a slip of the pen cannot. Whether a value may really stand
    there is for validation to say.
    """
    parts = _spread(schema, [schema])
    for token in tokens:
        parts = _spread(schema, [inner for part in parts for inner in _below(part, token)])
    return bool(parts)


def _number(step: str) -> int | None:
    is_plain = step.isascii() and step.isdecimal() and len(step) <= MOST_DIGITS
    return int(step) if is_plain and str(int(step)) == step else None


def _spread(schema: JsonObject, parts: Sequence[Any]) -> list[JsonObject]:
    """These parts with what they refer to and choose from."""
    ahead, seen, spread = list(parts), set[int](), []
    while ahead and len(seen) < MOST_PARTS:
        part = {} if (given := ahead.pop()) is True else given  # `true` says as much as an empty schema
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        spread.append(part)
        ahead += (choice for name in BRANCHES for choice in as_list(part.get(name)))
        ahead += (part.get(name) for name in CONDITIONS)
        ahead.append(resolve_ref(schema, part.get("$ref")))
    return spread


def _below(part: JsonObject, token: str) -> Iterator[Any]:
    """What a part says of the values one step further. That it merely allows what it does not know says nothing."""
    for word in ("properties", "patternProperties"):
        named = part.get(word)
        if isinstance(named, dict):
            yield from (inner for name, inner in named.items() if name == token or word == "patternProperties")
    for word in ("additionalProperties", "items"):
        if isinstance(part.get(word), dict):
            yield part[word]
    yield from as_list(part.get("items"))
    yield from as_list(part.get("prefixItems"))

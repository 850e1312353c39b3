"""JSON Pointers (RFC 6901): resolve one in a value, name its field, and check whether a schema covers it.

A pointer has exactly one spelling: `~0` for ~, `~1` for /, and list indexes without leading zeros. `-`, the position
after the last list item, holds no value and is therefore never resolved.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import msgspec

from penstock.documents.extract.fields.schema import escape_pointer, unescape_pointer
from penstock.documents.extract.llm.subschemas import as_list, resolve_ref
from penstock.kernel.json_object import JsonObject

MAX_POINTER_CHARS = 1000
MAX_DIGITS = 9  # of a list index
MAX_PARTS = 1000  # subschemas visited per step of a pointer
BRANCHES = ("allOf", "anyOf", "oneOf")
CONDITIONS = ("then", "else")
BAD_ESCAPE = re.compile("~(?![01])")
ABSENT: Any = msgspec.UNSET

Tokens: TypeAlias = tuple[str, ...]


class BadPointer(Exception):
    """An invalid pointer, with the reason in both languages."""

    def __init__(self, reason: str, reason_zh: str) -> None:
        super().__init__(reason)
        self.reason, self.reason_zh = reason, reason_zh


def parse_pointer(pointer: str) -> Tokens:
    """The reference tokens of a pointer, or `BadPointer`."""
    if len(pointer) > MAX_POINTER_CHARS:
        raise BadPointer(f"Longer than {MAX_POINTER_CHARS} characters.", f"超过 {MAX_POINTER_CHARS} 个字符。")
    if not pointer:
        return ()
    if not pointer.startswith("/"):
        raise BadPointer("A JSON Pointer starts with a slash.", "JSON Pointer 以斜杠开头。")
    if BAD_ESCAPE.search(pointer):
        raise BadPointer("~ must be followed by 0 or 1.", "~ 之后应为 0 或 1。")
    return tuple(map(unescape_pointer, pointer[1:].split("/")))


def format_pointer(tokens: Sequence[str | int]) -> str:
    """The pointer of these tokens."""
    return "".join(f"/{escape_pointer(str(token))}" for token in tokens)


def is_within(inner: Tokens, outer: Tokens) -> bool:
    """Whether `inner` equals `outer` or is below it."""
    return inner[: len(outer)] == outer


def self_and_ancestors(tokens: Tokens) -> Iterator[Tokens]:
    """The pointer itself and every pointer above it, the root first."""
    return (tokens[:length] for length in range(len(tokens) + 1))


def find_overlap(pointers: Sequence[Tokens]) -> tuple[Tokens, Tokens] | None:
    """Two of these pointers of which the second is within the first."""
    for outer, inner in pairwise(sorted(pointers)):  # in sorted order a pointer is followed by those within it
        if is_within(inner, outer):
            return outer, inner
    return None


def resolve(whole: Any, tokens: Tokens) -> Any:
    """The value at a pointer, or ABSENT."""
    for token in tokens:
        if isinstance(whole, dict):
            whole = whole.get(token, ABSENT)
        elif isinstance(whole, list) and (index := _index(token)) is not None and index < len(whole):
            whole = whole[index]
        else:
            return ABSENT
    return whole


def set_value(whole: Any, tokens: Tokens, value: Any) -> Any:
    """Put a value at a pointer: it replaces another value, or becomes a new member of an object."""
    if not tokens:
        return value
    parent, last = resolve(whole, tokens[:-1]), tokens[-1]
    parent[int(last) if isinstance(parent, list) else last] = value
    return whole


def field_path(whole: Any, tokens: Tokens) -> str:
    """The pointer with * for each list index."""
    path = ""
    for token in tokens:
        path += "/*" if isinstance(whole, list) else f"/{escape_pointer(token)}"
        whole = resolve(whole, (token,))
    return path


def schema_covers(schema: JsonObject, tokens: Tokens) -> bool:
    """Whether a schema describes the value at a pointer, on any branch.

    So a value that is missing in a result can be added, and a misspelled name cannot. Whether the value is valid there
    is decided by validation.
    """
    parts = _expand(schema, [schema])
    for token in tokens:
        parts = _expand(schema, [inner for part in parts for inner in _below(part, token)])
    return bool(parts)


def _index(token: str) -> int | None:
    is_plain = token.isascii() and token.isdecimal() and len(token) <= MAX_DIGITS
    return int(token) if is_plain and str(int(token)) == token else None


def _expand(schema: JsonObject, parts: Sequence[Any]) -> list[JsonObject]:
    """These subschemas with their references and branches."""
    pending, seen, expanded = list(parts), set[int](), []
    while pending and len(seen) < MAX_PARTS:
        part = {} if (given := pending.pop()) is True else given  # `true` is equivalent to an empty schema
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        expanded.append(part)
        pending += (choice for name in BRANCHES for choice in as_list(part.get(name)))
        pending += (part.get(name) for name in CONDITIONS)
        pending.append(resolve_ref(schema, part.get("$ref")))
    return expanded


def _below(part: JsonObject, token: str) -> Iterator[Any]:
    """The subschemas of values one token below. Unknown names that a schema merely permits are not covered."""
    for word in ("properties", "patternProperties"):
        named = part.get(word)
        if isinstance(named, dict):
            yield from (inner for name, inner in named.items() if name == token or word == "patternProperties")
    for word in ("additionalProperties", "items"):
        if isinstance(part.get(word), dict):
            yield part[word]
    yield from as_list(part.get("items"))
    yield from as_list(part.get("prefixItems"))

"""JSON Pointers (RFC 6901): parse and format them, resolve one in a value, and put a value there.

A pointer has exactly one spelling: `~0` for ~, `~1` for /, and list indexes without leading zeros. `-`, the position
after the last list item, holds no value and is therefore never resolved.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import msgspec

MAX_POINTER_CHARS = 1000
MAX_DIGITS = 9  # of a list index
BAD_ESCAPE = re.compile("~(?![01])")
ABSENT: Any = msgspec.UNSET

Tokens: TypeAlias = tuple[str, ...]


class BadPointer(Exception):
    """An invalid pointer, with the reason in both languages."""

    def __init__(self, reason: str, reason_zh: str) -> None:
        super().__init__(reason)
        self.reason, self.reason_zh = reason, reason_zh


def parse_pointer(pointer: str) -> Tokens:
    """The reference tokens of a pointer that a user sent, or `BadPointer`."""
    if len(pointer) > MAX_POINTER_CHARS:
        raise BadPointer(f"Longer than {MAX_POINTER_CHARS} characters.", f"超过 {MAX_POINTER_CHARS} 个字符。")
    if pointer and not pointer.startswith("/"):
        raise BadPointer("A JSON Pointer starts with a slash.", "JSON Pointer 以斜杠开头。")
    if BAD_ESCAPE.search(pointer):
        raise BadPointer("~ must be followed by 0 or 1.", "~ 之后应为 0 或 1。")
    return split_pointer(pointer)


def split_pointer(pointer: str) -> Tokens:
    """The reference tokens of a valid pointer of any length."""
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:])


def format_pointer(tokens: Sequence[str | int]) -> str:
    """The pointer of these tokens."""
    return "".join(f"/{escape_token(str(token))}" for token in tokens)


def escape_token(token: str) -> str:
    """A property name as it is written in a pointer."""
    return token.replace("~", "~0").replace("/", "~1")


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
        path += "/*" if isinstance(whole, list) else f"/{escape_token(token)}"
        whole = resolve(whole, (token,))
    return path


def _index(token: str) -> int | None:
    is_plain = token.isascii() and token.isdecimal() and len(token) <= MAX_DIGITS
    return int(token) if is_plain and str(int(token)) == token else None

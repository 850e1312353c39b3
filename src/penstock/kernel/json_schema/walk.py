"""Walk a JSON Schema: level by level, or along the subschemas that apply to a value.

Only references into the same schema are followed; one by anchor, or past an inner `$id`, is ignored. Every walk has a
limit and visits a subschema once, so recursive references end. Whether a value is valid is up to a validator.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote

from penstock.kernel.json_object import JsonObject
from penstock.kernel.json_schema.pointers import ABSENT, Tokens, format_pointer, resolve, split_pointer

MAX_SUBSCHEMAS = 64  # that apply to one value
MAX_COVERING = 1000  # subschemas visited per step of a pointer
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
BRANCHES = ("anyOf", "oneOf")
ANY_BRANCH = ("allOf", *BRANCHES, "then", "else")
PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "number": (int, float),
    "integer": (int, float),
    "boolean": bool,
    "null": type(None),
}

Container: TypeAlias = dict[str, Any] | list[Any]


class Subschema(NamedTuple):
    """A part of a schema, and its JSON Pointer into the schema."""

    location: str
    schema: JsonObject


def levels(value: Any) -> Iterator[list[Container]]:
    """The objects and arrays of a JSON value, one nesting level after the other."""
    level = [value] if isinstance(value, dict | list) else []
    while level:
        yield level
        members = (part.values() if isinstance(part, dict) else part for part in level)
        level = [member for each in members for member in each if isinstance(member, dict | list)]


def ref_tokens(reference: object) -> Tokens | None:
    """Where a `$ref` points inside its schema; None for another schema or an anchor."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    pointer = unquote(reference[1:])  # before it is split, like the validator does: %2F separates too
    return split_pointer(pointer) if not pointer or pointer.startswith("/") else None


def refers_outside(part: Container) -> bool:
    """Whether a part of a schema refers to another schema."""
    given = [part.get(word) for word in REFERENCES] if isinstance(part, dict) else []
    return any(isinstance(reference, str) and not reference.startswith("#") for reference in given)


def resolve_ref(root: JsonObject, reference: object) -> Any:
    """The target of a `$ref`, or ABSENT."""
    tokens = ref_tokens(reference)
    return ABSENT if tokens is None else resolve(root, tokens)


def subschemas(
    root: JsonObject,
    starts: Iterable[tuple[str, Any]],
    *,
    keywords: tuple[str, ...] = ("allOf",),
    max_count: int = MAX_SUBSCHEMAS,
) -> list[Subschema]:
    """Schemas with their references and those under the keywords, recursively: by default, all that must hold."""
    found: dict[int, Subschema] = {}
    pending = deque(starts)
    while pending and len(found) < max_count:
        location, given = pending.popleft()
        schema = {} if given is True else given  # `true` is equivalent to an empty schema
        if not isinstance(schema, dict) or id(schema) in found:
            continue
        found[id(schema)] = Subschema(location, schema)
        for word in keywords:
            inner = schema.get(word)
            if isinstance(inner, list):
                pending += ((f"{location}/{word}/{at}", part) for at, part in enumerate(inner))
            elif inner is not None:
                pending.append((f"{location}/{word}", inner))
        if "$ref" in schema and (tokens := ref_tokens(schema["$ref"])) is not None:
            pending.append((format_pointer(tokens), resolve(root, tokens)))
    return list(found.values())


def all_of_schemas(root: JsonObject, schema: object) -> list[JsonObject]:
    """All schemas that a value must satisfy: the schema, its reference and its `allOf`, recursively."""
    if isinstance(schema, dict) and "$ref" not in schema and "allOf" not in schema:
        return [schema]  # most are plain, and this is called for every value of a result
    return [found.schema for found in subschemas(root, [("", schema)])]


def matching_branches(root: JsonObject, schemas: list[JsonObject], value: Any) -> list[list[JsonObject]]:
    """The schemas of each `anyOf` or `oneOf` branch that the value may match."""
    branches = [branch for schema in schemas for word in BRANCHES for branch in as_list(schema.get(word))]
    parents = {id(schema) for schema in schemas}  # a branch may refer back to its parent
    found = [all_of_schemas(root, branch) for branch in branches[:MAX_SUBSCHEMAS]]
    return [
        each for each in found if not parents & set(map(id, each)) and all(_may_match(part, value) for part in each)
    ]


def schema_covers(schema: JsonObject, tokens: Tokens) -> bool:
    """Whether a schema describes the value at a pointer, on any branch.

    So a value that is missing in a result can be added, and a misspelled name cannot. Whether the value is valid there
    is decided by validation.
    """
    parts: list[Any] = [schema]
    for token in tokens:
        parts = [inner for part in _on_any_branch(schema, parts) for inner in _below(part, token)]
    return bool(_on_any_branch(schema, parts))


def as_list(value: object) -> list[Any]:
    """The value of a keyword that should be a list; empty when it is not."""
    return value if isinstance(value, list) else []


def as_dict(value: object) -> dict[str, Any]:
    """The value of a keyword that should be an object; empty when it is not."""
    return value if isinstance(value, dict) else {}


def types_of(schema: JsonObject) -> list[str] | None:
    """The types that a schema allows; None when it has no `type`."""
    given = schema.get("type")
    return [given] if isinstance(given, str) else as_list(given) or None


def admits_null(root: JsonObject, schema: object) -> bool:
    """Whether a schema accepts null."""
    return _admits_null(root, schema, {})


def _admits_null(root: JsonObject, schema: object, known: dict[int, bool], depth: int = 0) -> bool:
    """`known` has each schema once, however many references lead to it; a recursive one adds nothing to itself."""
    if isinstance(schema, bool):
        return schema
    if id(schema) not in known:
        known[id(schema)] = False
        known[id(schema)] = depth < MAX_SUBSCHEMAS and all(
            _schema_admits_null(root, part, known, depth) for part in all_of_schemas(root, schema)
        )
    return known[id(schema)]


def _schema_admits_null(root: JsonObject, schema: JsonObject, known: dict[int, bool], depth: int) -> bool:
    types = types_of(schema)
    if types is not None and "null" not in types:
        return False
    if schema.get("const") is not None or None not in as_list(schema.get("enum", [None])):
        return False
    alternatives = [as_list(schema[word]) for word in BRANCHES if word in schema]
    return all(any(_admits_null(root, branch, known, depth + 1) for branch in branches) for branches in alternatives)


def _may_match(schema: JsonObject, value: Any) -> bool:
    """Whether a branch accepts the type of a value and the scalars in it."""
    if not _matches(schema, value):
        return False
    if not isinstance(value, dict):
        return True
    properties = ((part, value.get(name)) for name, part in as_dict(schema.get("properties")).items())
    return all(_matches(part, inner) for part, inner in properties if isinstance(part, dict) and inner is not None)


def _matches(schema: JsonObject, value: Any) -> bool:
    types = types_of(schema)
    if types is not None and not any(_is_type(value, name) for name in types):
        return False
    return value == schema.get("const", value) and value in as_list(schema.get("enum", [value]))


def _is_type(value: Any, name: object) -> bool:
    kind = PYTHON_TYPES.get(name) if isinstance(name, str) else None
    return kind is not None and isinstance(value, kind) and (isinstance(value, bool) == (kind is bool))


def _on_any_branch(root: JsonObject, parts: list[Any]) -> list[JsonObject]:
    found = subschemas(root, (("", part) for part in parts), keywords=ANY_BRANCH, max_count=MAX_COVERING)
    return [each.schema for each in found]


def _below(part: JsonObject, token: str) -> Iterator[Any]:
    """The subschemas of values one token below. Unknown names that a schema merely permits are not covered."""
    for word in ("properties", "patternProperties"):
        named = as_dict(part.get(word))
        yield from (inner for name, inner in named.items() if name == token or word == "patternProperties")
    for word in ("additionalProperties", "items"):
        if isinstance(part.get(word), dict):
            yield part[word]
    yield from as_list(part.get("items"))
    yield from as_list(part.get("prefixItems"))

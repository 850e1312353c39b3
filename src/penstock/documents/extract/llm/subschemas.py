"""The subschemas that apply to a value: a schema, its `$ref` and `allOf`, and the branches of `anyOf` and `oneOf`.

Only references into the same schema are resolved; one by anchor, or past an inner `$id`, is ignored. This serves the
code that derives schemas and cleans responses; whether a value is valid is up to a validator.
"""

from typing import Any
from urllib.parse import unquote

from penstock.documents.extract.fields.schema import unescape_pointer
from penstock.kernel.json_object import JsonObject

MAX_SUBSCHEMAS = 64
BRANCHES = ("anyOf", "oneOf")
SCHEMA_MAPS = frozenset(
    ["properties", "patternProperties", "$defs", "definitions"]
)  # keywords by the kind of their value
SCHEMA_LISTS = frozenset(["allOf", "anyOf", "oneOf", "prefixItems", "items"])
SINGLE_SCHEMAS = frozenset(
    ["items", "additionalItems", "additionalProperties", "unevaluatedProperties", "propertyNames"]
)
PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "number": (int, float),
    "integer": (int, float),
    "boolean": bool,
    "null": type(None),
}


def resolve_ref(root: JsonObject, reference: object) -> Any:
    """The target of a `$ref`; None when it cannot be resolved."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    found: Any = root
    for step in unquote(reference).split("/")[1:]:
        name = unescape_pointer(step)
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            return None
    return found


def all_of_schemas(root: JsonObject, schema: object) -> list[JsonObject]:
    """All schemas that a value must satisfy: the schema, its reference and its `allOf`, recursively."""
    found: dict[int, JsonObject] = {}
    pending = [schema]
    while pending and len(found) < MAX_SUBSCHEMAS:
        current = pending.pop(0)
        if not isinstance(current, dict) or id(current) in found:
            continue
        found[id(current)] = current
        pending += as_list(current.get("allOf"))
        if "$ref" in current:
            pending.append(resolve_ref(root, current["$ref"]))
    return list(found.values())


def matching_branches(root: JsonObject, schemas: list[JsonObject], value: Any) -> list[list[JsonObject]]:
    """The schemas of each `anyOf` or `oneOf` branch that the value may match."""
    branches = [branch for schema in schemas for word in BRANCHES for branch in as_list(schema.get(word))]
    parents = {id(schema) for schema in schemas}  # a branch may refer back to its parent
    found = [all_of_schemas(root, branch) for branch in branches[:MAX_SUBSCHEMAS]]
    return [
        each for each in found if not parents & set(map(id, each)) and all(_may_match(part, value) for part in each)
    ]


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


def admits_null(root: JsonObject, schema: object, depth: int = 0) -> bool:
    """Whether a schema accepts null."""
    if isinstance(schema, bool):
        return schema
    schemas = all_of_schemas(root, schema)
    return depth < MAX_SUBSCHEMAS and all(_schema_admits_null(root, schema, depth) for schema in schemas)


def _schema_admits_null(root: JsonObject, schema: JsonObject, depth: int) -> bool:
    types = types_of(schema)
    if types is not None and "null" not in types:
        return False
    if schema.get("const") is not None or None not in as_list(schema.get("enum", [None])):
        return False
    alternatives = [as_list(schema[word]) for word in BRANCHES if word in schema]
    return all(any(admits_null(root, branch, depth + 1) for branch in branches) for branches in alternatives)


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

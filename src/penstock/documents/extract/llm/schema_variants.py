"""Variants of a schema for the model: strict, for structured output, and relaxed, for a part of a document.

Servers with structured output (OpenAI's strict mode and the like) accept a subset of JSON Schema: every property is
required, with null for an optional one; no additional properties; only types, enums and branches. So the strict schema
is wider in some points and narrower in others; the response is always validated against the original. When a schema
cannot be expressed in the subset, there is no strict variant, and the server is asked in a weaker mode.

A part of a document rarely contains everything, so the relaxed schema requires nothing; a null then means "absent" (see
`optional_nulls.py`). Keywords that only a whole value can satisfy are left to the original schema, which validates the
merged result.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.kernel.json_object import JsonObject
from penstock.kernel.json_schema.walk import BRANCHES, admits_null, as_dict, as_list, resolve_ref, types_of

MAX_DEPTH = 10  # this and the next three: limits of OpenAI's documentation
MAX_PROPERTIES = 5000
MAX_ENUM = 1000
MAX_CHARACTERS = 120_000  # of names and enum values together
MAX_NODES = 20_000  # branches and references, each followed as often as it occurs, can multiply a small schema
SCALAR_TYPES = frozenset({"string", "number", "integer", "boolean", "null"})
ANNOTATIONS = ("title", "description")
UNSUPPORTED = frozenset(
    [
        "patternProperties",
        "prefixItems",
        "not",
        "if",
        "then",
        "else",
        "dependentSchemas",
        "$dynamicRef",
        "$recursiveRef",
    ]
)
BASE_KEYWORDS = frozenset({"$id", "$anchor", "$dynamicAnchor"})
SCHEMA_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions"})  # keywords by their kind of value
SCHEMA_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
SINGLE_SCHEMAS = frozenset(
    {"items", "additionalItems", "additionalProperties", "unevaluatedProperties", "propertyNames"}
)
WHOLE_VALUE_KEYWORDS = frozenset(
    [
        "required",
        "minItems",
        "minProperties",
        "contains",
        "minContains",
        "maxContains",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "if",
        "then",
        "else",
        "not",
        "unevaluatedItems",
    ]
)


class _NotExpressible(Exception):
    """The strict subset of JSON Schema cannot express this."""


def strict_schema(schema: JsonObject) -> JsonObject | None:
    """The strict variant of a schema; None when the subset cannot express it."""
    try:
        strict = _StrictSchemaBuilder(root=schema).build(schema, depth=0)
    except _NotExpressible:
        return None
    return strict if strict.get("type") == "object" else None


@dataclass
class _StrictSchemaBuilder:
    """Builds one strict schema and counts towards its limits."""

    root: JsonObject
    nodes: int = 0
    properties: int = 0
    enums: int = 0
    characters: int = 0

    def build(self, schema: Any, *, depth: int, branch_depth: int = 0) -> JsonObject:
        """Build a subschema at this depth, reached through this many nested branches of the same level."""
        if max(depth, branch_depth) > MAX_DEPTH or not isinstance(schema, dict):
            raise _NotExpressible
        flat = self._flatten(schema)
        annotations = {word: flat[word] for word in ANNOTATIONS if isinstance(flat.get(word), str)}
        options = [
            self._branch(branch, flat, depth, branch_depth + 1)
            for word in BRANCHES
            for branch in as_list(flat.get(word))
        ]
        options = options or list(self._typed_schemas(flat, depth))
        self._check_limits()
        return {**annotations, **options[0]} if len(options) == 1 else {**annotations, "anyOf": options}

    def _flatten(self, schema: JsonObject, nesting: int = 0) -> JsonObject:
        """Merge a schema with its `$ref` and its `allOf`, unless they contradict each other."""
        self.nodes += 1
        if (
            nesting > MAX_DEPTH
            or self.nodes > MAX_NODES
            or UNSUPPORTED & schema.keys()
            or (schema is not self.root and BASE_KEYWORDS & schema.keys())
        ):
            raise _NotExpressible
        flat = {word: value for word, value in schema.items() if word not in {"$ref", "allOf", *BASE_KEYWORDS}}
        others = as_list(schema.get("allOf"))
        if "$ref" in schema:
            others = [resolve_ref(self.root, schema["$ref"]), *others]
        for other in others:
            if not isinstance(other, dict):
                raise _NotExpressible
            flat = _merge_schemas(flat, self._flatten(other, nesting + 1))
        return flat

    def _branch(self, branch: Any, parent: JsonObject, depth: int, branch_depth: int) -> JsonObject:
        """Merge a branch with the keywords of its parent, so that it is complete by itself."""
        if not isinstance(branch, dict):
            raise _NotExpressible
        inherited = {word: value for word, value in parent.items() if word not in {*BRANCHES, *ANNOTATIONS}}
        return self.build(_merge_schemas(self._flatten(branch), inherited), depth=depth, branch_depth=branch_depth)

    def _typed_schemas(self, flat: JsonObject, depth: int) -> Iterator[JsonObject]:
        if "const" in flat or "enum" in flat:
            yield self._enum([flat["const"]] if "const" in flat else as_list(flat["enum"]))
            return
        types = types_of(flat) or _implied_types(flat)
        scalars = [name for name in types if name in SCALAR_TYPES]
        if scalars:
            yield {"type": scalars[0] if len(scalars) == 1 else scalars}
        for name in types:
            if name == "object":
                yield self._object(flat, depth)
            elif name == "array":
                yield {"type": "array", "items": self.build(flat.get("items"), depth=depth + 1)}
            elif name not in SCALAR_TYPES:
                raise _NotExpressible

    def _object(self, flat: JsonObject, depth: int) -> JsonObject:
        properties = as_dict(flat.get("properties"))
        if not properties or as_dict(flat.get("additionalProperties")):
            raise _NotExpressible  # the property names are not known in advance
        required = as_list(flat.get("required"))
        if any(name not in properties for name in required):
            raise _NotExpressible
        self.properties += len(properties)
        self.characters += sum(map(len, properties))
        strict = {name: self._property(part, name in required, depth + 1) for name, part in properties.items()}
        return {"type": "object", "properties": strict, "required": list(strict), "additionalProperties": False}

    def _property(self, schema: Any, is_required: bool, depth: int) -> JsonObject:
        strict = self.build(schema, depth=depth)
        if is_required or admits_null(self.root, schema):
            return strict
        options = strict.pop("anyOf") if "anyOf" in strict else [strict]
        annotations = {word: strict.pop(word) for word in ANNOTATIONS if word in strict}
        return {**annotations, "anyOf": [*options, {"type": "null"}]}

    def _enum(self, values: list[Any]) -> JsonObject:
        types = sorted({_type_of(value) for value in values})
        if not values:
            raise _NotExpressible
        self.enums += len(values)
        self.characters += sum(len(value) for value in values if isinstance(value, str))
        return {"type": types[0] if len(types) == 1 else types, "enum": values}

    def _check_limits(self) -> None:
        if self.properties > MAX_PROPERTIES or self.enums > MAX_ENUM or self.characters > MAX_CHARACTERS:
            raise _NotExpressible


def _merge_schemas(one: JsonObject, other: JsonObject) -> JsonObject:
    """Merge two schemas. Raises `_NotExpressible` where a keyword differs and cannot be combined."""
    merged = {**other, **one}
    for word in one.keys() & other.keys() - {*ANNOTATIONS}:
        if one[word] == other[word]:
            continue
        if word == "required":
            merged[word] = [*as_list(one[word]), *as_list(other[word])]
        elif word == "properties" and not as_dict(one[word]).keys() & as_dict(other[word]).keys():
            merged[word] = {**as_dict(other[word]), **as_dict(one[word])}
        else:
            raise _NotExpressible
    return merged


def _implied_types(flat: JsonObject) -> list[str]:
    if "properties" in flat:
        return ["object"]
    if "items" in flat:
        return ["array"]
    raise _NotExpressible  # accepts any value


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    names: dict[type, str] = {bool: "boolean", str: "string", int: "integer", float: "number"}
    if type(value) not in names:
        raise _NotExpressible
    return names[type(value)]


def relaxed_schema(schema: JsonObject) -> JsonObject:
    """A copy of a schema that requires nothing. Targets of references keep their place, unless dropped."""
    relaxed = {word: _relax_keyword(word, value) for word, value in schema.items() if word not in WHOLE_VALUE_KEYWORDS}
    if "oneOf" in relaxed:  # with nothing required, a value may match two branches
        relaxed.setdefault("anyOf", relaxed.pop("oneOf"))
    return relaxed


def _relax_keyword(word: str, value: Any) -> Any:
    if isinstance(value, dict) and word in SCHEMA_MAPS:
        return {name: _relax(schema) for name, schema in value.items()}
    if isinstance(value, list) and word in SCHEMA_LISTS:
        return [_relax(schema) for schema in value]
    return _relax(value) if word in SINGLE_SCHEMAS else value


def _relax(schema: Any) -> Any:
    return relaxed_schema(schema) if isinstance(schema, dict) else schema

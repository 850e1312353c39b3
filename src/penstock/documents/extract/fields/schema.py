"""Parse a JSON Schema into a schema tree.

Only references into the same schema are resolved; nothing is fetched. A recursive reference ends in an `EmptyNode`.
Schemas are untrusted, so their depth and number of fields, with references counted each time, are limited, and they are
parsed in the sandbox.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

import jsonschema_rs

from penstock.documents.extract.fields.label_keys import clauses_of, parts_of, schema_label_keys
from penstock.documents.extract.fields.schema_tree import (
    ArrayNode,
    ChoiceNode,
    EmptyNode,
    Labels,
    LeafNode,
    Node,
    ObjectNode,
    SchemaValidator,
)
from penstock.kernel.json_object import JsonObject

MAX_NESTING = 64  # of the schema itself
MAX_DEPTH = 16  # of the result
MAX_NODES = 5000
MAX_SUBSCHEMAS = 64  # per value
MAX_REASON = 200
MAX_LABELS = 50
BASE_URI = "urn:penstock:rule"

Subschema: TypeAlias = tuple[str, JsonObject]  # with its pointer into the schema


class UnusableSchema(Exception):
    """A schema that cannot be used, with the reason."""


def parse_schema(schema: Any) -> Node:
    """The tree of a schema. Raises `UnusableSchema`."""
    if not isinstance(schema, dict):
        raise UnusableSchema("it is not an object")
    _check_nesting(schema)
    schema = {word: value for word, value in schema.items() if word != "$id"}  # references are relative to its own root
    try:
        jsonschema_rs.Draft202012Validator(schema, offline=True)
        registry = jsonschema_rs.Registry([(BASE_URI, schema)])
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise UnusableSchema(str(getattr(error, "message", error))[:MAX_REASON]) from error
    return _SchemaParser(root=schema, registry=registry).node([""], pointer="", name="", ancestors=())


def escape_pointer(name: str) -> str:
    """Escape a property name for a JSON Pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def unescape_pointer(step: str) -> str:
    """Unescape a step of a JSON Pointer."""
    return step.replace("~1", "/").replace("~0", "~")


def _check_nesting(schema: Any) -> None:
    level = [schema]
    for _ in range(MAX_NESTING):
        level = [
            inner
            for part in level
            for inner in (part.values() if isinstance(part, dict) else part)
            if isinstance(inner, dict | list)
        ]
        if any(isinstance(part, dict) and isinstance(part.get("$id"), str) for part in level):
            raise UnusableSchema("only the root of the schema may have an $id")
        if not level:
            return
    raise UnusableSchema(f"it is nested more than {MAX_NESTING} deep")


@dataclass(kw_only=True)
class _SchemaParser:
    """Parses one schema. `ancestors` are the locations of the schemas around a node, to detect recursion."""

    root: JsonObject
    registry: jsonschema_rs.Registry
    count: int = field(default=0)

    def node(self, locations: Sequence[str], *, pointer: str, name: str, ancestors: tuple[str, ...]) -> Node:
        self.count += 1
        if self.count > MAX_NODES:
            raise UnusableSchema(f"it has more than {MAX_NODES} fields")
        subschemas = self._subschemas(locations)
        if any(location in ancestors for location, _ in subschemas) or pointer.count("/") > MAX_DEPTH:
            return EmptyNode(pointer=pointer)
        alternatives = [each for each in self._alternatives(subschemas) if not _is_null(each)] or [subschemas]
        labels = _labels(subschemas, locations, name)
        if all(_node_type(each) == "leaf" for each in alternatives):
            hints = tuple(_hint(each) for each in alternatives)
            return LeafNode(pointer=pointer, labels=labels, hints=hints, validator=self._validator(locations))
        options = [
            self._option(each, locations, pointer=pointer, labels=labels, ancestors=ancestors) for each in alternatives
        ]
        return options[0] if len(options) == 1 else ChoiceNode(pointer=pointer, options=tuple(options))

    def _option(
        self,
        subschemas: list[Subschema],
        locations: Sequence[str],
        *,
        pointer: str,
        labels: Labels,
        ancestors: tuple[str, ...],
    ) -> Node:
        node_type = _node_type(subschemas)
        if node_type == "leaf":
            return LeafNode(
                pointer=pointer, labels=labels, hints=(_hint(subschemas),), validator=self._validator(locations)
            )
        ancestors = (*ancestors, *(location for location, _ in subschemas))
        if node_type == "array":
            items = [f"{location}/items" for location, schema in subschemas if isinstance(schema.get("items"), dict)]
            item = self.node(items, pointer="", name="", ancestors=ancestors) if items else EmptyNode(pointer="")
            return ArrayNode(pointer=pointer, labels=labels, item=item)
        return ObjectNode(
            pointer=pointer,
            labels=labels,
            fields={
                name: self.node(inner, pointer=f"{pointer}/{escape_pointer(name)}", name=name, ancestors=ancestors)
                for name, inner in _properties(subschemas).items()
            },
            required=frozenset(name for _, schema in subschemas for name in schema.get("required", ())),
        )

    def _validator(self, locations: Sequence[str]) -> SchemaValidator:
        refs = [{"$ref": f"{BASE_URI}#{quote(location)}"} for location in locations]
        return jsonschema_rs.Draft202012Validator(
            {"allOf": refs},
            registry=self.registry,
            offline=True,
            validate_formats=True,
            email_options=jsonschema_rs.EmailOptions(allow_display_text=False),  # "a@b.org", not "Ann <a@b.org>"
        )

    def _subschemas(self, locations: Sequence[str]) -> list[Subschema]:
        """All schemas that a value must satisfy: those at the locations, their references and `allOf`, recursively."""
        found: dict[str, JsonObject] = {}
        pending = list(locations)
        while pending and len(found) < MAX_SUBSCHEMAS:
            location = pending.pop(0)
            schema = self._at(location)
            if location in found or not isinstance(schema, dict):
                continue
            found[location] = schema
            pending += [f"{location}/allOf/{at}" for at in range(len(schema.get("allOf", ())))]
            if isinstance(schema.get("$ref"), str):
                pending.append(_pointer_of(schema["$ref"]))
        return list(found.items())

    def _alternatives(self, subschemas: list[Subschema]) -> Iterator[list[Subschema]]:
        """The subschemas with each branch of their first `anyOf` or `oneOf`; the validator checks the others."""
        for location, schema in subschemas:
            for word in ("anyOf", "oneOf"):
                branches = schema.get(word)
                if branches:
                    for at in range(min(len(branches), MAX_SUBSCHEMAS)):
                        yield [*self._subschemas([f"{location}/{word}/{at}"]), *subschemas]
                    return
        yield subschemas

    def _at(self, location: str) -> Any:
        found: Any = self.root
        for step in location.split("/")[1:]:
            name = unescape_pointer(step)
            if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            elif isinstance(found, dict) and name in found:
                found = found[name]
            else:
                raise UnusableSchema("a $ref has no target")
        return found


def _pointer_of(reference: str) -> str:
    location = unquote(reference.removeprefix("#"))
    if not reference.startswith("#") or (location and not location.startswith("/")):
        raise UnusableSchema("a $ref must point into the schema itself, like #/$defs/name")
    return location


def _node_type(subschemas: list[Subschema]) -> str:
    if any("properties" in schema or schema.get("type") == "object" for _, schema in subschemas):
        return "object"
    return "array" if any("items" in schema or schema.get("type") == "array" for _, schema in subschemas) else "leaf"


def _is_null(subschemas: list[Subschema]) -> bool:
    return any(schema.get("type") == "null" or schema.get("const", 0) is None for _, schema in subschemas)


def _hint(subschemas: list[Subschema]) -> JsonObject:
    return {word: value for _, schema in reversed(subschemas) for word, value in schema.items()}


def _properties(subschemas: list[Subschema]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for location, schema in subschemas:
        for name in schema.get("properties", ()):
            found.setdefault(name, []).append(f"{location}/properties/{escape_pointer(name)}")
    return found


def _labels(subschemas: list[Subschema], own_locations: Sequence[str], name: str) -> Labels:
    """The labels of a property, best first: each of its `x-labels`, its title, its name, its description; and last
    those of a definition that it refers to, which other properties may refer to as well."""
    own_schemas = [schema for location, schema in subschemas if location in own_locations]
    own_texts = [texts for schema in own_schemas or [{}] for texts in _label_texts(schema, name)]
    referred_texts = [
        texts for location, schema in subschemas if location not in own_locations for texts in _label_texts(schema, "")
    ]
    return tuple(filter(None, (_keys(texts) for texts in [*own_texts, *referred_texts][:MAX_LABELS])))


def _label_texts(schema: JsonObject, name: str) -> Iterator[list[str]]:
    words = schema.get("x-labels")
    if isinstance(words, list):
        yield from ([word] for word in words if isinstance(word, str))
    title, description = schema.get("title"), schema.get("description")
    if isinstance(title, str):
        yield [title, *parts_of(title)]
    yield [name]
    if isinstance(description, str):
        yield clauses_of(description)


def _keys(texts: list[str]) -> frozenset[str]:
    return frozenset(key for text in texts for key in schema_label_keys(text))

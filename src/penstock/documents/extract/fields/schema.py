"""Parse a JSON Schema into a schema tree.

Only references into the same schema are resolved; nothing is fetched. `allOf` is merged, and of `anyOf` and `oneOf` the
first that can be filled is used. A recursive reference ends in an `EmptyNode`. Schemas are untrusted, so their depth
and number of fields, with references counted each time, are limited, and they are parsed in the sandbox.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.documents.extract.fields.label_keys import clauses_of, parts_of, schema_label_keys
from penstock.documents.extract.fields.schema_tree import (
    ArrayNode,
    ChoiceNode,
    EmptyNode,
    Labels,
    LeafNode,
    Node,
    ObjectNode,
)
from penstock.kernel.json_object import JsonObject
from penstock.kernel.json_schema.pointers import ABSENT, escape_token
from penstock.kernel.json_schema.validation import InvalidSchema, PartValidators
from penstock.kernel.json_schema.walk import (
    BRANCHES,
    MAX_SUBSCHEMAS,
    Subschema,
    levels,
    ref_tokens,
    resolve_ref,
    subschemas,
)

MAX_NESTING = 64  # of the schema itself
MAX_DEPTH = 16  # of the result
MAX_NODES = 5000
MAX_REASON = 200
MAX_LABELS = 50


class UnusableSchema(Exception):
    """A schema that cannot be used, with the reason."""


def parse_schema(schema: Any) -> Node:
    """The tree of a schema. Raises `UnusableSchema`."""
    if not isinstance(schema, dict):
        raise UnusableSchema("it is not an object")
    _check_nesting(schema)
    schema = {word: value for word, value in schema.items() if word != "$id"}  # references are relative to its own root
    try:
        validators = PartValidators(schema)
    except InvalidSchema as error:
        raise UnusableSchema(error.message[:MAX_REASON]) from error
    return _SchemaParser(root=schema, validators=validators).node([Subschema("", schema)], pointer="", name="")


def _check_nesting(schema: JsonObject) -> None:
    for depth, level in enumerate(levels(schema)):
        if depth and any(isinstance(part, dict) and isinstance(part.get("$id"), str) for part in level):
            raise UnusableSchema("only the root of the schema may have an $id")
        if depth == MAX_NESTING:
            raise UnusableSchema(f"it is nested more than {MAX_NESTING} deep")


@dataclass(kw_only=True)
class _SchemaParser:
    """Parses one schema. `ancestors` are the locations of the schemas around a node, to detect recursion."""

    root: JsonObject
    validators: PartValidators
    count: int = field(default=0)

    def node(self, own: Sequence[Subschema], *, pointer: str, name: str, ancestors: tuple[str, ...] = ()) -> Node:
        self.count += 1
        if self.count > MAX_NODES:
            raise UnusableSchema(f"it has more than {MAX_NODES} fields")
        schemas = self._required(own)
        if any(location in ancestors for location, _ in schemas) or pointer.count("/") > MAX_DEPTH:
            return EmptyNode(pointer=pointer)
        alternatives = [each for each in self._alternatives(schemas) if not _is_null(each)] or [schemas]
        labels = _labels(schemas, own, name)
        if all(_node_type(each) == "leaf" for each in alternatives):
            return self._leaf(alternatives, own, pointer, labels)
        options = [
            self._option(each, own, pointer=pointer, labels=labels, ancestors=ancestors) for each in alternatives
        ]
        return options[0] if len(options) == 1 else ChoiceNode(pointer=pointer, options=tuple(options))

    def _option(
        self,
        schemas: list[Subschema],
        own: Sequence[Subschema],
        *,
        pointer: str,
        labels: Labels,
        ancestors: tuple[str, ...],
    ) -> Node:
        node_type = _node_type(schemas)
        if node_type == "leaf":
            return self._leaf([schemas], own, pointer, labels)
        ancestors = (*ancestors, *(location for location, _ in schemas))
        if node_type == "array":
            items = [
                Subschema(f"{location}/items", schema["items"])
                for location, schema in schemas
                if isinstance(schema.get("items"), dict)
            ]
            item = self.node(items, pointer="", name="", ancestors=ancestors) if items else EmptyNode(pointer="")
            return ArrayNode(pointer=pointer, labels=labels, item=item)
        return ObjectNode(
            pointer=pointer,
            labels=labels,
            fields={
                name: self.node(inner, pointer=f"{pointer}/{escape_token(name)}", name=name, ancestors=ancestors)
                for name, inner in _properties(schemas).items()
            },
            required=frozenset(name for _, schema in schemas for name in schema.get("required", ())),
        )

    def _leaf(
        self, alternatives: list[list[Subschema]], own: Sequence[Subschema], pointer: str, labels: Labels
    ) -> LeafNode:
        validator = self.validators.validator(location for location, _ in own)
        return LeafNode(
            pointer=pointer, labels=labels, hints=tuple(_hint(each) for each in alternatives), validator=validator
        )

    def _required(self, own: Sequence[Subschema]) -> list[Subschema]:
        """All schemas that a value must satisfy. Raises `UnusableSchema` if a reference cannot be followed."""
        found = subschemas(self.root, own)
        references = [schema["$ref"] for _, schema in found if isinstance(schema.get("$ref"), str)]
        if any(ref_tokens(reference) is None for reference in references):
            raise UnusableSchema("a $ref must point into the schema itself, like #/$defs/name")
        if any(resolve_ref(self.root, reference) is ABSENT for reference in references):
            raise UnusableSchema("a $ref has no target")
        return found

    def _alternatives(self, schemas: list[Subschema]) -> Iterator[list[Subschema]]:
        """The subschemas with each branch of their first `anyOf` or `oneOf`; the validator checks the others."""
        for location, schema in schemas:
            for word in BRANCHES:
                branches = schema.get(word)
                if branches:
                    for at, branch in enumerate(branches[:MAX_SUBSCHEMAS]):
                        yield [*self._required([Subschema(f"{location}/{word}/{at}", branch)]), *schemas]
                    return
        yield schemas


def _node_type(schemas: list[Subschema]) -> str:
    if any("properties" in schema or schema.get("type") == "object" for _, schema in schemas):
        return "object"
    return "array" if any("items" in schema or schema.get("type") == "array" for _, schema in schemas) else "leaf"


def _is_null(schemas: list[Subschema]) -> bool:
    return any(schema.get("type") == "null" or schema.get("const", 0) is None for _, schema in schemas)


def _hint(schemas: list[Subschema]) -> JsonObject:
    return {word: value for _, schema in reversed(schemas) for word, value in schema.items()}


def _properties(schemas: list[Subschema]) -> dict[str, list[Subschema]]:
    found: dict[str, list[Subschema]] = {}
    for location, schema in schemas:
        for name, inner in schema.get("properties", {}).items():
            found.setdefault(name, []).append(Subschema(f"{location}/properties/{escape_token(name)}", inner))
    return found


def _labels(schemas: list[Subschema], own: Sequence[Subschema], name: str) -> Labels:
    """The labels of a property, best first: each of its `x-labels`, its title, its name, its description; and last
    those of a definition that it refers to, which other properties may refer to as well."""
    own_locations = {location for location, _ in own}
    own_schemas = [schema for location, schema in schemas if location in own_locations]
    own_texts = [texts for schema in own_schemas or [{}] for texts in _label_texts(schema, name)]
    referred_texts = [
        texts for location, schema in schemas if location not in own_locations for texts in _label_texts(schema, "")
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

"""A schema as a tree of leaves, objects and arrays.

Pointers are JSON Pointers into the result; below an array they are relative to the item, since one leaf represents that
of all items. Nodes are compared by identity: two leaves with equal fields are different leaves.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from penstock.kernel.json_object import JsonObject
from penstock.kernel.json_schema.validation import SchemaValidator
from penstock.kernel.json_schema.walk import types_of

Labels: TypeAlias = tuple[frozenset[str], ...]  # label keys, the best first


# Formats that prose does not match by chance. Not hostname, which any word matches.
SPECIFIC_FORMATS = frozenset(
    {"date", "date-time", "time", "duration", "email", "idn-email", "uri", "iri", "uuid", "ipv4", "ipv6"}
)


@dataclass(frozen=True, kw_only=True, eq=False)
class LeafNode:
    """A scalar. `hints` are its merged schemas, one per alternative."""

    pointer: str
    labels: Labels
    hints: tuple[JsonObject, ...]
    validator: SchemaValidator

    @property
    def is_free_text(self) -> bool:
        """Whether any text is valid. A nearby label is then not enough: the text must clearly belong to it."""
        return not any(_is_specific(hint) for hint in self.hints)

    @property
    def is_boolean(self) -> bool:
        """Whether a checkbox can be its value."""
        return any("boolean" in leaf_types(hint) for hint in self.hints)


@dataclass(frozen=True, kw_only=True, eq=False)
class ObjectNode:
    """An object with properties."""

    pointer: str
    labels: Labels
    fields: "dict[str, Node]"
    required: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrayNode:
    """An array. One whose item refers back to itself has an `EmptyNode` as item, and stays empty."""

    pointer: str
    labels: Labels
    item: "Node"


@dataclass(frozen=True, kw_only=True, eq=False)
class ChoiceNode:
    """Alternatives that are not all scalars. The first that can be filled is used."""

    pointer: str
    options: "tuple[Node, ...]"


@dataclass(frozen=True, kw_only=True, eq=False)
class EmptyNode:
    """A node without a value: the end of a recursive schema."""

    pointer: str


Node: TypeAlias = LeafNode | ObjectNode | ArrayNode | ChoiceNode | EmptyNode


def walk(node: Node) -> Iterator[tuple[Node, tuple[ObjectNode, ...]]]:
    """A node and everything below it, except inside arrays, each with the objects around it."""
    pending: list[tuple[Node, tuple[ObjectNode, ...]]] = [(node, ())]
    while pending:
        current, ancestors = pending.pop()
        yield current, ancestors
        if isinstance(current, ObjectNode):
            inner = (*ancestors, current) if current.pointer else ancestors  # the root is not a section
            pending += [(child, inner) for child in reversed(current.fields.values())]
        elif isinstance(current, ChoiceNode):
            pending += [(option, ancestors) for option in reversed(current.options)]


def leaf_types(hint: JsonObject) -> list[str]:
    """The types of a leaf; string by default."""
    return types_of(hint) or ["string"]


def _is_specific(hint: JsonObject) -> bool:
    if "enum" in hint or "const" in hint or hint.get("format") in SPECIFIC_FORMATS:
        return True
    pattern = hint.get("pattern", "")
    if pattern.startswith("^") and pattern.endswith("$"):
        return True
    return "string" not in leaf_types(hint)

"""The scalar values of a result, each with its node of the schema.

Null and empty text are left out: they claim nothing that a document could confirm.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from penstock.documents.extract.fields.label_keys import schema_label_keys, split_camel_case
from penstock.documents.extract.fields.schema_tree import ArrayNode, ChoiceNode, LeafNode, Node, ObjectNode
from penstock.documents.grounding.tokens import tokens
from penstock.kernel.json_object import JsonObject
from penstock.kernel.json_schema.pointers import escape_token

Scalar: TypeAlias = str | int | float | bool
MAX_LEAVES = 20_000
MAX_DEPTH = 64
MIN_LETTERS = 4  # of a word of the property name that ranks an occurrence


class TooManyResultLeaves(Exception):
    """A result has too many values, or is nested too deep."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ResultLeaf:
    """A scalar value of a result. `item` is the pointer of the innermost array item around it."""

    pointer: str
    value: Scalar
    node: LeafNode | None = None  # its schema
    item: str = ""
    path: str = ""  # pointer relative to the item, or to the root
    is_required: bool = False

    @property
    def hints(self) -> Sequence[JsonObject]:
        """The schemas that the value may match."""
        return self.node.hints if self.node else ()

    @cached_property
    def labels(self) -> frozenset[str]:
        """The keys of its possible labels; without a schema, of its property name."""
        if self.node is not None:
            return frozenset(key for keys in self.node.labels for key in keys)
        return schema_label_keys(self.pointer.rpartition("/")[2])

    @cached_property
    def name_words(self) -> frozenset[str]:
        """The longer words of its property name, without the plural s."""
        name = split_camel_case(self.pointer.rpartition("/")[2])
        return frozenset(token.key.removesuffix("s") for token in tokens(name) if len(token.key) >= MIN_LETTERS)

    @property
    def is_choice(self) -> bool:
        """Whether the schema enumerates the possible values."""
        return any("enum" in hint or "const" in hint for hint in self.hints)


class ResultPath(NamedTuple):
    """The place of a value in a result. Array items are required: removing one would shift the others."""

    pointer: str
    item: str
    path: str
    is_required: bool


def result_leaves(value: Any, tree: Node | None) -> list[ResultLeaf]:
    """The leaves of a result in document order. Raises `TooManyResultLeaves` beyond the limits."""
    found: list[ResultLeaf] = []
    for leaf in _walk(value, tree, ResultPath("", "", "", is_required=True), 0):
        found.append(leaf)
        if len(found) > MAX_LEAVES:
            raise TooManyResultLeaves
    return found


def _walk(value: Any, node: Node | None, at: ResultPath, depth: int) -> Iterator[ResultLeaf]:
    if depth > MAX_DEPTH:
        raise TooManyResultLeaves
    node = _matching_option(node, value)
    if isinstance(value, dict):
        fields = node.fields if isinstance(node, ObjectNode) else {}
        for key, inner in value.items():
            step = "/" + escape_token(str(key))
            is_required = isinstance(node, ObjectNode) and key in node.required
            yield from _walk(
                inner, fields.get(key), ResultPath(at.pointer + step, at.item, at.path + step, is_required), depth + 1
            )
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            here = f"{at.pointer}/{index}"
            yield from _walk(
                inner,
                node.item if isinstance(node, ArrayNode) else None,
                ResultPath(here, here, "", is_required=True),
                depth + 1,
            )
    elif value is not None and value != "":
        yield ResultLeaf(value=value, node=node if isinstance(node, LeafNode) else None, **at._asdict())


def _matching_option(node: Node | None, value: Any) -> Node | None:
    """For a choice, the option with the shape of the value."""
    if not isinstance(node, ChoiceNode):
        return node
    shape = ObjectNode if isinstance(value, dict) else ArrayNode if isinstance(value, list) else LeafNode
    fitting = [option for option in node.options if isinstance(option, shape)]
    if shape is ObjectNode and len(fitting) > 1:
        fitting.sort(key=lambda option: -len(set(value) & set(option.fields)) if isinstance(option, ObjectNode) else 0)
    return fitting[0] if fitting else None

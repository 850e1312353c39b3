"""The values of a result, one by one, each with what the schema says about it.

Whatever is no object and no array is a leaf. Null and empty text are none: they claim nothing that a document could
confirm.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from penstock.documents.extract.fields.schema import escaped
from penstock.documents.extract.fields.tree import Choice, Leaf, Node, Record, Rows
from penstock.documents.extract.fields.words import keys_wanted, spaced
from penstock.documents.grounding.tokens import tokens
from penstock.kernel.plain import Plain

Scalar: TypeAlias = str | int | float | bool
MOST_LEAVES = 20_000
MOST_DEPTH = 64
FEWEST_LETTERS = 4  # of a word by which a value is found near


class TooManyLeaves(Exception):
    """A result has more values than are looked for."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Claim:
    """A value that a result states. `item` is the pointer of the innermost array's item that it belongs to."""

    pointer: str
    value: Scalar
    leaf: Leaf | None = None  # what the schema has there
    item: str = ""
    name: str = ""  # the way from the item, or from the whole, to the value
    is_required: bool = False

    @property
    def hints(self) -> Sequence[Plain]:
        """What the schema says the value may be."""
        return self.leaf.hints if self.leaf else ()

    @cached_property
    def labels(self) -> frozenset[str]:
        """The keys of the labels that it may stand by; without a schema, of its own name."""
        if self.leaf is not None:
            return frozenset(key for keys in self.leaf.labels for key in keys)
        return keys_wanted(self.pointer.rpartition("/")[2])

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of its name that mean something on their own, one and many alike."""
        name = spaced(self.pointer.rpartition("/")[2])
        return frozenset(token.key.removesuffix("s") for token in tokens(name) if len(token.key) >= FEWEST_LETTERS)

    @property
    def is_choice(self) -> bool:
        """Whether the schema lists the values that it may be."""
        return any("enum" in hint or "const" in hint for hint in self.hints)


class At(NamedTuple):
    """Where in a result a value stands. An item of an array is required: the others are counted after it."""

    pointer: str
    item: str
    name: str
    is_required: bool


def claims_of(value: Any, wanted: Node | None) -> list[Claim]:
    """All that a result states, in order; TooManyLeaves when there is too much of it."""
    found: list[Claim] = []
    for claim in _walk(value, wanted, At("", "", "", is_required=True), 0):
        found.append(claim)
        if len(found) > MOST_LEAVES:
            raise TooManyLeaves
    return found


def _walk(value: Any, node: Node | None, at: At, depth: int) -> Iterator[Claim]:
    if depth > MOST_DEPTH:
        raise TooManyLeaves
    node = _chosen(node, value)
    if isinstance(value, dict):
        fields = node.fields if isinstance(node, Record) else {}
        for key, inner in value.items():
            step = "/" + escaped(str(key))
            is_required = isinstance(node, Record) and key in node.required
            yield from _walk(
                inner, fields.get(key), At(at.pointer + step, at.item, at.name + step, is_required), depth + 1
            )
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            here = f"{at.pointer}/{index}"
            yield from _walk(
                inner, node.item if isinstance(node, Rows) else None, At(here, here, "", is_required=True), depth + 1
            )
    elif value is not None and value != "":
        yield Claim(value=value, leaf=node if isinstance(node, Leaf) else None, **at._asdict())


def _chosen(node: Node | None, value: Any) -> Node | None:
    """Of alternatives the one whose shape the value has."""
    if not isinstance(node, Choice):
        return node
    shape = Record if isinstance(value, dict) else Rows if isinstance(value, list) else Leaf
    fitting = [option for option in node.options if isinstance(option, shape)]
    if shape is Record and len(fitting) > 1:
        fitting.sort(key=lambda option: -len(set(value) & set(option.fields)) if isinstance(option, Record) else 0)
    return fitting[0] if fitting else None

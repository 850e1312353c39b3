"""The index from labels to the leaves of a schema.

A leaf inside an object matches its label within the object's section, and the composed label ("Seller name") anywhere.
Outside of any section its own label matches only when no other leaf has it. A label in the section of one party (a
buyer, a seller) never matches a leaf of another party, even when no other leaf has that label.
"""

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

from penstock.documents.extract.fields.label_keys import (
    MAX_LABEL,
    form_label_keys,
    label_key,
    parts_of,
    party_label_keys,
    total_label_keys,
    without_note,
    without_unit,
)
from penstock.documents.extract.fields.schema_tree import ArrayNode, Labels, LeafNode, Node, ObjectNode, walk

T = TypeVar("T")

MAX_FORM_LABEL = 24  # characters, spaces between letters included
MAX_COMPOSED = 64  # keys composed of an object's and a leaf's label

_BEGINS_WITH_LABEL = re.compile(r"[^:：\d]{1,40}[:：](?!//)")


class LabelledLeaf(NamedTuple):
    """A leaf indexed by a key. `rank` is the position of the key among the labels of the leaf."""

    leaf: LeafNode
    rank: int
    ancestors: tuple[ObjectNode, ...]
    names_object: bool  # the key is composed with the label of the object


class SectionOwner(NamedTuple):
    """The owner of a section: an object of the schema, or None for a party that the schema does not have. `party` is
    then its group in `PARTIES`, or None when it may be any."""

    node: ObjectNode | None
    party: int | None = None
    has_ended: bool = False  # labels that the owner does not have may match any leaf again


class LabelMatch(NamedTuple):
    """A leaf that a label matches, with a rank; lower is better."""

    leaf: LeafNode
    rank: tuple[int, int]


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelIndex:
    """All labels of a schema tree. The items of each array have an index of their own."""

    leaves_by_key: dict[str, list[LabelledLeaf]]
    objects_by_key: dict[str, list[ObjectNode]]
    arrays: tuple[ArrayNode, ...]
    leaves: tuple[LeafNode, ...]
    arrays_by_key: dict[str, list[ArrayNode]]

    @classmethod
    def of(cls, node: Node) -> "LabelIndex":
        """Index a node and everything below it, except inside arrays."""
        index = cls(
            leaves_by_key={},
            objects_by_key={},
            arrays=tuple(_array_nodes(node)),
            leaves=tuple(_leaf_nodes(node)),
            arrays_by_key={},
        )
        for part, ancestors in walk(node):
            if isinstance(part, LeafNode):
                index._add_leaf(part, ancestors)
            elif isinstance(part, ObjectNode) and part.pointer:
                _add(index.objects_by_key, part.labels, part)
            elif isinstance(part, ArrayNode):
                _add(index.arrays_by_key, part.labels, part)
        return index

    @cached_property
    def max_label_length(self) -> int:
        """Upper bound of the length of a schema label in a document, with spaces, punctuation and articles."""
        keys = itertools.chain(self.leaves_by_key, self.objects_by_key, self.arrays_by_key)
        return min(2 * max(map(len, keys), default=0) + 15, MAX_LABEL)

    @cached_property
    def form_labels(self) -> frozenset[str]:
        """Keys of labels that are common on forms."""
        return form_label_keys()

    @cached_property
    def totals(self) -> frozenset[str]:
        """Keys of the labels of totals."""
        return total_label_keys()

    @cached_property
    def parties(self) -> dict[str, int]:
        """Keys of parties, each with its group."""
        return party_label_keys()

    def match(self, label: str, owner: SectionOwner | None = None, heading: str = "") -> list[LabelMatch]:
        """The leaves that a label matches in the section of its owner, or composed with a heading; best level only."""
        key = label_key(label)
        if not key:
            return []
        for level, keys in enumerate(([key], [heading + key] if heading else [], map(label_key, parts_of(label)))):
            entries = [entry for each in keys for entry in self._leaves(each, owner)]
            best = {entry.leaf: entry.rank for entry in sorted(entries, key=lambda entry: -entry.rank)}
            if best:
                return [LabelMatch(leaf, (rank, level)) for leaf, rank in best.items()]
        return []

    def is_schema_label(self, text: str) -> bool:
        """Whether a text is a label of the schema."""
        if len(text) > self.max_label_length:
            return False
        return self._is_known(label_key(text), *(label_key(part) for part in parts_of(text)[:1]))

    def is_entire_label(self, text: str) -> bool:
        """Whether a whole text is a label of the schema, optionally with a rate, a currency or a note in brackets."""
        variants = (text, without_unit(text), without_note(text))
        return self._is_known(*(label_key(each) for each in variants if len(each) <= self.max_label_length))

    def is_label(self, text: str) -> bool:
        """Whether a text is any label, or starts with one, and so cannot be a value."""
        return bool(_BEGINS_WITH_LABEL.match(text)) or self.is_schema_label(text) or self.is_form_label(text)

    def is_form_label(self, text: str) -> bool:
        """Whether a text is a label that is common on forms."""
        return len(text) <= MAX_FORM_LABEL and label_key(text) in self.form_labels

    def is_party(self, text: str) -> bool:
        """Whether a text names a party, of the schema or not."""
        return len(text) <= MAX_FORM_LABEL and label_key(text) in self.parties

    def ends_value(self, text: str) -> bool:
        """Whether a value in a line ends before this text."""
        return self.is_form_label(text) or self.is_party(text)

    def _is_known(self, *keys: str) -> bool:
        return any(
            key in known for key in keys for known in (self.leaves_by_key, self.objects_by_key, self.arrays_by_key)
        )

    def _leaves(self, key: str, owner: SectionOwner | None) -> Iterable[LabelledLeaf]:
        found = self.leaves_by_key.get(key, [])
        inside = [entry for entry in found if owner is not None and owner.node in entry.ancestors]
        if inside:
            return inside
        unambiguous = [entry for entry in found if entry.names_object or not entry.ancestors]
        if unambiguous or len({entry.leaf.pointer for entry in found}) > 1:
            return unambiguous
        return [entry for entry in found if not self._belongs_to_other_party(entry, owner)]

    def _belongs_to_other_party(self, entry: LabelledLeaf, owner: SectionOwner | None) -> bool:
        """Whether a leaf belongs to another party than the owner of the section."""
        if owner is None or owner.has_ended:
            return False
        parties = self._parties_of(*entry.ancestors)
        if owner.node is None:
            return bool(parties) and owner.party not in parties
        other = entry.ancestors[-1]
        if _is_within(owner.node, other) or _is_within(other, owner.node):
            return False
        are_parties = bool(parties and self._parties_of(owner.node))
        return are_parties or not self._keys_by_object[owner.node].isdisjoint(self._keys_by_object[other])

    @cached_property
    def _keys_by_object(self) -> dict[ObjectNode, set[str]]:
        """The keys of the leaves of each object."""
        found: dict[ObjectNode, set[str]] = defaultdict(set)
        for key, entries in self.leaves_by_key.items():
            for entry in entries:
                for node in entry.ancestors if not entry.names_object else ():
                    found[node].add(key)
        return found

    def _parties_of(self, *nodes: ObjectNode) -> set[int]:
        names = (key for node in nodes for keys in node.labels for key in keys)
        return {self.parties[key] for key in names if key in self.parties}

    def _add_leaf(self, leaf: LeafNode, ancestors: tuple[ObjectNode, ...]) -> None:
        for rank, keys in enumerate(leaf.labels):
            for key in keys:
                self.leaves_by_key.setdefault(key, []).append(LabelledLeaf(leaf, rank, ancestors, names_object=False))
        if not ancestors:
            return
        for rank, key in _composed_keys(ancestors[-1].labels, leaf.labels):
            self.leaves_by_key.setdefault(key, []).append(LabelledLeaf(leaf, rank, ancestors, names_object=True))


def _is_within(inner: ObjectNode, outer: ObjectNode) -> bool:
    return f"{inner.pointer}/".startswith(f"{outer.pointer}/")


def _composed_keys(outer: Labels, inner: Labels) -> Iterator[tuple[int, str]]:
    pairs = ((at, left + right) for at, keys in enumerate(inner) for right in keys for one in outer for left in one)
    for count, pair in enumerate(pairs):
        if count >= MAX_COMPOSED:
            return
        yield pair


def _add(known: dict[str, list[T]], labels: Labels, node: T) -> None:
    for keys in labels:
        for key in keys:
            known.setdefault(key, []).append(node)


def _array_nodes(node: Node) -> Iterator[ArrayNode]:
    return (part for part, _ in walk(node) if isinstance(part, ArrayNode))


def _leaf_nodes(node: Node) -> Iterator[LeafNode]:
    return (part for part, _ in walk(node) if isinstance(part, LeafNode))

"""What is wanted: a schema as a tree of leaves, records and rows.

Pointers are JSON Pointers into the result; below rows they begin anew at each item, since one item's leaf stands for
those of all items. Nodes are compared by identity: two leaves may look the same and still be two.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from penstock.kernel.plain import Plain

Labels: TypeAlias = tuple[frozenset[str], ...]  # keys, those that name it best first


# Formats that prose does not have by chance; any word is a hostname.
TELLING_FORMATS = frozenset(
    {"date", "date-time", "time", "duration", "email", "idn-email", "uri", "iri", "uuid", "ipv4", "ipv6"}
)


class Judge(Protocol):
    """Whether a value satisfies its part of the schema."""

    def is_valid(self, instance: Any) -> bool:
        """Whether it does."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Leaf:
    """A single value. `hints` are the ways it may be: more than one where the schema has alternatives."""

    pointer: str
    labels: Labels
    hints: tuple[Plain, ...]
    judge: Judge

    @property
    def is_plain(self) -> bool:
        """Any text would do: then a label nearby is not enough, and it must be clear that the text belongs to it."""
        return not any(_is_telling(hint) for hint in self.hints)

    @property
    def is_yes_or_no(self) -> bool:
        """A box to tick can answer it."""
        return any("boolean" in kinds_of(hint) for hint in self.hints)


@dataclass(frozen=True, kw_only=True, eq=False)
class Record:
    """An object with properties."""

    pointer: str
    labels: Labels
    fields: "dict[str, Node]"
    required: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """An array. An item that would lead into itself is nothing, and such an array stays empty."""

    pointer: str
    labels: Labels
    item: "Node"


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """Alternatives of which not all are single values: the first that can be filled is taken."""

    pointer: str
    options: "tuple[Node, ...]"


@dataclass(frozen=True, kw_only=True, eq=False)
class Nothing:
    """What is never found: a schema that leads into itself ends here."""

    pointer: str


Node: TypeAlias = Leaf | Record | Rows | Choice | Nothing


def parts(node: Node) -> Iterator[tuple[Node, tuple[Record, ...]]]:
    """The node and all below it, each with the records around it; what is inside rows is not gone into."""
    waiting: list[tuple[Node, tuple[Record, ...]]] = [(node, ())]
    while waiting:
        current, around = waiting.pop()
        yield current, around
        if isinstance(current, Record):
            inner = (*around, current) if current.pointer else around  # the whole is nobody's section
            waiting += [(child, inner) for child in reversed(current.fields.values())]
        elif isinstance(current, Choice):
            waiting += [(option, around) for option in reversed(current.options)]


def kinds_of(hint: Plain) -> list[str]:
    """The types that a value may have; text where nothing is said."""
    kinds = hint.get("type", "string")
    return kinds if isinstance(kinds, list) else [kinds]


def _is_telling(hint: Plain) -> bool:
    if "enum" in hint or "const" in hint or hint.get("format") in TELLING_FORMATS:
        return True
    pattern = hint.get("pattern", "")
    if pattern.startswith("^") and pattern.endswith("$"):
        return True
    return "string" not in kinds_of(hint)

"""Find the fields: pages in, a result and its places out. This is the function that runs in the sandbox.

The pages are read as a stream, and of each only what is the best so far is kept. The result has every property of the
schema: null where nothing was found, an empty list where no table was.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeAlias

import msgspec

from penstock.documents.extract.fields.best import Offer
from penstock.documents.extract.fields.gather import Gathered
from penstock.documents.extract.fields.numerals import Numerals
from penstock.documents.extract.fields.rows import MOST_VALUES, Item, TooManyValues
from penstock.documents.extract.fields.schema import SchemaFlaw, read_schema
from penstock.documents.extract.fields.tree import Choice, Leaf, Node, Record, Rows
from penstock.documents.pages import Place, read_pages

Won: TypeAlias = Callable[[Leaf], Offer | None]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A result. Or why there is none: a flaw of the schema, or too much of it."""

    value: Any = None
    places: tuple[Place, ...] = ()
    ambiguous: tuple[str, ...] = ()  # pointers of what was met with different values of equal standing
    flaw: str | None = None
    excess: str | None = None


def find_fields(file: BinaryIO, schema_json: bytes) -> Found:
    """Fill a schema from a file of pages."""
    try:
        wanted = read_schema(msgspec.json.decode(schema_json))
    except SchemaFlaw as flaw:
        return Found(flaw=str(flaw))
    except (msgspec.DecodeError, RecursionError):
        return Found(flaw="it cannot be read as JSON, or is nested too deep")
    gathered, numerals = Gathered.of(wanted), Numerals()
    try:
        for page in read_pages(file):
            numerals.read(page)
            gathered.read(page)
    except TooManyValues:
        return Found(excess=f"its arrays would hold more than {MOST_VALUES} values")
    filling = _Filling(gathered=gathered, numerals=numerals)
    value = filling.fill(wanted, numerals.settled(gathered.best.of), "")
    contested = {leaf.pointer for leaf in gathered.best.contested()} | gathered.arrays.contested
    return Found(value=value, places=tuple(filling.places), ambiguous=tuple(sorted(contested)))


@dataclass(kw_only=True)
class _Filling:
    """Puts the tree together again, with what was found in its leaves."""

    gathered: Gathered
    numerals: Numerals
    places: list[Place] = field(default_factory=list)

    def fill(self, node: Node, won: Won, before: str) -> Any:
        """The value of a node. `before` is the pointer of the item that it is inside of."""
        if isinstance(node, Leaf):
            return self._leaf(node, won, before)
        if isinstance(node, Record):
            return {name: self.fill(inner, won, before) for name, inner in node.fields.items()}
        if isinstance(node, Rows):
            return self._rows(node, before)
        if isinstance(node, Choice):
            return self.fill(self._chosen(node, won), won, before)
        return None

    def _leaf(self, leaf: Leaf, won: Won, before: str) -> Any:
        offer = won(leaf)
        if offer is None:
            return None
        pointer = before + leaf.pointer
        self.places.append(Place(pointer=pointer, grounded=True, page=offer.at.page, box=offer.at.box, text=offer.text))
        return offer.value

    def _rows(self, rows: Rows, before: str) -> list[Any]:
        items = self._items(rows) if not before else []  # an array inside an item has no table of its own
        pointers = (f"{rows.pointer}/{at}" for at in range(len(items)))
        settled = (self.numerals.settled(item.get) for item in items)
        return [self.fill(rows.item, won, pointer) for won, pointer in zip(settled, pointers, strict=True)]

    def _items(self, rows: Rows) -> list[Item]:
        return next((array.items for array in self.gathered.arrays.arrays if array.rows is rows), [])

    def _chosen(self, choice: Choice, won: Won) -> Node:
        """The first option of which all that is required was found; else the first of which anything was."""
        begun = [option for option in choice.options if self._is_begun(option, won)]
        whole = [option for option in begun if not isinstance(option, Record) or self._is_whole(option, won)]
        return (*whole, *begun, *choice.options)[0]

    def _is_whole(self, record: Record, won: Won) -> bool:
        return all(self._is_begun(inner, won) for name, inner in record.fields.items() if name in record.required)

    def _is_begun(self, node: Node, won: Won) -> bool:
        if isinstance(node, Leaf):
            return won(node) is not None
        if isinstance(node, Rows):
            return bool(self._items(node))
        inner = node.fields.values() if isinstance(node, Record) else node.options if isinstance(node, Choice) else ()
        return any(self._is_begun(each, won) for each in inner)

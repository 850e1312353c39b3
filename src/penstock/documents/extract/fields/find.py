"""Find the fields of a document: pages in, a result and its citations out. `find_fields` runs in the sandbox.

Pages are read as a stream, and only the best candidate per leaf is kept. The result has every property of the schema:
null where nothing was found, an empty array where no table was.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, TypeAlias

import msgspec

from penstock.documents.extract.fields.arrays import MAX_VALUES, Item, TooManyArrayValues
from penstock.documents.extract.fields.candidates import Candidate
from penstock.documents.extract.fields.collect import FieldCollector
from penstock.documents.extract.fields.schema import UnusableSchema, parse_schema
from penstock.documents.extract.fields.schema_tree import ArrayNode, ChoiceNode, LeafNode, Node, ObjectNode
from penstock.documents.extract.fields.values import parse_value
from penstock.documents.pages import Citation, Page, read_pages

Lookup: TypeAlias = Callable[[LeafNode], Candidate | None]

_MONEY = r"[$€£¥￥]|[A-Z]{3}\b"
_END = r"(?!\d|[.,:]\d)"
_POINT = re.compile(rf"(?<![\d.,])(?:\d{{1,3}}(?:,\d{{3}})+(?:\.\d{{1,2}}|,\d{{3}})|\d+\.\d{{2}}(?!\s?Uhr)){_END}")
_COMMA = re.compile(
    rf"(?<![\d.,])(?:\d{{1,3}}(?:[. ]\d{{3}})+,\d{{1,2}}|\d{{1,3}}(?:\.\d{{3}}){{2,}}){_END}"
    rf"|(?<![\d.,])\d+,\d{{2}}{_END}(?=\s*(?:{_MONEY}|[%|]|$))",  # "Figures 1,20 and 1,21" are not numbers
    re.MULTILINE,
)
_SEPARATOR = re.compile(r"(?<=\d)[.,](?=\d)")
_SWAPPED = {".": ",", ",": "."}


class FieldsResult(msgspec.Struct, frozen=True, kw_only=True):
    """A result with its citations. Without a result, the error of the schema or the limit exceeded."""

    value: Any = None
    citations: tuple[Citation, ...] = ()
    ambiguous: tuple[str, ...] = ()  # pointers of leaves with different values of the same rank
    schema_error: str | None = None
    limit_exceeded: str | None = None


def find_fields(file: BinaryIO, schema_json: bytes) -> FieldsResult:
    """Fill a schema from a file of pages."""
    try:
        tree = parse_schema(msgspec.json.decode(schema_json))
    except UnusableSchema as error:
        return FieldsResult(schema_error=str(error))
    except (msgspec.DecodeError, RecursionError):
        return FieldsResult(schema_error="it cannot be read as JSON, or is nested too deep")
    collector, style = FieldCollector.of(tree), _DecimalStyle()
    try:
        for page in read_pages(file):
            style.read(page)
            collector.read(page)
    except TooManyArrayValues:
        return FieldsResult(limit_exceeded=f"its arrays would hold more than {MAX_VALUES} values")
    builder = _ResultBuilder(collector=collector, style=style)
    value = builder.fill(tree, style.applied_to(collector.candidates.best), "")
    ambiguous = {leaf.pointer for leaf in collector.candidates.ambiguous()} | collector.arrays.ambiguous
    return FieldsResult(value=value, citations=tuple(builder.citations), ambiguous=tuple(sorted(ambiguous)))


@dataclass(kw_only=True)
class _DecimalStyle:
    """How a document writes numbers: with a decimal point, as in "1,234.50", or a decimal comma, as in "1.234,50".

    A number such as "1.234" is ambiguous, so all numbers of the document decide together. Where most have a comma and
    some a point, ambiguous numbers are dropped.
    """

    points: int = 0
    commas: int = 0

    def read(self, page: Page) -> None:
        """Count the unambiguous numbers of a page."""
        for text in [span.text for span in page.spans] or [page.markdown]:
            self.points += sum(1 for _ in _POINT.finditer(text))
            self.commas += sum(1 for _ in _COMMA.finditer(text))

    def applied_to(self, lookup: Lookup) -> Lookup:
        """A lookup whose numbers are read in the style of the document."""
        return lambda leaf: self._apply(leaf, lookup(leaf))

    def _apply(self, leaf: LeafNode, candidate: Candidate | None) -> Candidate | None:
        """A candidate that was parsed with a decimal point, in the style of the document; None where it is mixed."""
        if candidate is None or self.commas <= self.points or isinstance(candidate.value, str | bool):
            return candidate
        parsed = parse_value(leaf, _SEPARATOR.sub(lambda match: _SWAPPED[match[0]], candidate.text))
        if parsed is not None and parsed.value == candidate.value:
            return candidate
        return replace(candidate, value=parsed.value) if parsed is not None and not self.points else None


@dataclass(kw_only=True)
class _ResultBuilder:
    """Builds the result by filling the schema tree."""

    collector: FieldCollector
    style: _DecimalStyle
    citations: list[Citation] = field(default_factory=list)

    def fill(self, node: Node, lookup: Lookup, item_pointer: str) -> Any:
        """The value of a node. `item_pointer` is the pointer of the array item around it, or empty."""
        if isinstance(node, LeafNode):
            return self._leaf(node, lookup, item_pointer)
        if isinstance(node, ObjectNode):
            return {name: self.fill(inner, lookup, item_pointer) for name, inner in node.fields.items()}
        if isinstance(node, ArrayNode):
            return self._array(node, item_pointer)
        if isinstance(node, ChoiceNode):
            return self.fill(self._choose(node, lookup), lookup, item_pointer)
        return None

    def _leaf(self, leaf: LeafNode, lookup: Lookup, item_pointer: str) -> Any:
        candidate = lookup(leaf)
        if candidate is None:
            return None
        pointer, source = item_pointer + leaf.pointer, candidate.source
        self.citations.append(
            Citation(pointer=pointer, grounded=True, page=source.page, box=source.box, text=candidate.text)
        )
        return candidate.value

    def _array(self, node: ArrayNode, item_pointer: str) -> list[Any]:
        items = self._items(node) if not item_pointer else []  # an array inside an item has no table of its own
        lookups = (self.style.applied_to(item.get) for item in items)
        return [self.fill(node.item, lookup, f"{node.pointer}/{at}") for at, lookup in enumerate(lookups)]

    def _items(self, node: ArrayNode) -> list[Item]:
        return next((array.items for array in self.collector.arrays.arrays if array.node is node), [])

    def _choose(self, choice: ChoiceNode, lookup: Lookup) -> Node:
        """The first option with all required values; else the first with any value; else the first."""
        with_values = [option for option in choice.options if self._has_values(option, lookup)]
        complete = [
            option for option in with_values if not isinstance(option, ObjectNode) or self._is_complete(option, lookup)
        ]
        return (*complete, *with_values, *choice.options)[0]

    def _is_complete(self, node: ObjectNode, lookup: Lookup) -> bool:
        return all(self._has_values(inner, lookup) for name, inner in node.fields.items() if name in node.required)

    def _has_values(self, node: Node, lookup: Lookup) -> bool:
        if isinstance(node, LeafNode):
            return lookup(node) is not None
        if isinstance(node, ArrayNode):
            return bool(self._items(node))
        if isinstance(node, ObjectNode):
            return any(self._has_values(inner, lookup) for inner in node.fields.values())
        return isinstance(node, ChoiceNode) and any(self._has_values(option, lookup) for option in node.options)

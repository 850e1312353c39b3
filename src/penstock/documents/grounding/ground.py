"""Ground a result: pages and a value in, the value and the citation of each leaf out. Runs in the sandbox."""

import copy
from collections.abc import Iterable
from typing import Any, BinaryIO

import msgspec

from penstock.documents.extract.fields.schema import UnusableSchema, parse_schema
from penstock.documents.extract.fields.schema_tree import Node
from penstock.documents.grounding.citations import CitationFinder
from penstock.documents.grounding.field_lookup import FieldLookup
from penstock.documents.grounding.label_translations import with_translated_labels
from penstock.documents.grounding.page_text import page_text
from penstock.documents.grounding.result_leaves import MAX_LEAVES, ResultLeaf, TooManyResultLeaves, result_leaves
from penstock.documents.grounding.search import TermIndex
from penstock.documents.grounding.search_terms import search_terms
from penstock.documents.pages import Citation, read_pages
from penstock.kernel.json_schema.pointers import resolve, set_value, split_pointer
from penstock.kernel.json_schema.validation import InvalidSchema, SchemaValidator, compile_schema


class Grounded(msgspec.Struct, frozen=True, kw_only=True):
    """A result with a citation per value. When the result is too large, the unchanged result and the limit exceeded."""

    value: Any = None
    citations: tuple[Citation, ...] = ()
    limit_exceeded: str | None = None


def ground_value(file: BinaryIO, value_json: bytes, null_ungrounded: bool, schema_json: bytes) -> Grounded:
    """Search the pages of a file for each value of a result. With `null_ungrounded`, remove the values not found."""
    value: Any = None
    tree = _parse_tree(schema_json)
    try:
        value = msgspec.json.decode(value_json)
        leaves = result_leaves(value, tree)
    except (TooManyResultLeaves, RecursionError):
        return Grounded(value=value, limit_exceeded=f"it has more than {MAX_LEAVES} values, or is nested too deep")
    terms = search_terms(leaves)
    index, finder, fields = TermIndex.of(terms), CitationFinder.of(terms), FieldLookup.of(tree)
    for page in read_pages(file):
        text = page_text(page)
        finder.add_page(text, index.search(text))
        fields.add_page(page, text)
    citations = finder.citations(fields)
    if null_ungrounded:
        value = _without_leaves(value, [leaf for leaf in leaves if not citations[leaf].grounded], schema_json)
    return Grounded(value=value, citations=tuple(citations[leaf] for leaf in leaves))


def _parse_tree(schema_json: bytes) -> Node | None:
    """The schema tree, or None for a schema that cannot be used: grounding then works without labels."""
    try:
        return parse_schema(with_translated_labels(msgspec.json.decode(schema_json)))
    except (UnusableSchema, msgspec.DecodeError, RecursionError):
        return None


def _without_leaves(value: Any, leaves: Iterable[ResultLeaf], schema_json: bytes) -> Any:
    """A copy without these leaves: null where the schema allows it, removed where optional, else unchanged. The value
    itself when the copy breaks a constraint that spans several values."""
    pruned = copy.deepcopy(value)
    for leaf in leaves:
        pruned = _without_leaf(pruned, leaf)
    validator = _validator(schema_json)
    return pruned if validator is None or validator.is_valid(pruned) or not validator.is_valid(value) else value


def _without_leaf(value: Any, leaf: ResultLeaf) -> Any:
    allows_null = leaf.node is None or leaf.node.validator.is_valid(None)
    tokens = split_pointer(leaf.pointer)
    if allows_null:
        return set_value(value, tokens, None)
    if not leaf.is_required:
        del resolve(value, tokens[:-1])[tokens[-1]]
    return value


def _validator(schema_json: bytes) -> SchemaValidator | None:
    """A validator of the whole schema; None for a schema that cannot be used and so constrains nothing."""
    try:
        return compile_schema(msgspec.json.decode(schema_json))
    except (InvalidSchema, ValueError, RecursionError):
        return None

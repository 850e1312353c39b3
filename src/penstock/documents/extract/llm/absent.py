"""Nulls that only stand for "absent".

Models are told to say null where the document says nothing, and strict modes even demand every property. The rule's own
schema knows which of these nulls it wants: one that may be left out and may not be null is left out.
"""

from dataclasses import dataclass, field
from typing import Any

from penstock.documents.extract.llm.facets import admits_null, branches_of, facets_of, listed, mapped
from penstock.kernel.plain import Plain


def without_absent(value: Any, schema: Plain) -> Any:
    """The value without nulls that the schema does not take, where it takes nothing instead."""
    return _slim(schema, value, [schema])


@dataclass(frozen=True, kw_only=True)
class _Said:
    """What the schemas of an object say of one of its properties: for sure, and by each branch."""

    sure: list[Any] = field(default_factory=list)
    perhaps: list[list[Any]] = field(default_factory=list)
    is_required: bool = False

    @property
    def schemas(self) -> list[Any]:
        return [*self.sure, *(part for parts in self.perhaps for part in parts)]


def _slim(root: Plain, value: Any, schemas: list[Any]) -> Any:
    if isinstance(value, dict):
        sure, branches = _facets(root, value, schemas)
        said = {name: _said_of(name, sure, branches) for name in value}
        return {
            name: _slim(root, inner, said[name].schemas)
            for name, inner in value.items()
            if inner is not None or not _is_absent(root, said[name])
        }
    if isinstance(value, list):
        sure, branches = _facets(root, value, schemas)
        facets = [*sure, *(facet for branch in branches for facet in branch)]
        return [_slim(root, inner, [_item_of(facet, at) for facet in facets]) for at, inner in enumerate(value)]
    return value


def _facets(root: Plain, value: Any, schemas: list[Any]) -> tuple[list[Plain], list[list[Plain]]]:
    sure = [facet for schema in schemas for facet in facets_of(root, schema)]
    return sure, branches_of(root, sure, value)


def _said_of(name: str, sure: list[Plain], branches: list[list[Plain]]) -> _Said:
    by_branch = [any(name in listed(facet.get("required")) for facet in branch) for branch in branches]
    required = any(name in listed(facet.get("required")) for facet in sure) or (bool(by_branch) and all(by_branch))
    perhaps = [parts for branch in branches if (parts := _parts_of(name, branch))]
    return _Said(sure=_parts_of(name, sure), perhaps=perhaps, is_required=required)


def _parts_of(name: str, facets: list[Plain]) -> list[Any]:
    named = [mapped(facet.get("properties"))[name] for facet in facets if name in mapped(facet.get("properties"))]
    return named or [facet["additionalProperties"] for facet in facets if mapped(facet.get("additionalProperties"))]


def _is_absent(root: Plain, said: _Said) -> bool:
    if said.is_required or not said.schemas:
        return False
    surely = all(admits_null(root, part) for part in said.sure)
    perhaps = not said.perhaps or any(all(admits_null(root, part) for part in parts) for parts in said.perhaps)
    return not (surely and perhaps)


def _item_of(facet: Plain, at: int) -> Any:
    items = facet.get("items")
    first = listed(items) or listed(facet.get("prefixItems"))
    if at < len(first):
        return first[at]
    return facet.get("additionalItems") if isinstance(items, list) else items

"""What a schema says about one value: itself, what it refers to, and its branches.

References lead into the schema itself; one that cannot be followed (by an anchor, or past an inner `$id`) says nothing
here. This is a help for those who make copies of schemas and tidy answers: what is valid, a validator says.
"""

from typing import Any
from urllib.parse import unquote

from penstock.documents.extract.fields.schema import unescaped
from penstock.kernel.plain import Plain

MOST_FACETS = 64
BRANCHES = ("anyOf", "oneOf")
HOLDS_NAMED = frozenset(["properties", "patternProperties", "$defs", "definitions"])  # keywords and what they hold
HOLDS_LIST = frozenset(["allOf", "anyOf", "oneOf", "prefixItems", "items"])
HOLDS_ONE = frozenset(["items", "additionalItems", "additionalProperties", "unevaluatedProperties", "propertyNames"])
KINDS: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "number": (int, float),
    "integer": (int, float),
    "boolean": bool,
    "null": type(None),
}


def referred(root: Plain, reference: object) -> Any:
    """What a reference leads to; None when it cannot be followed."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    found: Any = root
    for step in unquote(reference).split("/")[1:]:
        name = unescaped(step)
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            return None
    return found


def facets_of(root: Plain, schema: object) -> list[Plain]:
    """All that surely holds for a value: the schema, what it refers to, and `allOf`."""
    found: dict[int, Plain] = {}
    waiting = [schema]
    while waiting and len(found) < MOST_FACETS:
        facet = waiting.pop(0)
        if not isinstance(facet, dict) or id(facet) in found:
            continue
        found[id(facet)] = facet
        waiting += listed(facet.get("allOf"))
        if "$ref" in facet:
            waiting.append(referred(root, facet["$ref"]))
    return list(found.values())


def branches_of(root: Plain, facets: list[Plain], value: Any) -> list[list[Plain]]:
    """The facets of each branch that the value could be meant for."""
    offered = [branch for facet in facets for word in BRANCHES for branch in listed(facet.get(word))]
    held = {id(facet) for facet in facets}  # a branch may lead back to where it stands
    found = [facets_of(root, branch) for branch in offered[:MOST_FACETS]]
    return [each for each in found if not held & set(map(id, each)) and all(_could_be(part, value) for part in each)]


def listed(given: object) -> list[Any]:
    """A keyword that should hold a list, and may hold anything."""
    return given if isinstance(given, list) else []


def mapped(given: object) -> dict[str, Any]:
    """A keyword that should hold schemas by name, and may hold anything."""
    return given if isinstance(given, dict) else {}


def types_of(facet: Plain) -> list[str] | None:
    """The types that a schema allows; None when it does not say."""
    given = facet.get("type")
    return [given] if isinstance(given, str) else listed(given) or None


def admits_null(root: Plain, schema: object, depth: int = 0) -> bool:
    """Whether null would do."""
    if isinstance(schema, bool):
        return schema
    facets = facets_of(root, schema)
    return depth < MOST_FACETS and all(_facet_admits_null(root, facet, depth) for facet in facets)


def _facet_admits_null(root: Plain, facet: Plain, depth: int) -> bool:
    types = types_of(facet)
    if types is not None and "null" not in types:
        return False
    if facet.get("const") is not None or None not in listed(facet.get("enum", [None])):
        return False
    offers = [listed(facet[word]) for word in BRANCHES if word in facet]
    return all(any(admits_null(root, branch, depth + 1) for branch in offer) for offer in offers)


def _could_be(facet: Plain, value: Any) -> bool:
    """Whether a value's kind, and the plain values in it, are not against a branch."""
    if not _is_of(facet, value):
        return False
    if not isinstance(value, dict):
        return True
    said = ((part, value.get(name)) for name, part in mapped(facet.get("properties")).items())
    return all(_is_of(part, inner) for part, inner in said if isinstance(part, dict) and inner is not None)


def _is_of(facet: Plain, value: Any) -> bool:
    types = types_of(facet)
    if types is not None and not any(_is_kind(value, name) for name in types):
        return False
    return value == facet.get("const", value) and value in listed(facet.get("enum", [value]))


def _is_kind(value: Any, name: object) -> bool:
    kind = KINDS.get(name) if isinstance(name, str) else None
    return kind is not None and isinstance(value, kind) and (isinstance(value, bool) == (kind is bool))

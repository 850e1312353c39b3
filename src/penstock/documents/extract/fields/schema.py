"""A JSON Schema becomes the tree of what is wanted.

References lead into the schema itself and nowhere else: nothing is ever fetched. One that leads into itself ends in
`Nothing`. The schema comes from outside, so how deep it is and how many fields it comes to, references counted each
time, are bounded; all this runs in the sandbox anyway.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

import jsonschema_rs

from penstock.documents.extract.fields.tree import Choice, Judge, Labels, Leaf, Node, Nothing, Record, Rows
from penstock.documents.extract.fields.words import clauses_of, keys_wanted, parts_of
from penstock.kernel.plain import Plain

MOST_NESTING = 64  # of the schema's own text
MOST_DEPTH = 16  # of the result
MOST_NODES = 5000
MOST_FACETS = 64  # schemas that hold for one value
MOST_REASON = 200
MOST_LABELS = 50
HERE = "urn:penstock:rule"

Facet: TypeAlias = tuple[str, Plain]  # a pointer into the schema, and what stands there


class SchemaFlaw(Exception):
    """Why a schema cannot be used."""


def read_schema(schema: Any) -> Node:
    """The tree of a schema; SchemaFlaw when it has none."""
    if not isinstance(schema, dict):
        raise SchemaFlaw("it is no object")
    _check_nesting(schema)
    schema = {word: value for word, value in schema.items() if word != "$id"}  # its references begin at its own root
    try:
        jsonschema_rs.Draft202012Validator(schema, offline=True)
        registry = jsonschema_rs.Registry([(HERE, schema)])
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise SchemaFlaw(str(getattr(error, "message", error))[:MOST_REASON]) from error
    return _Reader(root=schema, registry=registry).node([""], pointer="", name="", around=())


def escaped(name: str) -> str:
    """A property's name as a step of a JSON Pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def unescaped(step: str) -> str:
    """A step of a JSON Pointer as the name that it stands for."""
    return step.replace("~1", "/").replace("~0", "~")


def _check_nesting(schema: Any) -> None:
    level = [schema]
    for _ in range(MOST_NESTING):
        level = [
            inner
            for part in level
            for inner in (part.values() if isinstance(part, dict) else part)
            if isinstance(inner, dict | list)
        ]
        if any(isinstance(part, dict) and isinstance(part.get("$id"), str) for part in level):
            raise SchemaFlaw("only the schema as a whole may have an $id")
        if not level:
            return
    raise SchemaFlaw(f"it is nested more than {MOST_NESTING} deep")


@dataclass(kw_only=True)
class _Reader:
    """Walks one schema. `around` are the places of the schema that the way to a node has led through."""

    root: Plain
    registry: jsonschema_rs.Registry
    count: int = field(default=0)

    def node(self, places: Sequence[str], *, pointer: str, name: str, around: tuple[str, ...]) -> Node:
        self.count += 1
        if self.count > MOST_NODES:
            raise SchemaFlaw(f"it comes to more than {MOST_NODES} fields")
        facets = self._facets(places)
        if any(place in around for place, _ in facets) or pointer.count("/") > MOST_DEPTH:
            return Nothing(pointer=pointer)
        ways = [way for way in self._ways(facets) if not _is_null(way)] or [facets]
        labels = _labels(facets, places, name)
        if all(_shape(way) == "leaf" for way in ways):
            hints = tuple(_hint(way) for way in ways)
            return Leaf(pointer=pointer, labels=labels, hints=hints, judge=self._judge(places))
        options = [self._option(way, places, pointer=pointer, labels=labels, around=around) for way in ways]
        return options[0] if len(options) == 1 else Choice(pointer=pointer, options=tuple(options))

    def _option(
        self, way: list[Facet], places: Sequence[str], *, pointer: str, labels: Labels, around: tuple[str, ...]
    ) -> Node:
        shape = _shape(way)
        if shape == "leaf":
            return Leaf(pointer=pointer, labels=labels, hints=(_hint(way),), judge=self._judge(places))
        around = (*around, *(place for place, _ in way))
        if shape == "rows":
            items = [f"{place}/items" for place, facet in way if isinstance(facet.get("items"), dict)]
            item = self.node(items, pointer="", name="", around=around) if items else Nothing(pointer="")
            return Rows(pointer=pointer, labels=labels, item=item)
        return Record(
            pointer=pointer,
            labels=labels,
            fields={
                name: self.node(inner, pointer=f"{pointer}/{escaped(name)}", name=name, around=around)
                for name, inner in _properties(way).items()
            },
            required=frozenset(name for _, facet in way for name in facet.get("required", ())),
        )

    def _judge(self, places: Sequence[str]) -> Judge:
        held = [{"$ref": f"{HERE}#{quote(place)}"} for place in places]
        return jsonschema_rs.Draft202012Validator(
            {"allOf": held},
            registry=self.registry,
            offline=True,
            validate_formats=True,
            email_options=jsonschema_rs.EmailOptions(allow_display_text=False),  # a mail address, not whose it is
        )

    def _facets(self, places: Sequence[str]) -> list[Facet]:
        """All schemas that a value must satisfy at once: those at the places, their references, and `allOf`."""
        found: dict[str, Plain] = {}
        waiting = list(places)
        while waiting and len(found) < MOST_FACETS:
            place = waiting.pop(0)
            facet = self._at(place)
            if place in found or not isinstance(facet, dict):
                continue
            found[place] = facet
            waiting += [f"{place}/allOf/{at}" for at in range(len(facet.get("allOf", ())))]
            if isinstance(facet.get("$ref"), str):
                waiting.append(_place_of(facet["$ref"]))
        return list(found.items())

    def _ways(self, facets: list[Facet]) -> Iterator[list[Facet]]:
        """The facets with each branch of their first `anyOf` or `oneOf`; the judge sees to the others."""
        for place, facet in facets:
            for word in ("anyOf", "oneOf"):
                branches = facet.get(word)
                if branches:
                    for at in range(min(len(branches), MOST_FACETS)):
                        yield [*self._facets([f"{place}/{word}/{at}"]), *facets]
                    return
        yield facets

    def _at(self, place: str) -> Any:
        found: Any = self.root
        for step in place.split("/")[1:]:
            name = unescaped(step)
            if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            elif isinstance(found, dict) and name in found:
                found = found[name]
            else:
                raise SchemaFlaw("a $ref leads nowhere")
        return found


def _place_of(reference: str) -> str:
    place = unquote(reference.removeprefix("#"))
    if not reference.startswith("#") or (place and not place.startswith("/")):
        raise SchemaFlaw("a $ref may only lead into the schema itself, as #/$defs/name does")
    return place


def _shape(way: list[Facet]) -> str:
    if any("properties" in facet or facet.get("type") == "object" for _, facet in way):
        return "record"
    return "rows" if any("items" in facet or facet.get("type") == "array" for _, facet in way) else "leaf"


def _is_null(way: list[Facet]) -> bool:
    return any(facet.get("type") == "null" or facet.get("const", 0) is None for _, facet in way)


def _hint(way: list[Facet]) -> Plain:
    return {word: value for _, facet in reversed(way) for word, value in facet.items()}


def _properties(way: list[Facet]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for place, facet in way:
        for name in facet.get("properties", ()):
            found.setdefault(name, []).append(f"{place}/properties/{escaped(name)}")
    return found


def _labels(facets: list[Facet], own: Sequence[str], name: str) -> Labels:
    """What names a property, best first: its `x-labels` one by one, its title, its name, its description; and last
    what a definition that it refers to says of itself, which others may refer to as well."""
    near = [facet for place, facet in facets if place in own] or [{}]  # a schema that is just `true` says nothing
    said = [texts for facet in near for texts in _said(facet, name)]
    far = [texts for place, facet in facets if place not in own for texts in _said(facet, "")]
    return tuple(filter(None, (_keys(texts) for texts in [*said, *far][:MOST_LABELS])))


def _said(facet: Plain, name: str) -> Iterator[list[str]]:
    words = facet.get("x-labels")
    if isinstance(words, list):
        yield from ([word] for word in words if isinstance(word, str))
    title, description = facet.get("title"), facet.get("description")
    if isinstance(title, str):
        yield [title, *parts_of(title)]
    yield [name]
    if isinstance(description, str):
        yield clauses_of(description)


def _keys(texts: list[str]) -> frozenset[str]:
    return frozenset(key for text in texts for key in keys_wanted(text))

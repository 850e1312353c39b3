"""The strict copy of a schema, for servers that promise to keep one (OpenAI's strict mode and its kin).

They take a part of JSON Schema only: every property is required, an optional one may be null instead; no property
beside those named; no word beyond types, enums and branches. So the copy is wider here and narrower there than the
original, which alone judges the answer. Where the part is too small for a schema, there is no copy, and the server is
asked in a weaker mode.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.documents.extract.llm.facets import BRANCHES, admits_null, listed, mapped, referred, types_of
from penstock.kernel.plain import Plain

MOST_DEPTH = 10  # the bounds of OpenAI's documentation
MOST_PROPERTIES = 5000
MOST_ENUM = 1000
MOST_CHARACTERS = 120_000  # of names and enum values together
MOST_NODES = 20_000  # branches and references can make many of few
PLAIN_KINDS = frozenset({"string", "number", "integer", "boolean", "null"})
SAYS = ("title", "description")
CANNOT = frozenset(
    [
        "patternProperties",
        "prefixItems",
        "not",
        "if",
        "then",
        "else",
        "dependentSchemas",
        "$dynamicRef",
        "$recursiveRef",
    ]
)
BASES = frozenset({"$id", "$anchor", "$dynamicAnchor"})


class _NotStrict(Exception):
    """The strict part of JSON Schema cannot say this."""


def strict_copy(schema: Plain) -> Plain | None:
    """The copy, or None when there is none."""
    try:
        made = _Copying(root=schema).made(schema, depth=0)
    except _NotStrict:
        return None
    return made if made.get("type") == "object" else None


@dataclass
class _Copying:
    """Counts what is made of one schema."""

    root: Plain
    nodes: int = 0
    properties: int = 0
    enums: int = 0
    characters: int = 0

    def made(self, schema: Any, *, depth: int, turns: int = 0) -> Plain:
        """The copy of a schema that stands so deep, and that so many branches led to on the same level."""
        self.nodes += 1
        if max(depth, turns) > MOST_DEPTH or self.nodes > MOST_NODES or not isinstance(schema, dict):
            raise _NotStrict
        flat = self._flat(schema)
        said = {word: flat[word] for word in SAYS if isinstance(flat.get(word), str)}
        ways = [self._branch(branch, flat, depth, turns + 1) for word in BRANCHES for branch in listed(flat.get(word))]
        ways = ways or list(self._kinds(flat, depth))
        self._count()
        return {**said, **ways[0]} if len(ways) == 1 else {**said, "anyOf": ways}

    def _flat(self, schema: Plain, seen: int = 0) -> Plain:
        """A schema with what it refers to and its `allOf` laid into it, where they do not contradict each other."""
        if seen > MOST_DEPTH or CANNOT & schema.keys() or (schema is not self.root and BASES & schema.keys()):
            raise _NotStrict
        flat = {word: value for word, value in schema.items() if word not in {"$ref", "allOf", *BASES}}
        others = listed(schema.get("allOf"))
        if "$ref" in schema:
            others = [referred(self.root, schema["$ref"]), *others]
        for other in others:
            if not isinstance(other, dict):
                raise _NotStrict
            flat = _laid(flat, self._flat(other, seen + 1))
        return flat

    def _branch(self, branch: Any, around: Plain, depth: int, turns: int) -> Plain:
        """A branch with what stands beside it, so that it is whole by itself."""
        if not isinstance(branch, dict):
            raise _NotStrict
        beside = {word: value for word, value in around.items() if word not in {*BRANCHES, *SAYS}}
        return self.made(_laid(self._flat(branch), beside), depth=depth, turns=turns)

    def _kinds(self, flat: Plain, depth: int) -> Iterator[Plain]:
        if "const" in flat or "enum" in flat:
            yield self._enum([flat["const"]] if "const" in flat else listed(flat["enum"]))
            return
        types = types_of(flat) or _guessed(flat)
        plain = [name for name in types if name in PLAIN_KINDS]
        if plain:
            yield {"type": plain[0] if len(plain) == 1 else plain}
        for name in types:
            if name == "object":
                yield self._object(flat, depth)
            elif name == "array":
                yield {"type": "array", "items": self.made(flat.get("items"), depth=depth + 1)}
            elif name not in PLAIN_KINDS:
                raise _NotStrict

    def _object(self, flat: Plain, depth: int) -> Plain:
        properties = mapped(flat.get("properties"))
        if not properties or mapped(flat.get("additionalProperties")):
            raise _NotStrict  # names that nobody knows beforehand
        required = listed(flat.get("required"))
        if any(name not in properties for name in required):
            raise _NotStrict
        self.properties += len(properties)
        self.characters += sum(map(len, properties))
        made = {name: self._property(part, name in required, depth + 1) for name, part in properties.items()}
        return {"type": "object", "properties": made, "required": list(made), "additionalProperties": False}

    def _property(self, schema: Any, is_required: bool, depth: int) -> Plain:
        made = self.made(schema, depth=depth)
        if is_required or admits_null(self.root, schema):
            return made
        ways = made.pop("anyOf") if "anyOf" in made else [made]
        said = {word: made.pop(word) for word in SAYS if word in made}
        return {**said, "anyOf": [*ways, {"type": "null"}]}

    def _enum(self, values: list[Any]) -> Plain:
        kinds = sorted({_kind_of(value) for value in values})
        if not values:
            raise _NotStrict
        self.enums += len(values)
        self.characters += sum(len(value) for value in values if isinstance(value, str))
        return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values}

    def _count(self) -> None:
        if self.properties > MOST_PROPERTIES or self.enums > MOST_ENUM or self.characters > MOST_CHARACTERS:
            raise _NotStrict


def _laid(one: Plain, other: Plain) -> Plain:
    """Both schemas in one. `_NotStrict` where the two say different things of one matter."""
    made = {**other, **one}
    for word in one.keys() & other.keys() - {*SAYS}:
        if one[word] == other[word]:
            continue
        if word == "required":
            made[word] = [*listed(one[word]), *listed(other[word])]
        elif word == "properties" and not mapped(one[word]).keys() & mapped(other[word]).keys():
            made[word] = {**mapped(other[word]), **mapped(one[word])}
        else:
            raise _NotStrict
    return made


def _guessed(flat: Plain) -> list[str]:
    if "properties" in flat:
        return ["object"]
    if "items" in flat:
        return ["array"]
    raise _NotStrict  # anything at all


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    kinds: dict[type, str] = {bool: "boolean", str: "string", int: "integer", float: "number"}
    if type(value) not in kinds:
        raise _NotStrict
    return kinds[type(value)]

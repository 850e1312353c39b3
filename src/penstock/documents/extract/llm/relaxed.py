"""The relaxed copy of a schema: what may be found in a part of a document.

A part rarely says everything, so nothing is required of it; a null then stands for "absent" (see `absent.py`). What
only a whole value can satisfy is left to the original schema, which judges what the parts are merged to.
"""

from typing import Any

from penstock.documents.extract.llm.facets import HOLDS_LIST, HOLDS_NAMED, HOLDS_ONE
from penstock.kernel.plain import Plain

OF_THE_WHOLE = frozenset(
    [
        "required",
        "minItems",
        "minProperties",
        "contains",
        "minContains",
        "maxContains",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "if",
        "then",
        "else",
        "not",
        "unevaluatedItems",
    ]
)


def relaxed(schema: Plain) -> Plain:
    """A copy that requires nothing. What references lead to stays where it is, unless it is left out or a branch."""
    made = {word: _held(word, held) for word, held in schema.items() if word not in OF_THE_WHOLE}
    if "oneOf" in made:  # with nothing required, a value may well satisfy two of its branches
        made.setdefault("anyOf", made.pop("oneOf"))
    return made


def _held(word: str, held: Any) -> Any:
    if isinstance(held, dict) and word in HOLDS_NAMED:
        return {name: _inner(schema) for name, schema in held.items()}
    if isinstance(held, list) and word in HOLDS_LIST:
        return [_inner(schema) for schema in held]
    return _inner(held) if word in HOLDS_ONE else held


def _inner(schema: Any) -> Any:
    return relaxed(schema) if isinstance(schema, dict) else schema

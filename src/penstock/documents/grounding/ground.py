"""Ground a result: pages and a value in, the value and the place of each leaf out. Runs in the sandbox."""

from typing import Any, BinaryIO

import msgspec

from penstock.documents.extract.fields.schema import SchemaFlaw, read_schema
from penstock.documents.extract.fields.tree import Node
from penstock.documents.grounding.judge import Verdicts
from penstock.documents.grounding.leaves import MOST_LEAVES, TooManyLeaves, claims_of
from penstock.documents.grounding.pruned import pruned
from penstock.documents.grounding.saidby import SaidBy
from penstock.documents.grounding.search import Index
from penstock.documents.grounding.sheet import sheet_of
from penstock.documents.grounding.sought import sought_for
from penstock.documents.grounding.tongues import with_other_words
from penstock.documents.pages import Place, read_pages


class Grounded(msgspec.Struct, frozen=True, kw_only=True):
    """A result with the places of its values. Or why nothing was looked for, and the result as it was."""

    value: Any = None
    places: tuple[Place, ...] = ()
    excess: str | None = None


def ground_value(file: BinaryIO, value_json: bytes, null_ungrounded: bool, schema_json: bytes) -> Grounded:
    """Look for each value of a result in a file of pages."""
    value: Any = None
    tree = _tree(schema_json)
    try:
        value = msgspec.json.decode(value_json)
        claims = claims_of(value, tree)
    except (TooManyLeaves, RecursionError):
        return Grounded(value=value, excess=f"it has more than {MOST_LEAVES} values, or is nested too deep")
    wanted = sought_for(claims)
    index, verdicts, labels = Index.of(wanted), Verdicts.of(wanted), SaidBy.of(tree)
    for page in read_pages(file):
        sheet = sheet_of(page)
        verdicts.hear(sheet, index.look(sheet))
        labels.read(page, sheet)
    places = verdicts.places(labels)
    if null_ungrounded:
        value = pruned(value, [claim for claim in claims if not places[claim].grounded], schema_json)
    return Grounded(value=value, places=tuple(places[claim] for claim in claims))


def _tree(schema_json: bytes) -> Node | None:
    """What the schema says; nothing when it cannot be read, which is not for us to complain about."""
    try:
        return read_schema(with_other_words(msgspec.json.decode(schema_json)))
    except (SchemaFlaw, msgspec.DecodeError, RecursionError):
        return None

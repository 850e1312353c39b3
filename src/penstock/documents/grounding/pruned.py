"""A result without what stands nowhere: null where that may be, gone where it may be missing, else as it was."""

import copy
from collections.abc import Iterable
from typing import Any

import jsonschema_rs
import msgspec

from penstock.documents.extract.fields.schema import unescaped
from penstock.documents.extract.fields.tree import Judge
from penstock.documents.grounding.leaves import Claim
from penstock.documents.json_schema import bounded_validator


def pruned(value: Any, claims: Iterable[Claim], schema_json: bytes) -> Any:
    """The value without these claims. As it was, when a rule that spans several values would be broken by that."""
    kept = copy.deepcopy(value)
    for claim in claims:
        kept = _without(kept, claim)
    judge = _judge(schema_json)
    return kept if judge is None or judge.is_valid(kept) or not judge.is_valid(value) else value


def _without(value: Any, claim: Claim) -> Any:
    may_be_null = claim.leaf is None or claim.leaf.judge.is_valid(None)
    if not claim.pointer:
        return None if may_be_null else value
    *way, last = map(unescaped, claim.pointer.split("/")[1:])
    inner = value
    for step in way:
        inner = inner[int(step)] if isinstance(inner, list) else inner[step]
    if may_be_null:
        inner[int(last) if isinstance(inner, list) else last] = None
    elif not claim.is_required:
        del inner[last]
    return value


def _judge(schema_json: bytes) -> Judge | None:
    """What the whole schema says; nothing where it cannot be read and so forbids nothing."""
    try:
        return bounded_validator(msgspec.json.decode(schema_json))
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError, RecursionError):
        return None

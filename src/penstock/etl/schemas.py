"""Which rules are taken, and above all which JSON Schemas.

A schema comes from outside, so it is bounded in size and depth, and it is put to the test in the sandbox, where it can
neither hang nor eat memory. Nothing is ever fetched: a `$ref` leads into the schema itself, and may lead back to where
it stands. Patterns are Rust's, which take a time that grows only with the text: no look-around, no back-reference.
"""

from collections.abc import Iterator
from typing import Any
from unicodedata import category

import jsonschema_rs
import msgspec

from penstock.documents.extract.fields.schema import UnusableSchema, parse_schema
from penstock.documents.extract.llm.options import options_error
from penstock.documents.json_schema import bounded_validator
from penstock.etl.domain import Mode, RuleBody
from penstock.etl.errors import BadRule
from penstock.kernel.errors import Invalid
from penstock.kernel.json_object import JsonObject
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.sandbox.limits import SandboxLimits

PRELOAD = (__name__,)  # what a sandbox should have imported before it checks schemas
MOST_NAME = 255
MOST_DESCRIPTION = 10_000
MOST_PROMPT = 100_000
MOST_OPTIONS_BYTES = 16_384
MOST_BYTES = 65_536
MOST_DEPTH = 48
MOST_REASON = 300
LIMITS = SandboxLimits(memory_bytes=256 * 1024 * 1024, cpu_seconds=3, seconds=20, result_bytes=4096)
JOINERS = frozenset("\u200c\u200d")  # inside Persian words, and between the parts of an emoji
TAGS = range(0xE0020, 0xE0080)  # inside the flags of some countries
UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})  # controls, overrides of direction, line ends, private signs
SEEN = "LNPS"  # letters, numbers, punctuation, symbols; Cn are those that are newer than this Python
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


async def check_rule(body: RuleBody, sandbox: Sandbox) -> None:
    """Refuse a rule that contradicts itself, is too large, or whose schema is none."""
    reason = _plain_flaw(body)
    if reason is None and body.json_schema:
        reason = await flaw_of(body.json_schema, sandbox, mode=body.postprocess_mode)
    if reason is not None:
        raise BadRule(reason=reason)


async def flaw_of(schema: JsonObject, sandbox: Sandbox, *, mode: Mode = Mode.LLM) -> str | None:
    """Why a schema is not taken by whoever would work with it, or None when it is."""
    written = msgspec.json.encode(schema)
    flaw = _outer_flaw(schema, len(written))
    if flaw is not None:
        return flaw
    try:
        found = await sandbox.run(why_no_schema, written, mode is Mode.FIELDS, limits=LIMITS)
    except Invalid as error:  # it hung, or wanted too much
        return f"json_schema cannot be checked: {error}"
    return found or None


def why_no_schema(written: bytes, for_fields: bool) -> str:
    """What is wrong with a schema by the rules of JSON Schema; empty when nothing is. Run in the sandbox."""
    schema = msgspec.json.decode(written)
    try:
        bounded_validator(schema).is_valid({})  # to be tried, not to be known: it may have no end
        if for_fields:
            parse_schema(schema)
    except UnusableSchema as flaw:
        return f"json_schema cannot be used to find fields: {flaw}"[:MOST_REASON]
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        place = "".join(f"/{step}" for step in getattr(error, "instance_path", ()))
        return f"json_schema is no JSON Schema{' at ' + place if place else ''}: {error.message}"[:MOST_REASON]
    return ""


def _plain_flaw(body: RuleBody) -> str | None:
    if len(body.name) > MOST_NAME or not _can_be_shown(body.name):
        return f"name must be 1 to {MOST_NAME} characters that can be shown"
    if len(body.description) > MOST_DESCRIPTION:
        return f"description is longer than {MOST_DESCRIPTION} characters"
    if len(body.system_prompt or "") > MOST_PROMPT:
        return f"system_prompt is longer than {MOST_PROMPT} characters"
    if len(msgspec.json.encode(body.options)) > MOST_OPTIONS_BYTES:
        return f"options are longer than {MOST_OPTIONS_BYTES} bytes"
    if not body.json_schema and body.postprocess_mode is not Mode.SKIP:
        return f"json_schema is needed when postprocess_mode is {body.postprocess_mode}"
    return options_error(body.options) if body.postprocess_mode is Mode.LLM else None


def _can_be_shown(name: str) -> bool:
    """Whether there is something to see in a name, and nothing that changes how a line or a terminal shows it."""
    kinds = [category(sign) for sign in name if sign not in JOINERS and ord(sign) not in TAGS]
    return any(kind[0] in SEEN or kind == "Cn" for kind in kinds) and not UNSEEN.intersection(kinds)


def _outer_flaw(schema: JsonObject, size_bytes: int) -> str | None:
    if size_bytes > MOST_BYTES:
        return f"json_schema is longer than {MOST_BYTES} bytes"
    if schema.get("type") != "object":
        return 'json_schema must have "type": "object"'
    level: list[Any] = [schema]
    for _ in range(MOST_DEPTH):
        if any(map(_leads_away, level)):
            return "a $ref of json_schema may only lead into the schema itself, as #/$defs/name does"
        level = [inner for part in level for inner in _inside(part)]
        if not level:
            return None
    return f"json_schema is nested more than {MOST_DEPTH} deep"


def _leads_away(part: Any) -> bool:
    if not isinstance(part, dict):
        return False
    named = (part.get(word) for word in REFERENCES)
    return any(isinstance(reference, str) and not reference.startswith("#") for reference in named)


def _inside(part: Any) -> Iterator[Any]:
    held = part.values() if isinstance(part, dict) else part
    return (inner for inner in held if isinstance(inner, dict | list))

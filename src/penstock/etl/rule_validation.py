"""Validation of rules, above all of their JSON Schemas.

A schema is untrusted, so its size and depth are limited, and it is compiled in the sandbox, where it can neither hang
nor exhaust memory. Nothing is ever fetched: a `$ref` must point into the schema itself; recursion is allowed. Patterns
are Rust regular expressions with linear run time: no look-around, no back-references.
"""

from unicodedata import category

import msgspec

from penstock.documents.extract.fields.schema import UnusableSchema, parse_schema
from penstock.documents.extract.llm.options import options_error
from penstock.etl.domain import Mode, RuleBody
from penstock.etl.errors import BadRule
from penstock.kernel.errors import Invalid
from penstock.kernel.json_object import JsonObject
from penstock.kernel.json_schema.cost import find_schema_problem
from penstock.kernel.json_schema.validation import InvalidSchema, check_schema
from penstock.kernel.json_schema.walk import levels, refers_outside
from penstock.kernel.sandbox.call import Sandbox
from penstock.kernel.sandbox.limits import SandboxLimits

PRELOAD = (__name__,)  # modules that the sandbox imports in advance
MAX_NAME = 255
MAX_DESCRIPTION = 10_000
MAX_PROMPT = 100_000
MAX_OPTIONS_BYTES = 16_384
MAX_SCHEMA_BYTES = 65_536
MAX_SCHEMA_DEPTH = 48
MAX_REASON = 300
LIMITS = SandboxLimits(memory_bytes=256 * 1024 * 1024, cpu_seconds=3, seconds=20, result_bytes=4096)
JOINERS = frozenset("\u200c\u200d")  # used inside Persian words and between the parts of an emoji
TAGS = range(0xE0020, 0xE0080)  # used in the flags of some regions
INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})  # control, format, line separator, private use
VISIBLE = "LNPS"  # letters, numbers, punctuation, symbols; Cn may be newer than this Python's Unicode tables


async def validate_rule(body: RuleBody, sandbox: Sandbox) -> None:
    """Raise `BadRule` if a rule is inconsistent, too large, or its schema is invalid.

    Every mode but skip needs a schema. A skip rule may carry any: it is stored and ignored until the mode changes.
    """
    reason = _body_error(body)
    if reason is None and body.json_schema:
        reason = await schema_error(body.json_schema, sandbox, mode=body.postprocess_mode)
    if reason is not None:
        raise BadRule(reason=reason)


async def schema_error(schema: JsonObject, sandbox: Sandbox, *, mode: Mode = Mode.LLM) -> str | None:
    """Why a schema is invalid for a post-processing mode, or None if it is valid."""
    encoded = msgspec.json.encode(schema)
    error = _size_error(schema, len(encoded)) or (None if mode is Mode.SKIP else _shape_error(schema))
    if error is not None or mode is Mode.SKIP:
        return error
    try:
        found = await sandbox.run(find_schema_error, encoded, mode is Mode.FIELDS, limits=LIMITS)
    except Invalid as error:  # it exceeded its time or memory limit
        return f"json_schema cannot be checked: {error}"
    return found or None


def find_schema_error(encoded: bytes, for_fields: bool) -> str:
    """Why this is not a valid JSON Schema; empty if it is. Runs in the sandbox."""
    schema = msgspec.json.decode(encoded)
    try:
        check_schema(schema)
        if for_fields:
            parse_schema(schema)
    except UnusableSchema as flaw:
        return f"json_schema is not usable with postprocess_mode fields: {flaw}"[:MAX_REASON]
    except InvalidSchema as error:
        place = "".join(f"/{step}" for step in error.place)
        return f"json_schema is not a valid JSON Schema{' at ' + place if place else ''}: {error.message}"[:MAX_REASON]
    return ""


def _body_error(body: RuleBody) -> str | None:
    if len(body.name) > MAX_NAME or not _is_printable(body.name):
        return f"name must have 1 to {MAX_NAME} printable characters"
    if len(body.description) > MAX_DESCRIPTION:
        return f"description is longer than {MAX_DESCRIPTION} characters"
    if len(body.system_prompt or "") > MAX_PROMPT:
        return f"system_prompt is longer than {MAX_PROMPT} characters"
    if len(msgspec.json.encode(body.options)) > MAX_OPTIONS_BYTES:
        return f"options are longer than {MAX_OPTIONS_BYTES} bytes"
    if not body.json_schema and body.postprocess_mode is not Mode.SKIP:
        return f"json_schema is required when postprocess_mode is {body.postprocess_mode}"
    if body.review is not None and (reason := _review_error(body)) is not None:
        return reason
    return options_error(body.options) if body.postprocess_mode is Mode.LLM else None


def _review_error(body: RuleBody) -> str | None:
    """Why the tasks module would not take the schema of a review's task; it refuses more than post-processors do."""
    if body.postprocess_mode is Mode.SKIP or body.json_schema is None:
        return "review needs a json_schema, which says what an answer looks like"
    problem = find_schema_problem(body.json_schema)
    return None if problem is None else f"json_schema cannot be the result_schema of a review: {problem}"


def _is_printable(name: str) -> bool:
    """Whether a name has a visible character, and no control character, line break or bidirectional override."""
    kinds = [category(sign) for sign in name if sign not in JOINERS and ord(sign) not in TAGS]
    return any(kind[0] in VISIBLE or kind == "Cn" for kind in kinds) and not INVISIBLE.intersection(kinds)


def _size_error(schema: JsonObject, size_bytes: int) -> str | None:
    if size_bytes > MAX_SCHEMA_BYTES:
        return f"json_schema is longer than {MAX_SCHEMA_BYTES} bytes"
    if any(depth == MAX_SCHEMA_DEPTH for depth, _ in enumerate(levels(schema))):
        return f"json_schema is nested more than {MAX_SCHEMA_DEPTH} levels deep"
    return None


def _shape_error(schema: JsonObject) -> str | None:
    if schema.get("type") != "object":
        return 'json_schema must have "type": "object"'
    if any(refers_outside(part) for level in levels(schema) for part in level):
        return "a $ref in json_schema must point into the schema itself, like #/$defs/name"
    return None

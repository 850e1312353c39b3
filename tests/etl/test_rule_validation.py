"""Which JSON Schemas a rule may have: limited in size, of type object, and without outside references."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.etl.domain import Mode, RuleBody
from penstock.etl.errors import BadRule
from penstock.etl.rule_validation import MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH, PRELOAD, schema_error, validate_rule
from penstock.kernel.sandbox.call import Sandbox


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(preload=PRELOAD) as opened:
        yield opened


def with_property(part: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": part}}


def nested(depth: int) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        part = with_property(part)
    return part


async def test_schemas_of_every_draft_are_taken(sandbox: Sandbox):
    drafts = ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"]
    for draft in drafts:
        assert await schema_error({"$schema": draft, **with_property({"type": "integer"})}, sandbox) is None
    assert await schema_error(with_property({"enum": ["a", None]}), sandbox) is None


async def test_a_reference_may_lead_back_to_where_it_stands(sandbox: Sandbox):
    tree = {"type": "object", "$defs": {"node": with_property({"$ref": "#/$defs/node"})}, "$ref": "#/$defs/node"}
    assert await schema_error(tree, sandbox) is None
    assert await schema_error(with_property({"$ref": "#"}), sandbox) is None


FLAWS: list[tuple[dict[str, Any], str]] = [
    ({"type": "string"}, '"type": "object"'),
    ({"properties": {}}, '"type": "object"'),
    ({"type": ["object", "null"]}, '"type": "object"'),
    (with_property({"type": "text"}), "at /properties/a/type"),
    (with_property({"minimum": "many"}), "at /properties/a/minimum"),
    (with_property({"$ref": "#/$defs/nowhere"}), "does not exist"),
    (with_property({"pattern": "("}), "regex"),
    (with_property({"pattern": "(a{1000}){1000}"}), "regex"),
    ({"$schema": "http://example.org/mine", "type": "object"}, "Unknown meta-schema"),
    (with_property({"description": "d" * MAX_SCHEMA_BYTES}), "longer than"),
    (nested(MAX_SCHEMA_DEPTH), "nested more than"),
]


async def test_what_is_wrong_with_a_schema_is_said(sandbox: Sandbox):
    for schema, says in FLAWS:
        assert says in (await schema_error(schema, sandbox) or ""), schema


@pytest.mark.parametrize("word", ["$ref", "$dynamicRef", "$recursiveRef"])
async def test_a_reference_to_elsewhere_is_refused_and_never_fetched(sandbox: Sandbox, word: str):
    for target in ("http://127.0.0.1:9/schema.json", "file:///etc/passwd", "other.json", "//host/x"):
        flaw = await schema_error(with_property({"anyOf": [{word: target}]}), sandbox)
        assert flaw is not None
        assert "must point into the schema itself" in flaw


@pytest.mark.timeout(30)
async def test_a_pattern_that_explodes_elsewhere_harms_nobody(sandbox: Sandbox):
    assert await schema_error(with_property({"pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"}), sandbox) is None
    backwards = await schema_error(with_property({"pattern": r"(a+)\1+$"}), sandbox)
    assert backwards is not None
    assert "regex" in backwards


async def test_what_only_a_model_could_fill_is_no_schema_for_fields(sandbox: Sandbox):
    many = {"type": "object", "properties": {f"p{number}": {} for number in range(6000)}}
    assert await schema_error(many, sandbox) is None
    flaw = await schema_error(many, sandbox, mode=Mode.FIELDS)
    assert flaw is not None
    assert "not usable with postprocess_mode fields" in flaw


@pytest.mark.parametrize("mode", [Mode.LLM, Mode.FIELDS])
async def test_only_who_skips_needs_no_schema(sandbox: Sandbox, mode: Mode):
    with pytest.raises(BadRule, match="json_schema is required"):
        await validate_rule(RuleBody(name="n", postprocess_mode=mode), sandbox)
    await validate_rule(RuleBody(name="n", postprocess_mode=Mode.SKIP), sandbox)


@pytest.mark.parametrize(
    "body",
    [
        RuleBody(name="", postprocess_mode=Mode.SKIP),
        RuleBody(name="a\nb", postprocess_mode=Mode.SKIP),
        RuleBody(name="n", description="d" * 10_001, postprocess_mode=Mode.SKIP),
        RuleBody(name="n", system_prompt="p" * 100_001, postprocess_mode=Mode.SKIP),
        RuleBody(name="n", options={"o": "o" * 16_384}, postprocess_mode=Mode.SKIP),
    ],
)
async def test_nothing_in_a_rule_is_without_a_bound(sandbox: Sandbox, body: RuleBody):
    with pytest.raises(BadRule):
        await validate_rule(body, sandbox)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"server": 5}, "options.server"),
        ({"model": ""}, "options.model"),
        ({"temperature": "hot"}, "options.temperature must be a number from 0 to 2"),
        ({"null_ungrounded": "yes"}, "options.null_ungrounded must be true or false"),
        ({"chunk_size_chars": 1.5}, "options.chunk_size_chars must be an integer"),
    ],
)
async def test_what_a_rule_tells_a_model_is_checked(sandbox: Sandbox, options: dict[str, Any], says: str):
    schema = with_property({"type": "string"})
    with pytest.raises(BadRule, match=says):
        await validate_rule(RuleBody(name="n", json_schema=schema, options=options), sandbox)
    await validate_rule(RuleBody(name="n", postprocess_mode=Mode.SKIP, options=options), sandbox)


async def test_options_that_nobody_knows_are_let_alone(sandbox: Sandbox):
    options = {"colour": ["red"], "server": "near", "temperature": 0, "chunk_size_chars": 500, "null_ungrounded": True}
    await validate_rule(RuleBody(name="n", json_schema=with_property({}), options=options), sandbox)


@pytest.mark.parametrize("name", ["👩\u200d👩\u200d👧", "می\u200cخواهم", "发票　规则", "🫨", "Łódź – §7"])
async def test_a_name_may_be_written_in_any_script(name: str, sandbox: Sandbox):
    await validate_rule(RuleBody(name=name, postprocess_mode=Mode.SKIP), sandbox)


@pytest.mark.parametrize("name", ["", "  ", "\u200d", "a\u202eb", "a\x1b[2J", "a\u2028b", "a\u009b", "n" * 256])
async def test_a_name_must_be_something_that_can_be_shown(name: str, sandbox: Sandbox):
    with pytest.raises(BadRule, match="name must have"):
        await validate_rule(RuleBody(name=name, postprocess_mode=Mode.SKIP), sandbox)

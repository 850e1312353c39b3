"""Every value is looked up in the document; ungrounded values can be nulled."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.adapters.llm_shaper.validation import GROUNDING, ground_result
from penstock.documents.errors import DocumentTookTooLong
from penstock.documents.extract.errors import ResultNotGrounded
from tests.adapters.llm_shaper.harness import SCHEMA, TEXT, ShaperHarness
from tests.fakes.grounding import (
    ENDLESS,
    ground_by_letters,
    ground_late,
    ground_nothing_for_its_size,
    ground_without_end,
)
from tests.fakes.models import ModelThatReadsLabels, ModelThatSays

pytestmark = pytest.mark.asyncio(loop_scope="module")

INVENTED = ModelThatSays('{"Name": "Mill", "City": "Atlantis"}')
MAYBE = {"type": "object", "properties": {"Name": TEXT, "City": {"type": ["string", "null"]}}}


async def test_each_value_gets_its_citation(shaper_harness: ShaperHarness):
    shaped = await shaper_harness.shape(ModelThatReadsLabels(), "Name: Mill", "City: Ulm")
    assert {citation.pointer: (citation.grounded, citation.page) for citation in shaped.citations} == {
        "/Name": (True, 1),
        "/City": (True, 2),
    }


async def test_an_ungrounded_value_is_flagged_and_kept(shaper_harness: ShaperHarness):
    shaped = await shaper_harness.shape(INVENTED, "Name: Mill")
    assert shaped.value["City"] == "Atlantis"
    assert [citation.grounded for citation in shaped.citations] == [True, False]


async def test_a_rule_may_null_ungrounded_values(shaper_harness: ShaperHarness):
    shaped = await shaper_harness.shape(INVENTED, "Name: Mill", schema=MAYBE, options={"null_ungrounded": True})
    assert shaped.value == {"Name": "Mill", "City": None}
    assert [citation.grounded for citation in shaped.citations] == [True, False]


@pytest.mark.parametrize("ground", [ground_by_letters, ground_result])
async def test_a_value_that_the_schema_requires_is_not_nulled_and_noted(shaper_harness: ShaperHarness, ground: Any):
    shaper_harness.ground = ground
    schema = {**SCHEMA, "required": ["Name", "City"]}
    shaped = await shaper_harness.shape(INVENTED, "Name: Mill", schema=schema, options={"null_ungrounded": True})
    assert shaped.value == {"Name": "Mill", "City": "Atlantis"}
    assert "not_nulled" in shaped.notes


async def test_a_result_of_many_rows_is_grounded(shaper_harness: ShaperHarness):
    rows: dict[str, Any] = {"type": "array", "items": TEXT}
    value = {"Name": "Mill", "rows": [f"row {at} " + "x" * 50 for at in range(5000)]}
    schema = {"type": "object", "properties": {"Name": TEXT, "rows": rows}}
    shaped = await shaper_harness.shape(ModelThatSays(json.dumps(value)), "Name: Mill", schema=schema)
    assert shaped.value == value
    assert shaped.citations[0].page == 1


@pytest.mark.parametrize("ground", [ground_nothing_for_its_size, ground_without_end])
async def test_a_result_too_large_to_ground_is_noted(shaper_harness: ShaperHarness, ground: Any):
    shaper_harness.ground = ground
    shaped = await shaper_harness.shape(INVENTED, "Name: Mill")
    assert (shaped.value["Name"], shaped.citations) == ("Mill", ())
    assert shaped.notes["not_grounded"]
    with pytest.raises(ResultNotGrounded, match=r"paper\.pdf"):
        await shaper_harness.shape(INVENTED, "Name: Mill", options={"null_ungrounded": True})
    assert ground is not ground_nothing_for_its_size or shaped.notes["not_grounded"] == ENDLESS


async def test_a_timeout_is_not_the_fault_of_the_document(
    shaper_harness: ShaperHarness, monkeypatch: pytest.MonkeyPatch
):
    shaper_harness.ground = ground_late
    monkeypatch.setattr("penstock.adapters.llm_shaper.validation.GROUNDING", replace(GROUNDING, seconds=1))
    with pytest.raises(DocumentTookTooLong):
        await shaper_harness.shape(INVENTED, "Name: Mill")


async def test_real_grounding_finds_real_text(shaper_harness: ShaperHarness, tmp_path: Path):
    shaper_harness.ground = ground_result
    shaped = await shaper_harness.shape(INVENTED, "Name: Mill", "Other words")
    found = {citation.pointer: (citation.grounded, citation.page) for citation in shaped.citations}
    assert found["/Name"] == (True, 1)
    assert found["/City"][0] is False
    assert shaper_harness.left_behind() == []

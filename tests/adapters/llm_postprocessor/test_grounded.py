"""Every value is looked up in the document; ungrounded values can be nulled."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.adapters.llm_postprocessor.validation import GROUNDING, ground_result
from penstock.documents.errors import DocumentTookTooLong
from penstock.documents.extract.errors import ResultNotGrounded
from tests.adapters.llm_postprocessor.harness import SCHEMA, TEXT, LlmHarness
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


async def test_each_value_gets_its_citation(llm_harness: LlmHarness):
    extracted = await llm_harness.extract(ModelThatReadsLabels(), "Name: Mill", "City: Ulm")
    assert {citation.pointer: (citation.grounded, citation.page) for citation in extracted.citations} == {
        "/Name": (True, 1),
        "/City": (True, 2),
    }


async def test_an_ungrounded_value_is_flagged_and_kept(llm_harness: LlmHarness):
    extracted = await llm_harness.extract(INVENTED, "Name: Mill")
    assert extracted.value["City"] == "Atlantis"
    assert [citation.grounded for citation in extracted.citations] == [True, False]


async def test_a_rule_may_null_ungrounded_values(llm_harness: LlmHarness):
    extracted = await llm_harness.extract(INVENTED, "Name: Mill", schema=MAYBE, options={"null_ungrounded": True})
    assert extracted.value == {"Name": "Mill", "City": None}
    assert [citation.grounded for citation in extracted.citations] == [True, False]


@pytest.mark.parametrize("ground", [ground_by_letters, ground_result])
async def test_a_value_that_the_schema_requires_is_not_nulled_and_noted(llm_harness: LlmHarness, ground: Any):
    llm_harness.ground = ground
    schema = {**SCHEMA, "required": ["Name", "City"]}
    extracted = await llm_harness.extract(INVENTED, "Name: Mill", schema=schema, options={"null_ungrounded": True})
    assert extracted.value == {"Name": "Mill", "City": "Atlantis"}
    assert "not_nulled" in extracted.notes


async def test_a_result_of_many_rows_is_grounded(llm_harness: LlmHarness):
    rows: dict[str, Any] = {"type": "array", "items": TEXT}
    value = {"Name": "Mill", "rows": [f"row {at} " + "x" * 50 for at in range(5000)]}
    schema = {"type": "object", "properties": {"Name": TEXT, "rows": rows}}
    extracted = await llm_harness.extract(ModelThatSays(json.dumps(value)), "Name: Mill", schema=schema)
    assert extracted.value == value
    assert extracted.citations[0].page == 1


@pytest.mark.parametrize("ground", [ground_nothing_for_its_size, ground_without_end])
async def test_a_result_too_large_to_ground_is_noted(llm_harness: LlmHarness, ground: Any):
    llm_harness.ground = ground
    extracted = await llm_harness.extract(INVENTED, "Name: Mill")
    assert (extracted.value["Name"], extracted.citations) == ("Mill", ())
    assert extracted.notes["not_grounded"]
    with pytest.raises(ResultNotGrounded, match=r"paper\.pdf"):
        await llm_harness.extract(INVENTED, "Name: Mill", options={"null_ungrounded": True})
    assert ground is not ground_nothing_for_its_size or extracted.notes["not_grounded"] == ENDLESS


async def test_a_timeout_is_not_the_fault_of_the_document(llm_harness: LlmHarness, monkeypatch: pytest.MonkeyPatch):
    llm_harness.ground = ground_late
    monkeypatch.setattr("penstock.adapters.llm_postprocessor.validation.GROUNDING", replace(GROUNDING, seconds=1))
    with pytest.raises(DocumentTookTooLong):
        await llm_harness.extract(INVENTED, "Name: Mill")


async def test_real_grounding_finds_real_text(llm_harness: LlmHarness, tmp_path: Path):
    llm_harness.ground = ground_result
    extracted = await llm_harness.extract(INVENTED, "Name: Mill", "Other words")
    found = {citation.pointer: (citation.grounded, citation.page) for citation in extracted.citations}
    assert found["/Name"] == (True, 1)
    assert found["/City"][0] is False
    assert llm_harness.left_behind() == []

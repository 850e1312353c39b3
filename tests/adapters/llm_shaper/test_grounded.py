"""Every value is looked for in the document, and what stands nowhere can be nulled."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.adapters.llm_shaper.validation import GROUNDING, ground_result
from penstock.documents.errors import DocumentTookTooLong
from penstock.documents.extract.errors import ResultNotGrounded
from tests.adapters.llm_shaper.study import SCHEMA, TEXT, Study
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


async def test_each_value_gets_its_place(study: Study):
    shaped = await study.shape(ModelThatReadsLabels(), "Name: Mill", "City: Ulm")
    assert {citation.pointer: (citation.grounded, citation.page) for citation in shaped.citations} == {
        "/Name": (True, 1),
        "/City": (True, 2),
    }


async def test_what_stands_nowhere_is_flagged_and_stays(study: Study):
    shaped = await study.shape(INVENTED, "Name: Mill")
    assert shaped.value["City"] == "Atlantis"
    assert [citation.grounded for citation in shaped.citations] == [True, False]


async def test_a_rule_may_want_it_nulled(study: Study):
    shaped = await study.shape(INVENTED, "Name: Mill", schema=MAYBE, options={"null_ungrounded": True})
    assert shaped.value == {"Name": "Mill", "City": None}
    assert [citation.grounded for citation in shaped.citations] == [True, False]


@pytest.mark.parametrize("ground", [ground_by_letters, ground_result])
async def test_nulls_that_the_schema_does_not_take_are_not_made_and_that_is_told(study: Study, ground: Any):
    study.ground = ground
    schema = {**SCHEMA, "required": ["Name", "City"]}
    shaped = await study.shape(INVENTED, "Name: Mill", schema=schema, options={"null_ungrounded": True})
    assert shaped.value == {"Name": "Mill", "City": "Atlantis"}
    assert "not_nulled" in shaped.notes


async def test_a_result_of_many_rows_is_looked_for_too(study: Study):
    rows: dict[str, Any] = {"type": "array", "items": TEXT}
    value = {"Name": "Mill", "rows": [f"row {at} " + "x" * 50 for at in range(5000)]}
    schema = {"type": "object", "properties": {"Name": TEXT, "rows": rows}}
    shaped = await study.shape(ModelThatSays(json.dumps(value)), "Name: Mill", schema=schema)
    assert shaped.value == value
    assert shaped.citations[0].page == 1


@pytest.mark.parametrize("ground", [ground_nothing_for_its_size, ground_without_end])
async def test_what_is_too_much_to_look_for_is_told(study: Study, ground: Any):
    study.ground = ground
    shaped = await study.shape(INVENTED, "Name: Mill")
    assert (shaped.value["Name"], shaped.citations) == ("Mill", ())
    assert shaped.notes["not_grounded"]
    with pytest.raises(ResultNotGrounded, match=r"paper\.pdf"):
        await study.shape(INVENTED, "Name: Mill", options={"null_ungrounded": True})
    assert ground is not ground_nothing_for_its_size or shaped.notes["not_grounded"] == ENDLESS


async def test_a_busy_machine_is_no_fault_of_the_document(study: Study, monkeypatch: pytest.MonkeyPatch):
    study.ground = ground_late
    monkeypatch.setattr("penstock.adapters.llm_shaper.validation.GROUNDING", replace(GROUNDING, seconds=1))
    with pytest.raises(DocumentTookTooLong):
        await study.shape(INVENTED, "Name: Mill")


async def test_the_real_one_finds_real_words(study: Study, tmp_path: Path):
    study.ground = ground_result
    shaped = await study.shape(INVENTED, "Name: Mill", "Other words")
    found = {citation.pointer: (citation.grounded, citation.page) for citation in shaped.citations}
    assert found["/Name"] == (True, 1)
    assert found["/City"][0] is False
    assert study.left_behind() == []

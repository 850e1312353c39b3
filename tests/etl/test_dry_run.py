"""Dry run of a rule on a sample: its result, and that nothing is stored."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.documents.ocr.provider import Reading, StageContext
from penstock.documents.postprocessor import ExtractionResult, ExtractionRule
from penstock.etl import dry_run
from penstock.etl.domain import Mode
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from tests.etl.api_client import EtlClient, client_with, open_client
from tests.etl.harness import on_sqlite


class PostProcessorThatNeverEnds:
    """Never finishes."""

    def identity(self, rule: ExtractionRule) -> None:
        """Not cached."""

    async def extract(
        self, filename: str, reading: Reading, rule: ExtractionRule, context: StageContext
    ) -> ExtractionResult:
        await asyncio.Event().wait()
        raise AssertionError


pytestmark = on_sqlite


@pytest.fixture
async def client(db: Db, tmp_path: Path) -> AsyncIterator[EtlClient]:
    async with open_client(db, tmp_path) as opened:
        yield opened


async def new_rule(client: EtlClient) -> int:
    made = await client.json("POST", "/rules", {"name": "Totals", "postprocess_mode": "skip"})
    rule_id: int = made["rule_id"]
    return rule_id


async def test_a_text_is_shaped_and_nothing_is_left_of_it(client: EtlClient):
    rule_id = await new_rule(client)
    tried = await client.json("POST", f"/rules/{rule_id}/try", {"markdown": "# Bill\n\nTotal: 12.5"})
    assert (tried["rule_id"], tried["version"], tried["strategy"]) == (rule_id, 1, "totals")
    assert tried["value"]["total"] == 12.5
    assert tried["places"] == [{"pointer": "/total", "grounded": True, "page": 1, "box": None, "text": "Total: 12.5"}]
    assert await client.keys("") == []
    assert (await client.json("GET", "/tasks"))["tasks"] == []


async def test_what_was_read_for_a_task_is_shaped_without_reading_it_again(client: EtlClient):
    rule_id, task_id = await new_rule(client), await client.submit("Total: 7")
    await client.work()
    before = await client.keys("")
    tried = await client.json("POST", f"/rules/{rule_id}/try", {"task_id": task_id})
    assert (tried["value"]["total"], tried["value"]["filename"]) == (7.0, "a.md")
    assert client.ocr.calls == 1
    assert await client.keys("") == before


async def test_a_task_that_was_not_read_or_is_foreign_is_no_sample(client: EtlClient):
    rule_id, unread = await new_rule(client), await client.submit()
    foreign = await client.submit(key="bert")
    told = await client.refused("POST", f"/rules/{rule_id}/try", {"task_id": unread})
    assert told == (409, "NO_OCR_ARTIFACT")
    for task_id in (foreign, 999):
        told = await client.refused("POST", f"/rules/{rule_id}/try", {"task_id": task_id})
        assert told == (404, "ETL_TASK_NOT_FOUND")


@pytest.mark.parametrize(
    "body", [{}, {"markdown": "a", "task_id": 1}, {"markdown": ""}, {"task_id": 0}, {"text": "a"}, {"markdown": 5}]
)
async def test_a_sample_is_either_a_text_or_a_task(client: EtlClient, body: object):
    rule_id = await new_rule(client)
    assert await client.refused("POST", f"/rules/{rule_id}/try", body) == (400, "VALIDATION")


async def test_a_rule_that_nobody_here_can_follow_is_refused(client: EtlClient):
    nobody = client_with(client.deps, post_processors={})
    told = await nobody.refused("POST", f"/rules/{await new_rule(client)}/try", {"markdown": "a"})
    assert told == (400, "MODE_UNKNOWN")


async def test_a_try_that_takes_too_long_is_given_up_and_cleared_away(
    client: EtlClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dry_run, "DRY_RUN_SECONDS", 0.1)
    slow = client_with(client.deps, post_processors={Mode.SKIP: PostProcessorThatNeverEnds()})
    told = await slow.refused("POST", f"/rules/{await new_rule(client)}/try", {"markdown": "a"})
    assert told == (503, "TRY_TIMEOUT")
    assert await client.keys("") == []


async def test_what_a_dead_process_left_of_a_try_is_swept_away_later(client: EtlClient, clock: ManualClock):
    clock.advance(seconds=(datetime.now(UTC) - clock.now()).total_seconds())
    await client.deps.blobs.put("etl_tries/0123/mineru.md", b"left")
    await dry_run.delete_leftovers(client.deps)
    assert await client.keys("") == ["etl_tries/0123/mineru.md"]
    clock.advance(seconds=timedelta(hours=2).total_seconds())
    await dry_run.delete_leftovers(client.deps)
    assert await client.keys("") == []

"""The provider in the etl module: a task from its submission to its end, over a worker that crashes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.adapters.mineru.config import MineruConfig
from penstock.adapters.mineru.reader import MineruReader
from penstock.etl.api import actions
from penstock.etl.domain import EtlTask, Status
from penstock.etl.submit import NewTask
from penstock.kernel.clock import ManualClock, SystemClock
from penstock.kernel.sandbox.call import Sandbox
from tests.adapters.mineru import zips
from tests.adapters.mineru.harness import PRELOAD
from tests.documents import pdf_files as making
from tests.etl.harness import ANNA, EtlHarness, EtlProfile, open_harness
from tests.fakes.mineru_server import TOKEN, MineruCloud, Said, Step

SUBMIT, LOOK = "POST /api/v4/file-urls/batch", "GET /api/v4/extract-results"


@pytest.fixture
async def cloud() -> AsyncIterator[MineruCloud]:
    async with MineruCloud() as server:
        server.result = lambda tag, content: zips.pages("First.", "Second.")
        yield server


@pytest.fixture
def profile(sqlite_url: str, tmp_path: Path) -> EtlProfile:
    """One profile: how MinerU is called does not depend on the database."""
    return EtlProfile(database=sqlite_url, scratch=tmp_path)


@pytest.fixture
async def harness(profile: EtlProfile, clock: ManualClock, cloud: MineruCloud) -> AsyncIterator[EtlHarness]:
    """The etl module with MinerU as OCR provider."""
    terms = MineruConfig(endpoint=cloud.endpoint, api_key=TOKEN, poll_interval=0.01, source="upload")
    async with open_harness(profile, clock) as harness, Sandbox(preload=PRELOAD) as sandbox:
        reader = MineruReader(
            harness.deps.blobs, sandbox=sandbox, scratch=profile.scratch / "mineru", clock=SystemClock(), config=terms
        )
        harness.set(provider=reader)
        yield harness
        await reader.close()


async def submitted(harness: EtlHarness) -> EtlTask:
    key = "users/5/raw/3/paper.pdf"
    await harness.deps.blobs.put(key, making.pages_of("one", "two"))
    return await actions.submit_task(harness.deps, ANNA, NewTask(project_id=3, filename="paper.pdf"))


async def test_a_task_is_completed_and_says_who_has_read_it(harness: EtlHarness, cloud: MineruCloud):
    task = await submitted(harness)
    await harness.work()
    row = await harness.row(task)
    assert row.status is Status.COMPLETED
    assert row.metadata["provider_task_id"] == "batch-1"
    assert row.metadata["ocr"]["provider"] == "mineru"
    assert not [key for key in await harness.keys() if "/mineru/" in key]


async def test_after_a_crash_while_polling_nothing_is_submitted_again(harness: EtlHarness, cloud: MineruCloud):
    cloud.steps = [Step(state="running", done=1, of=2)]
    task = await submitted(harness)
    await harness.deliver()
    stage = asyncio.create_task(harness.do(await harness.claim()))
    await cloud.until(LOOK, times=2)
    stage.cancel()
    await asyncio.wait({stage})
    assert (await harness.row(task)).metadata["provider_task_id"] == "batch-1"
    cloud.steps = [Step(state="done")]
    await harness.rescue()
    await harness.work()
    assert await harness.status(task) is Status.COMPLETED
    assert (cloud.count(SUBMIT), cloud.count("PUT")) == (1, 1)


async def test_a_document_that_mineru_refuses_fails_in_its_stage_with_our_code(harness: EtlHarness, cloud: MineruCloud):
    cloud.say(SUBMIT, Said(json={"code": -60006, "msg": "too many pages"}))
    task = await submitted(harness)
    await harness.work()
    row = await harness.row(task)
    assert row.status is Status.FAILED
    assert cloud.count(SUBMIT) == 1
    assert (row.metadata["error_stage"], row.metadata["error_code"]) == ("mineru", "DOCUMENT_TOO_LARGE")
    assert "too many pages" in (row.error or "")

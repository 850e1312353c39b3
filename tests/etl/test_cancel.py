"""Cancel and abort tasks; late workers are rejected."""

import asyncio

import pytest

from penstock.access import audit
from penstock.documents.postprocessor import ExtractionResult
from penstock.etl import artifacts
from penstock.etl.api import actions
from penstock.etl.domain import Stage, Status
from penstock.etl.errors import (
    EtlTaskAlreadyEnded,
    EtlTaskNotFound,
    EtlTaskRunning,
)
from penstock.etl.retry import RetryOptions
from penstock.kernel.errors import Unavailable
from penstock.kernel.leases import LeaseLost
from penstock.kernel.queue import JobState
from tests.etl.harness import ANNA, BERT, ROOT, EtlHarness, on_all_profiles, on_both_profiles
from tests.fakes.ocr import OcrThatFails, OcrThatWaits


class TestCancel:
    @on_all_profiles
    async def test_a_waiting_task_is_cancelled_with_its_job(self, harness: EtlHarness):
        task = await harness.submit()
        cancelled = await actions.cancel_task(harness.deps, ANNA, task.id)
        assert cancelled.status is Status.CANCELLED
        assert (await harness.row(task)).status is Status.CANCELLED
        assert (await harness.shown(task)).task.status is Status.CANCELLED
        assert (await harness.job(task, "ocr")).state is JobState.CANCELLED
        assert await harness.work() == 0
        assert harness.ocr.calls == 0
        assert await harness.transitions(task) == ["submit", "cancel"]
        assert await harness.events(task) == ["etl_pending", "etl_cancelled"]

    async def test_a_running_task_is_not_cancelled(self, harness: EtlHarness):
        ocr, task, working = await harness.paused(before_page=2)
        with pytest.raises(EtlTaskRunning, match="mineru_parsing"):
            await actions.cancel_task(harness.deps, ANNA, task.id)
        ocr.go_on.set()
        await working
        await harness.work()
        assert (await harness.row(task)).status is Status.COMPLETED

    async def test_a_task_that_waits_for_post_processing_is_not_cancelled(self, harness: EtlHarness):
        task = await harness.submit()
        job = await harness.claim()
        settle = await harness.do(job)
        assert settle is not None
        await harness.settle(job, settle)
        with pytest.raises(EtlTaskRunning, match="llm_processing"):
            await actions.cancel_task(harness.deps, ANNA, task.id)

    @on_both_profiles
    async def test_nor_is_it_when_run_state_does_not_show_that(self, harness: EtlHarness):
        task = await harness.submit()
        job = await harness.claim()
        settle = await harness.do(job)
        assert settle is not None
        await harness.settle(job, settle)
        await harness.lose_run_state(task)
        with pytest.raises(EtlTaskRunning, match="llm_processing"):
            await actions.cancel_task(harness.deps, ANNA, task.id)

    @on_both_profiles
    async def test_a_task_that_waits_for_its_next_attempt_is_not_cancelled(self, harness: EtlHarness):
        harness.set(provider=OcrThatFails(harness.deps.blobs, Unavailable(reason="later"), times=1))
        task = await harness.submit()
        await harness.work()
        with pytest.raises(EtlTaskRunning, match="mineru_parsing"):
            await actions.cancel_task(harness.deps, ANNA, task.id)

    async def test_a_task_whose_job_was_just_claimed_is_not_cancelled(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.claim()
        with pytest.raises(EtlTaskRunning):
            await actions.cancel_task(harness.deps, ANNA, task.id)
        assert (await harness.row(task)).status is Status.PENDING

    @on_all_profiles
    async def test_of_a_cancel_and_a_claim_at_once_exactly_one_wins(self, harness: EtlHarness):
        for number in range(8):
            task = await harness.submit(f"{number}.txt")
            await harness.deliver()
            cancelling = asyncio.create_task(actions.cancel_task(harness.deps, ANNA, task.id))
            working = harness.begin()
            refused = (await asyncio.gather(cancelling, return_exceptions=True))[0]
            await working
            await harness.work()
            row = await harness.row(task)
            if isinstance(refused, BaseException):
                assert isinstance(refused, EtlTaskRunning | EtlTaskAlreadyEnded), refused
                assert row.status is Status.COMPLETED
            else:
                assert row.status is Status.CANCELLED
                assert harness.ocr.pages_read.total() == 0
            harness.ocr.pages_read.clear()

    async def test_what_is_over_is_not_cancelled(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.work()
        for verb in (actions.cancel_task, actions.abort_task):
            with pytest.raises(EtlTaskAlreadyEnded, match="completed"):
                await verb(harness.deps, ANNA, task.id)

    async def test_somebody_elses_task_is_not_found(self, harness: EtlHarness):
        task = await harness.submit()
        for verb in (actions.cancel_task, actions.abort_task):
            with pytest.raises(EtlTaskNotFound):
                await verb(harness.deps, BERT, task.id)
        with pytest.raises(EtlTaskNotFound):
            await actions.retry_task(harness.deps, BERT, task.id, RetryOptions())
        assert (await actions.cancel_task(harness.deps, ROOT, task.id)).status is Status.CANCELLED


class TestAbort:
    @on_all_profiles
    async def test_a_worker_stops_at_its_next_page_and_overwrites_nothing(self, harness: EtlHarness):
        ocr, task, working = await harness.paused(before_page=2)
        aborted = await actions.abort_task(harness.deps, ANNA, task.id)
        assert aborted.status is Status.CANCELLED
        harness.clock.advance(seconds=1)
        ocr.go_on.set()
        await working
        await harness.work()
        assert ocr.pages_read == {1: 1, 2: 1}
        assert (await harness.row(task)).status is Status.CANCELLED
        assert await harness.status(task) is Status.CANCELLED
        assert "users/5/processed/3/a.txt.json" not in await harness.keys()
        job = await harness.job(task, "ocr")
        assert (job.state, job.token) == (JobState.CANCELLED, None)

    @on_both_profiles
    async def test_a_worker_that_is_done_is_refused_when_it_settles(self, harness: EtlHarness):
        task = await harness.submit()
        job = await harness.claim()
        settle = await harness.do(job)
        assert settle is not None
        await actions.abort_task(harness.deps, ANNA, task.id)
        with pytest.raises(LeaseLost):
            await harness.settle(job, settle)
        assert await harness.work() == 0
        assert (await harness.row(task)).status is Status.CANCELLED

    @on_both_profiles
    async def test_a_result_that_comes_late_does_not_complete_a_cancelled_task(self, harness: EtlHarness):
        task = await harness.submit()
        job = await harness.claim()
        settle = await harness.do(job)
        assert settle is not None
        await harness.settle(job, settle)
        shaping = await harness.claim()
        late = await harness.do(shaping)
        assert late is not None
        await actions.abort_task(harness.deps, ANNA, task.id)
        with pytest.raises(LeaseLost):
            await harness.settle(shaping, late)
        await harness.deliver()
        assert (await harness.row(task)).status is Status.CANCELLED
        assert (await harness.row(task)).result is None
        assert await harness.status(task) is Status.CANCELLED

    async def test_what_ocr_made_is_kept_for_a_retry(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.do(await harness.claim())
        aborted = await actions.abort_task(harness.deps, ANNA, task.id)
        assert aborted.metadata["artifact_mineru_markdown_key"].endswith("/mineru.md")
        opened = await actions.retry_task(harness.deps, ANNA, task.id, RetryOptions())
        await harness.work()
        assert (await harness.row(opened)).status is Status.COMPLETED
        assert harness.ocr.calls == 1


@on_both_profiles
class TestLateWorkers:
    async def test_a_worker_that_lost_its_lease_cannot_settle_nor_turn_run_state_back(self, harness: EtlHarness):
        slow = OcrThatWaits(harness.deps.blobs, before_page=2)
        harness.set(provider=slow)
        task = await harness.submit()
        job = await harness.claim()
        late = asyncio.create_task(harness.do(job))
        await slow.waits.wait()
        await harness.rescue()
        harness.set(provider=harness.ocr)
        await harness.work()
        assert (await harness.row(task)).status is Status.COMPLETED
        slow.go_on.set()
        assert await late is None
        assert (await harness.shown(task)).task.status is Status.COMPLETED
        with pytest.raises(LeaseLost):
            async with harness.db.tx() as tx:
                await harness.deps.queue.finish(tx, job)

    async def test_a_worker_of_an_earlier_run_does_nothing_to_the_next(self, harness: EtlHarness):
        slow = OcrThatWaits(harness.deps.blobs, before_page=2)
        harness.set(provider=slow)
        task = await harness.submit()
        job = await harness.claim()
        late = asyncio.create_task(harness.do(job))
        await slow.waits.wait()
        await actions.abort_task(harness.deps, ANNA, task.id)
        await actions.retry_task(harness.deps, ANNA, task.id, RetryOptions(from_stage=Stage.OCR))
        harness.set(provider=harness.ocr)
        await harness.put(text="another\fdocument\fthree")
        harness.clock.advance(seconds=1)
        slow.go_on.set()
        assert await late is None
        await harness.work()
        markdown = await harness.deps.blobs.get(f"users/5/etl_artifacts/3/{task.id}/mineru.md")
        assert b"another" in markdown
        assert b"first page" not in markdown

    async def test_a_reading_that_comes_late_does_not_take_the_place_of_the_next_runs(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.work()
        first = await harness.row(task)
        late = await artifacts.find_ocr(harness.deps.blobs, first)
        assert late is not None
        await actions.retry_task(harness.deps, ANNA, task.id, RetryOptions(from_stage=Stage.OCR, force=True))
        await harness.deliver()
        job = await harness.claim()
        settle = await harness.do(job)
        assert settle is not None
        await harness.settle(job, settle)
        await harness.deps.blobs.put(late.reading.pages_key, b"")
        await artifacts.commit_ocr(harness.deps.blobs, first, late.reading)
        await artifacts.commit_result(harness.deps.blobs, first, ExtractionResult(value={"old": 1}, strategy="late"))
        await harness.work()
        assert (await harness.row(task)).status is Status.COMPLETED
        result = await harness.deps.blobs.get(await actions.artifact_key(harness.deps, ANNA, task.id, "result"))
        assert b"old" not in result
        assert result == await harness.deps.blobs.get("users/5/processed/3/a.txt.json")

    async def test_what_earlier_runs_have_left_is_deleted(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.work()
        await actions.retry_task(harness.deps, ANNA, task.id, RetryOptions(from_stage=Stage.OCR, force=True))
        await harness.deps.blobs.put(f"users/5/etl_artifacts/3/{task.id}/pages/1/page-1.md", b"late")
        await harness.work()
        folder = f"users/5/etl_artifacts/3/{task.id}/"
        names = {key.removeprefix(folder) for key in await harness.keys(folder)}
        assert names == {"grounding-2.json", "mineru.md", "pages-2.jsonl", "reading-2.json", "result-2.json"}


@on_both_profiles
async def test_who_submitted_cancelled_and_retried_a_task_is_in_the_audit_log(harness: EtlHarness):
    task = await harness.submit()
    await actions.cancel_task(harness.deps, ANNA, task.id)
    await actions.retry_task(harness.deps, ANNA, task.id, RetryOptions())
    await actions.abort_task(harness.deps, ROOT, task.id)
    async with harness.deps.db.read() as tx:
        lines = reversed(await audit.list_lines(tx))
    assert [(line.actor, line.action) for line in lines if line.target == f"etl:{task.id}"] == [
        (ANNA.actor, "etl.submit"),
        (ANNA.actor, "etl.cancel"),
        (ANNA.actor, "etl.retry"),
        (ROOT.actor, "etl.abort"),
    ]

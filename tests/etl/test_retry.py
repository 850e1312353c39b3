"""Retry tasks: from which stage, with which artifacts, and when it is rejected."""

import asyncio

import pytest

from penstock.documents.ocr.provider import Reading, StageContext
from penstock.documents.postprocessor import ExtractionResult, ExtractionRule
from penstock.etl.api import actions
from penstock.etl.domain import Phase, Stage, Status
from penstock.etl.errors import (
    EtlTaskAlreadyEnded,
    EtlTaskRunning,
    OcrResultMissing,
    QueueFull,
    SourceNotFound,
)
from penstock.etl.retry import RetryOptions
from penstock.kernel.errors import Invalid
from penstock.kernel.queue import JobState
from tests.etl.harness import ANNA, EtlHarness, on_all_profiles, on_both_profiles
from tests.fakes.ocr import EchoPostProcessor, OcrThatFails, OcrThatWaits, PostProcessorThatFails, RemoteOcr


async def failed_in_shaping(harness: EtlHarness) -> int:
    """A task whose post-processing failed permanently; the next attempt succeeds."""
    harness.set(post_processor=PostProcessorThatFails(Invalid(reason="no"), times=1))
    task = await harness.submit()
    await harness.work()
    assert (await harness.row(task)).metadata["error_stage"] == "postprocess"
    return task.id


class TestRetry:
    @on_all_profiles
    async def test_from_post_processing_nothing_is_read_again(self, harness: EtlHarness):
        number = await failed_in_shaping(harness)
        opened = await actions.retry_task(harness.deps, ANNA, number, RetryOptions(from_stage=Stage.POSTPROCESS))
        assert (opened.status, opened.run, opened.ocr_run) == (Status.PENDING, 2, 1)
        assert "error_stage" not in opened.metadata
        assert opened.metadata["artifact_mineru_markdown_key"].endswith("/mineru.md")
        assert await harness.work() == 1
        assert harness.ocr.calls == 1
        row = await harness.row(opened)
        assert (row.status, row.error) == (Status.COMPLETED, None)
        assert await harness.transitions(opened) == ["submit", "fail", "retry", "complete"]
        assert (await harness.job(opened, "postprocess", run=2)).state is JobState.DONE

    @on_both_profiles
    async def test_from_post_processing_it_is_shown_that_the_document_is_read(self, harness: EtlHarness):
        number = await failed_in_shaping(harness)
        seen: list[int] = []

        class PostProcessorThatLooks(EchoPostProcessor):
            async def extract(
                self, filename: str, reading: Reading, rule: ExtractionRule, context: StageContext
            ) -> ExtractionResult:
                seen.append((await harness.shown(opened)).task.progress)
                return await super().extract(filename, reading, rule, context)

        harness.set(post_processor=PostProcessorThatLooks())
        opened = await actions.retry_task(harness.deps, ANNA, number, RetryOptions(from_stage=Stage.POSTPROCESS))
        await harness.work()
        assert seen == [80]

    async def test_from_ocr_everything_is_done_anew(self, harness: EtlHarness):
        number = await failed_in_shaping(harness)
        await harness.put(text="a new document")
        opened = await actions.retry_task(harness.deps, ANNA, number, RetryOptions(from_stage=Stage.OCR))
        assert (opened.run, opened.ocr_run) == (2, 2)
        assert "artifact_mineru_markdown_key" not in opened.metadata
        assert await harness.work() == 2
        assert harness.ocr.calls == 2
        assert b"a new document" in await harness.deps.blobs.get(f"users/5/etl_artifacts/3/{number}/mineru.md")
        assert (await harness.row(opened)).status is Status.COMPLETED

    async def test_from_ocr_nothing_is_told_of_pages_that_were_read_before(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.work()
        again = await actions.retry_task(harness.deps, ANNA, task.id, RetryOptions(from_stage=Stage.OCR, force=True))
        assert again.metadata.keys().isdisjoint({"pages_done", "page_count", "artifact_mineru_markdown_key"})

    async def test_a_remote_task_of_the_run_before_is_not_asked_for_again(self, harness: EtlHarness):
        ocr = RemoteOcr(harness.deps.blobs)
        harness.set(provider=ocr)
        task = await harness.submit()
        await harness.work()
        await actions.retry_task(harness.deps, ANNA, task.id, RetryOptions(from_stage=Stage.OCR, force=True))
        await harness.work()
        assert ocr.begun == ["far-1", "far-2"]

    async def test_without_a_stage_it_begins_after_what_is_done(self, harness: EtlHarness):
        number = await failed_in_shaping(harness)
        assert (await actions.retry_task(harness.deps, ANNA, number, RetryOptions())).ocr_run == 1
        harness.set(provider=OcrThatFails(harness.deps.blobs, Invalid(reason="no"), times=1))
        unread = await harness.submit("b.txt")
        await harness.work()
        assert (await actions.retry_task(harness.deps, ANNA, unread.id, RetryOptions())).ocr_run == 1

    async def test_without_a_stage_no_page_is_read_again_that_was_kept(self, harness: EtlHarness):
        ocr, task, working = await harness.paused(before_page=3)
        await actions.abort_task(harness.deps, ANNA, task.id)
        harness.clock.advance(seconds=1)
        ocr.go_on.set()
        await working
        again = await actions.retry_task(harness.deps, ANNA, task.id, RetryOptions())
        assert (await harness.shown(again)).details.phase is Phase.OCR
        await harness.work()
        assert (await harness.row(again)).status is Status.COMPLETED
        assert ocr.pages_read == {1: 1, 2: 1, 3: 1}
        assert not [key for key in await harness.keys() if "/pages/" in key]

    async def test_from_ocr_no_page_is_used_that_was_kept(self, harness: EtlHarness):
        harness.set(provider=OcrThatWaits(harness.deps.blobs, before_page=9))
        task = await harness.submit()
        await harness.deps.blobs.put(f"users/5/etl_artifacts/3/{task.id}/pages/1/page-1.md", b"of old")
        await actions.cancel_task(harness.deps, ANNA, task.id)
        await actions.retry_task(harness.deps, ANNA, task.id, RetryOptions(from_stage=Stage.OCR))
        await harness.work()
        folder = f"users/5/etl_artifacts/3/{task.id}/"
        assert b"of old" not in await harness.deps.blobs.get(f"{folder}mineru.md")
        assert not [key for key in await harness.keys() if "/pages/" in key]

    async def test_post_processing_without_a_reading_is_refused(self, harness: EtlHarness):
        harness.set(provider=OcrThatFails(harness.deps.blobs, Invalid(reason="no"), times=1))
        task = await harness.submit()
        await harness.work()
        with pytest.raises(OcrResultMissing):
            await actions.retry_task(harness.deps, ANNA, task.id, RetryOptions(from_stage=Stage.POSTPROCESS))

    async def test_a_reading_from_before_a_retry_from_ocr_does_not_count(self, harness: EtlHarness):
        number = await failed_in_shaping(harness)
        opened = await actions.retry_task(harness.deps, ANNA, number, RetryOptions(from_stage=Stage.OCR))
        await actions.cancel_task(harness.deps, ANNA, opened.id)
        with pytest.raises(OcrResultMissing):
            await actions.retry_task(harness.deps, ANNA, number, RetryOptions(from_stage=Stage.POSTPROCESS))

    async def test_a_cancelled_task_can_be_tried_again(self, harness: EtlHarness):
        task = await harness.submit()
        await actions.cancel_task(harness.deps, ANNA, task.id)
        await actions.retry_task(harness.deps, ANNA, task.id, RetryOptions())
        await harness.work()
        assert (await harness.row(task)).status is Status.COMPLETED

    async def test_a_completed_task_only_with_force(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.work()
        with pytest.raises(EtlTaskAlreadyEnded):
            await actions.retry_task(harness.deps, ANNA, task.id, RetryOptions())
        opened = await actions.retry_task(harness.deps, ANNA, task.id, RetryOptions(force=True))
        assert (opened.result, opened.progress) == (None, 0)
        await harness.work()
        assert (await harness.row(task)).status is Status.COMPLETED
        assert (harness.ocr.calls, harness.post_processor.calls) == (1, 2)

    async def test_a_running_task_is_not_tried_again(self, harness: EtlHarness):
        task = await harness.submit()
        with pytest.raises(EtlTaskRunning):
            await actions.retry_task(harness.deps, ANNA, task.id, RetryOptions(force=True))

    @on_all_profiles
    async def test_of_many_retries_at_once_one_opens_a_run(self, harness: EtlHarness):
        number = await failed_in_shaping(harness)
        tries = (actions.retry_task(harness.deps, ANNA, number, RetryOptions()) for _ in range(5))
        answers = await asyncio.gather(*tries, return_exceptions=True)
        opened = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert len(opened) == 1
        assert all(isinstance(answer, EtlTaskRunning) for answer in answers if isinstance(answer, BaseException))
        await harness.work()
        assert (await harness.row(opened[0])).run == 2

    @on_both_profiles
    async def test_a_full_queue_takes_no_retry(self, harness: EtlHarness):
        number = await failed_in_shaping(harness)
        harness.set(queue_size=1)
        await harness.submit("b.txt")
        with pytest.raises(QueueFull):
            await actions.retry_task(harness.deps, ANNA, number, RetryOptions())

    async def test_a_document_that_is_gone_cannot_be_read_again(self, harness: EtlHarness):
        number = await failed_in_shaping(harness)
        await harness.deps.blobs.delete("users/5/raw/3/a.txt")
        with pytest.raises(SourceNotFound):
            await actions.retry_task(harness.deps, ANNA, number, RetryOptions(from_stage=Stage.OCR))

    @on_both_profiles
    async def test_run_state_shows_the_new_run_at_once(self, harness: EtlHarness):
        number = await failed_in_shaping(harness)
        opened = await actions.retry_task(harness.deps, ANNA, number, RetryOptions())
        shown = await harness.shown(opened)
        assert (shown.task.status, shown.task.run, shown.task.error) == (Status.PENDING, 2, None)

"""A document passes both stages: artifacts, run state, retries, timeouts."""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from penstock.adapters.redis.client import RedisUnavailable
from penstock.documents.errors import DocumentUnreadable
from penstock.etl import lifecycle, run_state
from penstock.etl.domain import Phase, Status
from penstock.etl.errors import RunCancelled, RunTakenOver
from penstock.kernel.blobs import BlobsUnavailable
from penstock.kernel.errors import Invalid, Unavailable
from penstock.kernel.queue import JobState
from penstock.kernel.runner import OUTAGE_WAIT_SECONDS
from tests.etl.harness import EtlHarness, on_both_profiles
from tests.etl.test_task_status import RunStateAway
from tests.fakes.ocr import EchoOcr, OcrThatFails, OcrThatTimesOut, OcrThatWaits, PostProcessorThatFails, RemoteOcr
from tests.plans import recorded


class ServiceAway(Unavailable):
    """A remote service is unavailable."""

    code = "SERVICE_AWAY"
    message = "The service does not answer."
    message_zh = "服务没有响应。"
    hint = "Wait."


class TestTheChain:
    @on_both_profiles
    async def test_a_document_becomes_markdown_and_then_a_result(self, harness: EtlHarness):
        task = await harness.submit()
        assert await harness.work() == 2
        row = await harness.row(task)
        assert row.status is Status.COMPLETED
        assert (row.progress, row.error) == (100, None)
        folder = f"users/5/etl_artifacts/3/{task.id}/"
        assert await harness.keys() == [
            f"{folder}grounding-1.json",
            f"{folder}mineru.md",
            f"{folder}pages-1.jsonl",
            f"{folder}reading-1.json",
            f"{folder}result-1.json",
            "users/5/processed/3/a.txt.json",
            "users/5/raw/3/a.txt",
        ]
        assert b"second page" in await harness.deps.blobs.get(f"{folder}mineru.md")

    async def test_the_row_of_a_completed_task_says_where_its_result_is(self, harness: EtlHarness):
        task = await harness.submit()
        job = await harness.claim()
        harness.clock.advance(seconds=4)
        async with harness.db.tx() as tx:
            await harness.deps.queue.release(tx, job)
        await harness.work()
        row = await harness.row(task)
        stored = await harness.deps.blobs.get("users/5/processed/3/a.txt.json")
        assert row.result == {
            "output_path": "users/5/processed/3/a.txt.json",
            "output_size": len(stored),
            "processing_time": 0.0,
            "provider_task_id": "echo-a.txt",
            "mineru_task_id": "echo-a.txt",
            "strategy": "echo",
        }
        assert row.metadata == {
            "s3_key": "users/5/raw/3/a.txt",
            "rule_version": 1,
            "attempt_ocr": 1,
            "attempt_postprocess": 1,
            "artifact_mineru_markdown_key": f"users/5/etl_artifacts/3/{task.id}/mineru.md",
            "provider_task_id": "echo-a.txt",
            "pages_done": 3,
            "page_count": 3,
            "ocr": {"pages": 3, "version": "1"},
            "cache": {"ocr": {"hit": False, "task_id": None, "key": row.metadata["cache"]["ocr"]["key"]}},
        }

    async def test_the_default_rule_gives_a_stable_wrapper_around_the_markdown(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.work()
        value = msgspec.json.decode(await harness.deps.blobs.get("users/5/processed/3/a.txt.json"))
        assert value["markdown_s3_key"] == f"users/5/etl_artifacts/3/{task.id}/mineru.md"
        assert (value["provider_task_id"], value["metadata"]["pages"]) == ("echo-a.txt", 3)

    @on_both_profiles
    async def test_ocr_enqueues_post_processing_and_run_state_tells_of_each_step(self, harness: EtlHarness):
        ocr = OcrThatWaits(harness.deps.blobs, before_page=3)
        harness.set(provider=ocr)
        task = await harness.submit()
        before = await harness.shown(task)
        assert (before.task.status, before.details.phase, before.task.progress) == (Status.PENDING, Phase.OCR, 0)
        await harness.deliver()
        working = harness.begin()
        await ocr.waits.wait()
        reading = await harness.shown(task)
        assert (reading.task.status, reading.details.phase) == (Status.MINERU_PARSING, Phase.OCR)
        assert (reading.details.attempt_ocr, reading.details.attempt_postprocess) == (1, 0)
        assert await harness.status(task) is Status.MINERU_PARSING
        assert (await harness.row(task)).status is Status.PENDING
        ocr.go_on.set()
        await working
        await harness.work()
        after = await harness.shown(task)
        assert (after.task.status, after.details.phase, after.task.progress) == (
            Status.COMPLETED, Phase.FINALIZE, 100,
        )  # fmt: skip
        assert (await harness.job(task, "ocr")).state is JobState.DONE
        assert (await harness.job(task, "postprocess")).state is JobState.DONE

    @on_both_profiles
    async def test_after_ocr_run_state_points_to_the_markdown_and_to_the_next_job(self, harness: EtlHarness):
        task = await harness.submit()
        job = await harness.claim()
        settle = await harness.do(job)
        entry = await harness.deps.runs.get(f"etl:task:{task.id}")
        assert settle is not None
        assert entry is not None
        assert entry.status == "llm_processing"
        assert entry.fields["phase"] == "postprocess"
        assert entry.fields["progress"] == 80
        assert entry.fields["artifact_mineru_markdown_key"] == f"users/5/etl_artifacts/3/{task.id}/mineru.md"
        assert entry.fields["arq_job_id_ocr"] == f"etl:{task.id}:1:ocr"
        assert entry.fields["arq_job_id_postprocess"] == f"etl:{task.id}:1:postprocess"
        assert entry.fields["task_id"] == task.id

    async def test_progress_moves_page_by_page(self, harness: EtlHarness):
        seen: list[int] = []

        class SlowPages(EchoOcr):
            async def before_page(self, number: int) -> None:
                seen.append((await harness.shown(task)).task.progress)
                harness.clock.advance(seconds=1)

        harness.set(provider=SlowPages(harness.deps.blobs))
        task = await harness.submit()
        await harness.work()
        assert seen == [0, 27, 53]

    async def test_quick_pages_are_not_each_put(self, harness: EtlHarness):
        task = await harness.submit(text="\f".join("x" * 500))
        await harness.do(await harness.claim())
        shown = await harness.deps.runs.get(f"etl:task:{task.id}")
        assert shown is not None
        assert shown.order < 5

    @on_both_profiles
    async def test_states_in_between_write_no_row(self, harness: EtlHarness):
        task = await harness.submit()
        job = await harness.claim()
        with recorded(harness.db, "etl_task") as said:
            await harness.do(job)
        assert [words for words, _ in said if not words.startswith("SELECT")] == []
        assert await harness.row(task) == task

    async def test_what_happened_is_recorded_and_told(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.work()
        assert await harness.transitions(task) == ["submit", "complete"]
        assert await harness.events(task) == ["etl_pending", "etl_completed"]

    async def test_a_job_carries_numbers_only(self, harness: EtlHarness):
        task = await harness.submit()
        job = await harness.job(task, "ocr")
        assert (job.kind, job.module, job.payload) == ("etl_ocr_job", "etl", {"task_id": task.id, "run": 1})


class TestFailures:
    async def test_a_stage_is_retried_with_the_modules_own_backoff(self, harness: EtlHarness):
        ocr = OcrThatFails(harness.deps.blobs, ServiceAway(), times=2)
        harness.set(provider=ocr)
        task = await harness.submit()
        await harness.work()
        first = await harness.shown(task)
        assert (first.details.error_code, first.details.error_message) == (
            "SERVICE_AWAY", "The service does not answer.",
        )  # fmt: skip
        assert first.task.status is Status.MINERU_PARSING
        waits = []
        for _ in range(2):
            job = await harness.job(task, "ocr")
            waits.append((job.scheduled_at - harness.clock.now()).total_seconds())
            harness.clock.advance(seconds=waits[-1])
            await harness.work()
        assert waits == [5, 10]
        assert ocr.calls == 3
        assert (await harness.row(task)).status is Status.COMPLETED

    async def test_the_last_attempt_fails_the_task_and_says_in_which_stage(self, harness: EtlHarness):
        ocr = OcrThatFails(harness.deps.blobs, ServiceAway(), times=9)
        harness.set(provider=ocr)
        task = await harness.submit()
        for _ in range(5):
            await harness.work()
            harness.clock.advance(seconds=20)
        row = await harness.row(task)
        assert (row.status, row.error, ocr.calls) == (Status.FAILED, "The service does not answer.", 3)
        assert row.metadata["error_stage"] == "mineru"
        assert (row.metadata["error_code"], row.metadata["hint"]) == ("SERVICE_AWAY", "Wait.")
        assert (await harness.job(task, "ocr")).state is JobState.DONE
        shown = await harness.shown(task)
        assert (shown.task.status, shown.task.error) == (Status.FAILED, row.error)
        assert await harness.transitions(task) == ["submit", "fail"]

    async def test_what_cannot_succeed_is_tried_once(self, harness: EtlHarness):
        error = DocumentUnreadable(filename="a.txt", kind="PDF", reason="it is cut short")
        ocr = OcrThatFails(harness.deps.blobs, error, times=9)
        harness.set(provider=ocr)
        task = await harness.submit()
        await harness.work()
        row = await harness.row(task)
        assert (row.status, ocr.calls) == (Status.FAILED, 1)
        assert row.metadata["error_code"] == "DOCUMENT_UNREADABLE"

    async def test_each_stage_has_its_own_number_of_attempts(self, harness: EtlHarness):
        post_processor = PostProcessorThatFails(ServiceAway(), times=9)
        harness.set(post_processor=post_processor)
        task = await harness.submit()
        for _ in range(4):
            await harness.work()
            harness.clock.advance(seconds=20)
        assert (post_processor.calls, harness.ocr.calls) == (2, 1)
        row = await harness.row(task)
        assert row.metadata["error_stage"] == "postprocess"
        assert (row.metadata["attempt_ocr"], row.metadata["attempt_postprocess"]) == (1, 2)

    async def test_a_failed_post_processing_keeps_what_a_retry_needs(self, harness: EtlHarness):
        harness.set(post_processor=PostProcessorThatFails(Invalid(reason="no"), times=9))
        task = await harness.submit()
        await harness.work()
        row = await harness.row(task)
        assert row.status is Status.FAILED
        assert row.metadata["artifact_mineru_markdown_key"] == f"users/5/etl_artifacts/3/{task.id}/mineru.md"
        assert row.metadata["provider_task_id"] == "echo-a.txt"

    async def test_a_store_that_is_away_costs_no_attempt(self, harness: EtlHarness):
        ocr = OcrThatFails(harness.deps.blobs, BlobsUnavailable(reason="gone"), times=5)
        harness.set(provider=ocr)
        task = await harness.submit()
        for _ in range(6):
            await harness.work()
            harness.clock.advance(seconds=OUTAGE_WAIT_SECONDS)
        assert (await harness.row(task)).status is Status.COMPLETED
        assert (await harness.row(task)).metadata["attempt_ocr"] == 1
        assert "waits" not in (await harness.row(task)).metadata

    async def test_a_store_that_never_comes_back_fails_the_task_in_the_end(self, harness: EtlHarness):
        error = BlobsUnavailable(reason="it answered 403")
        harness.set(provider=OcrThatFails(harness.deps.blobs, error, times=999), max_deferred_seconds=3600)
        task = await harness.submit()
        for _ in range(6):
            await harness.work()
            await harness.reconcile()
            assert (await harness.row(task)).status is Status.PENDING
            harness.clock.advance(seconds=600)
            await harness.lose_run_state(task)
        harness.clock.advance(seconds=1)
        await harness.work()
        row = await harness.row(task)
        assert (row.status, row.error) == (Status.FAILED, str(error))
        assert (row.metadata["error_code"], row.metadata["error_stage"]) == (error.code, "mineru")
        assert lifecycle.WAITS not in row.metadata

    @on_both_profiles
    async def test_run_state_that_never_comes_back_fails_the_task_in_the_end(self, harness: EtlHarness):
        harness.set(max_deferred_seconds=3600)
        task = await harness.submit()
        await harness.deliver()
        harness.deps = replace(harness.deps, runs=RunStateAway())
        for _ in range(2):
            with pytest.raises(RedisUnavailable):
                await harness.do(job := await harness.claim())
            async with harness.db.tx() as tx:
                await harness.deps.queue.put_off(tx, job, wait_seconds=1800, code="X", error="x")
            harness.clock.advance(seconds=1801)
        settle = await harness.do(job := await harness.claim())
        assert settle is not None
        await harness.settle(job, settle)
        row = await harness.row(task)
        assert (row.status, row.metadata["error_code"]) == (Status.FAILED, "REDIS_UNAVAILABLE")

    async def test_progress_begins_the_wait_anew(self, harness: EtlHarness):
        class AwayAfterEachPage(EchoOcr):
            async def before_page(self, number: int) -> None:
                harness.clock.advance(seconds=1)
                if self.calls < 4 and number == self.calls:
                    raise BlobsUnavailable(reason="gone")

        ocr = AwayAfterEachPage(harness.deps.blobs)
        harness.set(provider=ocr, max_deferred_seconds=50)
        task = await harness.submit()
        for _ in range(4):
            await harness.work()
            harness.clock.advance(seconds=40)
        assert ocr.calls == 4
        assert (await harness.row(task)).status is Status.COMPLETED

    async def test_an_error_without_a_name_is_told_without_its_secrets(self, harness: EtlHarness):
        harness.set(
            provider=OcrThatFails(harness.deps.blobs, RuntimeError("password=hunter22"), times=9), ocr_attempts=1
        )
        task = await harness.submit()
        await harness.work()
        row = await harness.row(task)
        assert row.metadata["error_code"] == "INTERNAL"
        assert "hunter22" not in (row.error or "")

    async def test_a_document_that_vanished_fails_the_task(self, harness: EtlHarness):
        task = await harness.submit()
        await harness.deps.blobs.delete("users/5/raw/3/a.txt")
        await harness.work()
        assert (await harness.row(task)).metadata["error_code"] == "SOURCE_NOT_FOUND"

    async def test_a_mode_that_nobody_does_fails_the_task(self, harness: EtlHarness):
        task = await harness.submit()
        harness.deps = replace(harness.deps, post_processors={})
        await harness.work()
        assert (await harness.row(task)).metadata["error_code"] == "MODE_UNKNOWN"


@on_both_profiles
class TestRefusals:
    async def test_a_worker_whose_run_state_a_late_one_took_takes_it_back(self, harness: EtlHarness):
        """A worker that lost its lease writes once more, over the one that holds the lease now."""
        slow = OcrThatWaits(harness.deps.blobs, before_page=2)
        harness.set(provider=slow)
        task = await harness.submit()
        former = await harness.claim()
        await harness.rescue()
        job = await harness.claim()
        working = asyncio.create_task(harness.do(job))
        await slow.waits.wait()
        late = await harness.context(former, task)
        harness.clock.advance(seconds=1)
        slow.go_on.set()
        settle = await working
        shown = await harness.deps.runs.get(f"etl:task:{task.id}")
        assert shown is not None
        assert (shown.status, shown.token) == ("llm_processing", job.token)
        harness.clock.advance(seconds=1)
        with pytest.raises(RunCancelled):
            await late.progress(3, 3)
        assert late.is_lost
        assert await harness.deps.runs.get(f"etl:task:{task.id}") == shown
        await harness.settle(job, settle)
        await harness.work()
        assert (await harness.row(task)).status is Status.COMPLETED

    async def test_a_run_that_cannot_be_taken_up_is_tried_again_while_its_row_is_pending(self, harness: EtlHarness):
        task = await harness.submit()
        await run_state.show(harness.deps, replace(task, status=Status.CANCELLED))
        job = await harness.claim()
        with pytest.raises(RunTakenOver):
            await harness.do(job)


class TestTimeouts:
    async def test_a_stage_that_stands_still_ends_with_task_timeout(self, harness: EtlHarness):
        ocr = OcrThatTimesOut(harness.deps.blobs)
        harness.set(provider=ocr, ocr_attempts=1)
        task = await harness.submit()
        await harness.deliver()
        working = harness.begin()
        await ocr.waits.wait()
        harness.clock.advance(seconds=601)
        await working
        row = await harness.row(task)
        assert (row.status, row.error) == (Status.FAILED, "Task timeout")
        assert row.metadata["error_stage"] == "mineru"

    async def test_a_long_document_does_not_fail_for_being_long(self, harness: EtlHarness):
        class LongPages(EchoOcr):
            async def before_page(self, number: int) -> None:
                harness.clock.advance(seconds=500)

        harness.set(provider=LongPages(harness.deps.blobs), ocr_attempts=1)
        task = await harness.submit()
        await harness.work()
        assert (await harness.row(task)).status is Status.COMPLETED


class TestRemoteProviders:
    @on_both_profiles
    async def test_a_task_id_is_kept_before_the_first_look_and_used_again(self, harness: EtlHarness):
        ocr = RemoteOcr(harness.deps.blobs, breaks=1)
        harness.set(provider=ocr)
        task = await harness.submit()
        await harness.work()
        assert (await harness.row(task)).metadata["provider_task_id"] == "far-1"
        await harness.lose_run_state(task)
        harness.clock.advance(seconds=5)
        await harness.work()
        assert ocr.begun == ["far-1"]
        assert (await harness.row(task)).status is Status.COMPLETED

"""A document goes through both stages, and what is known of it on the way."""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from penstock.adapters.redis.link import RedisAway
from penstock.documents.errors import DocumentUnreadable
from penstock.etl import moves, runs
from penstock.etl.domain import Phase, Status
from penstock.etl.errors import RunTakenOver
from penstock.etl.runs import Trail
from penstock.kernel.blobs import BlobsUnavailable
from penstock.kernel.errors import Invalid, Unavailable
from penstock.kernel.queue import JobState
from penstock.kernel.runner import OUTAGE_WAIT_SECONDS
from tests.etl.test_track import RunStateAway
from tests.etl.workshop import Workshop
from tests.fakes.ocr import EchoOcr, OcrFarAway, OcrThatFails, OcrThatTimesOut, OcrThatWaits, ShaperThatFails
from tests.plans import recorded


class ServiceAway(Unavailable):
    """A service far away does not answer."""

    code = "SERVICE_AWAY"
    message = "The service does not answer."
    message_zh = "服务没有响应。"
    hint = "Wait."


class TestTheChain:
    async def test_a_document_becomes_markdown_and_then_a_result(self, shop: Workshop):
        task = await shop.submit()
        assert await shop.work() == 2
        row = await shop.row(task)
        assert row.status is Status.COMPLETED
        assert (row.progress, row.error) == (100, None)
        folder = f"users/5/etl_artifacts/3/{task.id}/"
        assert await shop.keys() == [
            f"{folder}grounding-1.json",
            f"{folder}mineru.md",
            f"{folder}pages-1.jsonl",
            f"{folder}reading-1.json",
            f"{folder}result-1.json",
            "users/5/processed/3/a.txt.json",
            "users/5/raw/3/a.txt",
        ]
        assert b"second page" in await shop.tools.blobs.get(f"{folder}mineru.md")

    async def test_the_row_of_a_completed_task_says_where_its_result_is(self, shop: Workshop):
        task = await shop.submit()
        job = await shop.claim()
        shop.clock.advance(seconds=4)
        async with shop.db.tx() as tx:
            await shop.tools.queue.hand_back(tx, job)
        await shop.work()
        row = await shop.row(task)
        stored = await shop.tools.blobs.get("users/5/processed/3/a.txt.json")
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

    async def test_the_default_rule_gives_a_stable_wrapper_around_the_markdown(self, shop: Workshop):
        task = await shop.submit()
        await shop.work()
        value = msgspec.json.decode(await shop.tools.blobs.get("users/5/processed/3/a.txt.json"))
        assert value["markdown_s3_key"] == f"users/5/etl_artifacts/3/{task.id}/mineru.md"
        assert (value["provider_task_id"], value["metadata"]["pages"]) == ("echo-a.txt", 3)

    async def test_ocr_enqueues_post_processing_and_run_state_tells_of_each_step(self, shop: Workshop):
        ocr = OcrThatWaits(shop.tools.blobs, before_page=3)
        shop.set(provider=ocr)
        task = await shop.submit()
        before = await shop.shown(task)
        assert (before.task.status, before.course.phase, before.task.progress) == (Status.PENDING, Phase.OCR, 0)
        await shop.deliver()
        working = shop.begin()
        await ocr.waits.wait()
        reading = await shop.shown(task)
        assert (reading.task.status, reading.course.phase) == (Status.MINERU_PARSING, Phase.OCR)
        assert (reading.course.attempt_ocr, reading.course.attempt_postprocess) == (1, 0)
        assert await shop.status(task) is Status.MINERU_PARSING
        assert (await shop.row(task)).status is Status.PENDING
        ocr.go_on.set()
        await working
        await shop.work()
        after = await shop.shown(task)
        assert (after.task.status, after.course.phase, after.task.progress) == (
            Status.COMPLETED, Phase.FINALIZE, 100,
        )  # fmt: skip
        assert (await shop.job(task, "ocr")).state is JobState.DONE
        assert (await shop.job(task, "postprocess")).state is JobState.DONE

    async def test_after_ocr_run_state_points_to_the_markdown_and_to_the_next_job(self, shop: Workshop):
        task = await shop.submit()
        job = await shop.claim()
        settle = await shop.do(job)
        entry = await shop.tools.runs.get(f"etl:task:{task.id}")
        assert settle is not None
        assert entry is not None
        assert entry.status == "llm_processing"
        assert entry.fields["phase"] == "postprocess"
        assert entry.fields["progress"] == 80
        assert entry.fields["artifact_mineru_markdown_key"] == f"users/5/etl_artifacts/3/{task.id}/mineru.md"
        assert entry.fields["arq_job_id_ocr"] == f"etl:{task.id}:1:ocr"
        assert entry.fields["arq_job_id_postprocess"] == f"etl:{task.id}:1:postprocess"
        assert entry.fields["task_id"] == task.id

    async def test_progress_moves_page_by_page(self, shop: Workshop):
        seen: list[int] = []

        class SlowPages(EchoOcr):
            async def look_at(self, number: int) -> None:
                seen.append((await shop.shown(task)).task.progress)
                shop.clock.advance(seconds=1)

        shop.set(provider=SlowPages(shop.tools.blobs))
        task = await shop.submit()
        await shop.work()
        assert seen == [0, 27, 53]

    async def test_quick_pages_are_not_each_put(self, shop: Workshop):
        task = await shop.submit(text="\f".join("x" * 500))
        await shop.do(await shop.claim())
        course = (await shop.shown(task)).course
        assert course.step < 5

    async def test_states_in_between_write_no_row(self, shop: Workshop):
        task = await shop.submit()
        job = await shop.claim()
        with recorded(shop.db, "etl_task") as said:
            await shop.do(job)
        assert [words for words, _ in said if not words.startswith("SELECT")] == []
        assert await shop.row(task) == task

    async def test_what_happened_is_recorded_and_told(self, shop: Workshop):
        task = await shop.submit()
        await shop.work()
        assert await shop.life(task) == ["submit", "complete"]
        assert await shop.told(task) == ["etl_pending", "etl_completed"]

    async def test_a_job_carries_numbers_only(self, shop: Workshop):
        task = await shop.submit()
        job = await shop.job(task, "ocr")
        assert (job.kind, job.module, job.payload) == ("etl_ocr_job", "etl", {"task_id": task.id, "run": 1})


class TestFailures:
    async def test_a_stage_is_tried_again_with_the_rooms_own_waits(self, shop: Workshop):
        ocr = OcrThatFails(shop.tools.blobs, ServiceAway(), times=2)
        shop.set(provider=ocr)
        task = await shop.submit()
        await shop.work()
        first = await shop.shown(task)
        assert (first.course.error_code, first.course.error_message) == (
            "SERVICE_AWAY", "The service does not answer.",
        )  # fmt: skip
        assert first.task.status is Status.MINERU_PARSING
        waits = []
        for _ in range(2):
            job = await shop.job(task, "ocr")
            waits.append((job.scheduled_at - shop.clock.now()).total_seconds())
            shop.clock.advance(seconds=waits[-1])
            await shop.work()
        assert waits == [5, 10]
        assert ocr.calls == 3
        assert (await shop.row(task)).status is Status.COMPLETED

    async def test_the_last_attempt_fails_the_task_and_says_in_which_stage(self, shop: Workshop):
        ocr = OcrThatFails(shop.tools.blobs, ServiceAway(), times=9)
        shop.set(provider=ocr)
        task = await shop.submit()
        for _ in range(5):
            await shop.work()
            shop.clock.advance(seconds=20)
        row = await shop.row(task)
        assert (row.status, row.error, ocr.calls) == (Status.FAILED, "The service does not answer.", 3)
        assert row.metadata["error_stage"] == "mineru"
        assert (row.metadata["error_code"], row.metadata["hint"]) == ("SERVICE_AWAY", "Wait.")
        assert (await shop.job(task, "ocr")).state is JobState.DONE
        shown = await shop.shown(task)
        assert (shown.task.status, shown.task.error) == (Status.FAILED, row.error)
        assert await shop.life(task) == ["submit", "fail"]

    async def test_what_cannot_succeed_is_tried_once(self, shop: Workshop):
        error = DocumentUnreadable(filename="a.txt", kind="PDF", reason="it is cut short")
        ocr = OcrThatFails(shop.tools.blobs, error, times=9)
        shop.set(provider=ocr)
        task = await shop.submit()
        await shop.work()
        row = await shop.row(task)
        assert (row.status, ocr.calls) == (Status.FAILED, 1)
        assert row.metadata["error_code"] == "DOCUMENT_UNREADABLE"

    async def test_each_stage_has_its_own_number_of_attempts(self, shop: Workshop):
        shaper = ShaperThatFails(ServiceAway(), times=9)
        shop.set(shaper=shaper)
        task = await shop.submit()
        for _ in range(4):
            await shop.work()
            shop.clock.advance(seconds=20)
        assert (shaper.calls, shop.ocr.calls) == (2, 1)
        row = await shop.row(task)
        assert row.metadata["error_stage"] == "postprocess"
        assert (row.metadata["attempt_ocr"], row.metadata["attempt_postprocess"]) == (1, 2)

    async def test_a_failed_post_processing_keeps_what_a_retry_needs(self, shop: Workshop):
        shop.set(shaper=ShaperThatFails(Invalid(reason="no"), times=9))
        task = await shop.submit()
        await shop.work()
        row = await shop.row(task)
        assert row.status is Status.FAILED
        assert row.metadata["artifact_mineru_markdown_key"] == f"users/5/etl_artifacts/3/{task.id}/mineru.md"
        assert row.metadata["provider_task_id"] == "echo-a.txt"

    async def test_a_store_that_is_away_costs_no_attempt(self, shop: Workshop):
        ocr = OcrThatFails(shop.tools.blobs, BlobsUnavailable(reason="gone"), times=5)
        shop.set(provider=ocr)
        task = await shop.submit()
        for _ in range(6):
            await shop.work()
            shop.clock.advance(seconds=OUTAGE_WAIT_SECONDS)
        assert (await shop.row(task)).status is Status.COMPLETED
        assert (await shop.row(task)).metadata["attempt_ocr"] == 1
        assert "waits" not in (await shop.row(task)).metadata

    async def test_a_store_that_never_comes_back_fails_the_task_in_the_end(self, shop: Workshop):
        error = BlobsUnavailable(reason="it answered 403")
        shop.set(provider=OcrThatFails(shop.tools.blobs, error, times=999), most_patience_seconds=3600)
        task = await shop.submit()
        for _ in range(6):
            await shop.work()
            await shop.reconcile()
            assert (await shop.row(task)).status is Status.PENDING
            shop.clock.advance(seconds=600)
            await shop.lose_run_state(task)
        shop.clock.advance(seconds=1)
        await shop.work()
        row = await shop.row(task)
        assert (row.status, row.error) == (Status.FAILED, str(error))
        assert (row.metadata["error_code"], row.metadata["error_stage"]) == (error.code, "mineru")
        assert moves.WAITS not in row.metadata

    async def test_run_state_that_never_comes_back_fails_the_task_in_the_end(self, shop: Workshop):
        shop.set(most_patience_seconds=3600)
        task = await shop.submit()
        await shop.deliver()
        shop.tools = replace(shop.tools, runs=RunStateAway())
        for _ in range(2):
            with pytest.raises(RedisAway):
                await shop.do(job := await shop.claim())
            async with shop.db.tx() as tx:
                await shop.tools.queue.put_off(tx, job, wait_seconds=1800, code="X", error="x")
            shop.clock.advance(seconds=1801)
        settle = await shop.do(job := await shop.claim())
        assert settle is not None
        await shop.settle(job, settle)
        row = await shop.row(task)
        assert (row.status, row.metadata["error_code"]) == (Status.FAILED, "REDIS_UNAVAILABLE")

    async def test_progress_begins_the_wait_anew(self, shop: Workshop):
        class AwayAfterEachPage(EchoOcr):
            async def look_at(self, number: int) -> None:
                shop.clock.advance(seconds=1)
                if self.calls < 4 and number == self.calls:
                    raise BlobsUnavailable(reason="gone")

        ocr = AwayAfterEachPage(shop.tools.blobs)
        shop.set(provider=ocr, most_patience_seconds=50)
        task = await shop.submit()
        for _ in range(4):
            await shop.work()
            shop.clock.advance(seconds=40)
        assert ocr.calls == 4
        assert (await shop.row(task)).status is Status.COMPLETED

    async def test_an_error_without_a_name_is_told_without_its_secrets(self, shop: Workshop):
        shop.set(provider=OcrThatFails(shop.tools.blobs, RuntimeError("password=hunter22"), times=9), ocr_attempts=1)
        task = await shop.submit()
        await shop.work()
        row = await shop.row(task)
        assert row.metadata["error_code"] == "INTERNAL"
        assert "hunter22" not in (row.error or "")

    async def test_a_document_that_vanished_fails_the_task(self, shop: Workshop):
        task = await shop.submit()
        await shop.tools.blobs.delete("users/5/raw/3/a.txt")
        await shop.work()
        assert (await shop.row(task)).metadata["error_code"] == "SOURCE_NOT_FOUND"

    async def test_a_mode_that_nobody_does_fails_the_task(self, shop: Workshop):
        task = await shop.submit()
        shop.tools = replace(shop.tools, shapers={})
        await shop.work()
        assert (await shop.row(task)).metadata["error_code"] == "MODE_UNKNOWN"


class TestRefusals:
    async def test_a_worker_whose_run_state_somebody_else_took_tries_again(self, shop: Workshop):
        """A worker that lost its lease, and came back after a flush, stands before the one that has the run now."""
        slow = OcrThatWaits(shop.tools.blobs, before_page=2)
        shop.set(provider=slow)
        task = await shop.submit()
        job = await shop.claim()
        working = asyncio.create_task(shop.do(job))
        await slow.waits.wait()
        await Trail.open(shop.tools, task, Phase.OCR, attempt=1)
        shop.clock.advance(seconds=1)
        slow.go_on.set()
        with pytest.raises(RunTakenOver):
            await working
        async with shop.db.tx() as tx:
            await shop.tools.queue.put_off(tx, job, wait_seconds=1, code="X", error="x")
        shop.clock.advance(seconds=1)
        await shop.work()
        assert (await shop.row(task)).status is Status.COMPLETED

    async def test_a_run_that_cannot_be_taken_up_is_tried_again_while_its_row_is_pending(self, shop: Workshop):
        task = await shop.submit()
        await runs.show(shop.tools, replace(task, status=Status.CANCELLED))
        job = await shop.claim()
        with pytest.raises(RunTakenOver):
            await shop.do(job)


class TestTimeouts:
    async def test_a_stage_that_stands_still_ends_with_task_timeout(self, shop: Workshop):
        ocr = OcrThatTimesOut(shop.tools.blobs)
        shop.set(provider=ocr, ocr_attempts=1)
        task = await shop.submit()
        await shop.deliver()
        working = shop.begin()
        await ocr.waits.wait()
        shop.clock.advance(seconds=601)
        await working
        row = await shop.row(task)
        assert (row.status, row.error) == (Status.FAILED, "Task timeout")
        assert row.metadata["error_stage"] == "mineru"

    async def test_a_long_document_does_not_fail_for_being_long(self, shop: Workshop):
        class LongPages(EchoOcr):
            async def look_at(self, number: int) -> None:
                shop.clock.advance(seconds=500)

        shop.set(provider=LongPages(shop.tools.blobs), ocr_attempts=1)
        task = await shop.submit()
        await shop.work()
        assert (await shop.row(task)).status is Status.COMPLETED


class TestRemoteProviders:
    async def test_a_task_id_is_kept_before_the_first_look_and_used_again(self, shop: Workshop):
        ocr = OcrFarAway(shop.tools.blobs, breaks=1)
        shop.set(provider=ocr)
        task = await shop.submit()
        await shop.work()
        assert (await shop.row(task)).metadata["provider_task_id"] == "far-1"
        await shop.lose_run_state(task)
        shop.clock.advance(seconds=5)
        await shop.work()
        assert ocr.begun == ["far-1"]
        assert (await shop.row(task)).status is Status.COMPLETED

"""Tasks are taken back and tried again, and whoever comes late is refused."""

import asyncio

import pytest

from penstock.documents.ocr.provider import Desk, Reading
from penstock.documents.postprocessor import Shaped, ShapeRule
from penstock.etl import papers, steer, track
from penstock.etl.domain import Phase, Stage, Status
from penstock.etl.errors import EtlTaskNotFound, EtlTaskOver, EtlTaskRunning, NoReading, QueueFull, SourceNotFound
from penstock.etl.steer import Again
from penstock.kernel.errors import Invalid, Unavailable
from penstock.kernel.leases import LeaseLost
from penstock.kernel.queue import JobState
from tests.etl.workshop import ANNA, BERT, ROOT, Workshop
from tests.fakes.ocr import EchoShaper, OcrFarAway, OcrThatFails, OcrThatWaits, ShaperThatFails

everywhere = pytest.mark.parametrize("grounds", ["sqlite", "postgres", "scale"], indirect=True)


async def failed_in_shaping(shop: Workshop) -> int:
    """A task whose post-processing failed for good; whoever shapes next succeeds."""
    shop.set(shaper=ShaperThatFails(Invalid(reason="no"), times=1))
    task = await shop.submit()
    await shop.work()
    assert (await shop.row(task)).metadata["error_stage"] == "postprocess"
    return task.id


class TestCancel:
    @everywhere
    async def test_a_waiting_task_is_cancelled_with_its_job(self, shop: Workshop):
        task = await shop.submit()
        cancelled = await steer.cancel(shop.tools, ANNA, task.id)
        assert cancelled.status is Status.CANCELLED
        assert (await shop.row(task)).status is Status.CANCELLED
        assert (await shop.shown(task)).task.status is Status.CANCELLED
        assert (await shop.job(task, "ocr")).state is JobState.CANCELLED
        assert await shop.work() == 0
        assert shop.ocr.calls == 0
        assert await shop.life(task) == ["submit", "cancel"]
        assert await shop.told(task) == ["etl_pending", "etl_cancelled"]

    async def test_a_running_task_is_not_cancelled(self, shop: Workshop):
        ocr, task, working = await shop.caught(before_page=2)
        with pytest.raises(EtlTaskRunning, match="mineru_parsing"):
            await steer.cancel(shop.tools, ANNA, task.id)
        ocr.go_on.set()
        await working
        await shop.work()
        assert (await shop.row(task)).status is Status.COMPLETED

    async def test_a_task_that_waits_for_post_processing_is_not_cancelled(self, shop: Workshop):
        task = await shop.submit()
        job = await shop.claim()
        settle = await shop.do(job)
        assert settle is not None
        await shop.settle(job, settle)
        with pytest.raises(EtlTaskRunning, match="llm_processing"):
            await steer.cancel(shop.tools, ANNA, task.id)

    async def test_a_task_that_waits_for_its_next_attempt_is_not_cancelled(self, shop: Workshop):
        shop.set(provider=OcrThatFails(shop.tools.blobs, Unavailable(reason="later"), times=1))
        task = await shop.submit()
        await shop.work()
        with pytest.raises(EtlTaskRunning, match="mineru_parsing"):
            await steer.cancel(shop.tools, ANNA, task.id)

    async def test_a_task_whose_job_was_just_claimed_is_not_cancelled(self, shop: Workshop):
        task = await shop.submit()
        await shop.claim()
        with pytest.raises(EtlTaskRunning):
            await steer.cancel(shop.tools, ANNA, task.id)
        assert (await shop.row(task)).status is Status.PENDING

    @everywhere
    async def test_of_a_cancel_and_a_claim_at_once_exactly_one_wins(self, shop: Workshop):
        for number in range(8):
            task = await shop.submit(f"{number}.txt")
            await shop.deliver()
            cancelling = asyncio.create_task(steer.cancel(shop.tools, ANNA, task.id))
            working = shop.begin()
            refused = (await asyncio.gather(cancelling, return_exceptions=True))[0]
            await working
            await shop.work()
            row = await shop.row(task)
            if isinstance(refused, BaseException):
                assert isinstance(refused, EtlTaskRunning | EtlTaskOver), refused
                assert row.status is Status.COMPLETED
            else:
                assert row.status is Status.CANCELLED
                assert shop.ocr.pages_read.total() == 0
            shop.ocr.pages_read.clear()

    async def test_what_is_over_is_not_cancelled(self, shop: Workshop):
        task = await shop.submit()
        await shop.work()
        for verb in (steer.cancel, steer.abort):
            with pytest.raises(EtlTaskOver, match="completed"):
                await verb(shop.tools, ANNA, task.id)

    async def test_somebody_elses_task_is_not_found(self, shop: Workshop):
        task = await shop.submit()
        for verb in (steer.cancel, steer.abort):
            with pytest.raises(EtlTaskNotFound):
                await verb(shop.tools, BERT, task.id)
        with pytest.raises(EtlTaskNotFound):
            await steer.retry(shop.tools, BERT, task.id, Again())
        assert (await steer.cancel(shop.tools, ROOT, task.id)).status is Status.CANCELLED


class TestAbort:
    @everywhere
    async def test_a_worker_stops_at_its_next_page_and_overwrites_nothing(self, shop: Workshop):
        ocr, task, working = await shop.caught(before_page=2)
        aborted = await steer.abort(shop.tools, ANNA, task.id)
        assert aborted.status is Status.CANCELLED
        shop.clock.advance(seconds=1)
        ocr.go_on.set()
        await working
        await shop.work()
        assert ocr.pages_read == {1: 1, 2: 1}
        assert (await shop.row(task)).status is Status.CANCELLED
        assert await shop.status(task) is Status.CANCELLED
        assert "users/5/processed/3/a.txt.json" not in await shop.keys()
        assert (await shop.job(task, "ocr")).state is JobState.DONE

    async def test_a_worker_that_is_done_is_refused_when_it_settles(self, shop: Workshop):
        task = await shop.submit()
        job = await shop.claim()
        settle = await shop.do(job)
        assert settle is not None
        await steer.abort(shop.tools, ANNA, task.id)
        await shop.settle(job, settle)
        assert await shop.work() == 0
        assert (await shop.row(task)).status is Status.CANCELLED

    async def test_a_result_that_comes_late_does_not_complete_a_cancelled_task(self, shop: Workshop):
        task = await shop.submit()
        job = await shop.claim()
        settle = await shop.do(job)
        assert settle is not None
        await shop.settle(job, settle)
        shaping = await shop.claim()
        late = await shop.do(shaping)
        assert late is not None
        await steer.abort(shop.tools, ANNA, task.id)
        await shop.settle(shaping, late)
        await shop.deliver()
        assert (await shop.row(task)).status is Status.CANCELLED
        assert (await shop.row(task)).result is None
        assert await shop.status(task) is Status.CANCELLED

    async def test_what_ocr_made_is_kept_for_a_retry(self, shop: Workshop):
        task = await shop.submit()
        await shop.do(await shop.claim())
        aborted = await steer.abort(shop.tools, ANNA, task.id)
        assert aborted.metadata["artifact_mineru_markdown_key"].endswith("/mineru.md")
        opened = await steer.retry(shop.tools, ANNA, task.id, Again())
        await shop.work()
        assert (await shop.row(opened)).status is Status.COMPLETED
        assert shop.ocr.calls == 1


class TestLateWorkers:
    async def test_a_worker_that_lost_its_lease_cannot_settle_nor_turn_run_state_back(self, shop: Workshop):
        slow = OcrThatWaits(shop.tools.blobs, before_page=2)
        shop.set(provider=slow)
        task = await shop.submit()
        job = await shop.claim()
        late = asyncio.create_task(shop.do(job))
        await slow.waits.wait()
        await shop.rescue()
        shop.set(provider=shop.ocr)
        await shop.work()
        assert (await shop.row(task)).status is Status.COMPLETED
        slow.go_on.set()
        assert await late is None
        assert (await shop.shown(task)).task.status is Status.COMPLETED
        with pytest.raises(LeaseLost):
            async with shop.db.tx() as tx:
                await shop.tools.queue.finish(tx, job)

    async def test_a_worker_of_an_earlier_run_does_nothing_to_the_next(self, shop: Workshop):
        slow = OcrThatWaits(shop.tools.blobs, before_page=2)
        shop.set(provider=slow)
        task = await shop.submit()
        job = await shop.claim()
        late = asyncio.create_task(shop.do(job))
        await slow.waits.wait()
        await steer.abort(shop.tools, ANNA, task.id)
        await steer.retry(shop.tools, ANNA, task.id, Again(from_stage=Stage.OCR))
        shop.set(provider=shop.ocr)
        await shop.put(text="another\fdocument\fthree")
        shop.clock.advance(seconds=1)
        slow.go_on.set()
        assert await late is None
        await shop.work()
        markdown = await shop.tools.blobs.get(f"users/5/etl_artifacts/3/{task.id}/mineru.md")
        assert b"another" in markdown
        assert b"first page" not in markdown

    async def test_a_reading_that_comes_late_does_not_take_the_place_of_the_next_runs(self, shop: Workshop):
        task = await shop.submit()
        await shop.work()
        first = await shop.row(task)
        late = await papers.find_reading(shop.tools.blobs, first)
        assert late is not None
        await steer.retry(shop.tools, ANNA, task.id, Again(from_stage=Stage.OCR, force=True))
        await shop.deliver()
        job = await shop.claim()
        settle = await shop.do(job)
        assert settle is not None
        await shop.settle(job, settle)
        await shop.tools.blobs.put(late.pages_key, b"")
        await papers.keep_reading(shop.tools.blobs, first, late)
        await papers.keep_shaping(shop.tools.blobs, first, Shaped(value={"old": 1}, strategy="late"))
        await shop.work()
        assert (await shop.row(task)).status is Status.COMPLETED
        result = await shop.tools.blobs.get(await track.key_of(shop.tools, ANNA, task.id, "result"))
        assert b"old" not in result
        assert result == await shop.tools.blobs.get("users/5/processed/3/a.txt.json")

    async def test_what_earlier_runs_have_left_is_deleted(self, shop: Workshop):
        task = await shop.submit()
        await shop.work()
        await steer.retry(shop.tools, ANNA, task.id, Again(from_stage=Stage.OCR, force=True))
        await shop.tools.blobs.put(f"users/5/etl_artifacts/3/{task.id}/pages/1/page-1.md", b"late")
        await shop.work()
        folder = f"users/5/etl_artifacts/3/{task.id}/"
        names = {key.removeprefix(folder) for key in await shop.keys(folder)}
        assert names == {"grounding-2.json", "mineru.md", "pages-2.jsonl", "reading-2.json", "result-2.json"}


class TestRetry:
    @everywhere
    async def test_from_post_processing_nothing_is_read_again(self, shop: Workshop):
        number = await failed_in_shaping(shop)
        opened = await steer.retry(shop.tools, ANNA, number, Again(from_stage=Stage.POSTPROCESS))
        assert (opened.status, opened.run, opened.ocr_run) == (Status.PENDING, 2, 1)
        assert "error_stage" not in opened.metadata
        assert opened.metadata["artifact_mineru_markdown_key"].endswith("/mineru.md")
        assert await shop.work() == 1
        assert shop.ocr.calls == 1
        row = await shop.row(opened)
        assert (row.status, row.error) == (Status.COMPLETED, None)
        assert await shop.life(opened) == ["submit", "fail", "retry", "complete"]
        assert (await shop.job(opened, "postprocess", run=2)).state is JobState.DONE

    async def test_from_post_processing_it_is_shown_that_the_document_is_read(self, shop: Workshop):
        number = await failed_in_shaping(shop)
        seen: list[int] = []

        class ShaperThatLooks(EchoShaper):
            async def shape(self, filename: str, reading: Reading, rule: ShapeRule, desk: Desk) -> Shaped:
                seen.append((await shop.shown(opened)).task.progress)
                return await super().shape(filename, reading, rule, desk)

        shop.set(shaper=ShaperThatLooks())
        opened = await steer.retry(shop.tools, ANNA, number, Again(from_stage=Stage.POSTPROCESS))
        await shop.work()
        assert seen == [80]

    async def test_from_ocr_everything_is_done_anew(self, shop: Workshop):
        number = await failed_in_shaping(shop)
        await shop.put(text="a new document")
        opened = await steer.retry(shop.tools, ANNA, number, Again(from_stage=Stage.OCR))
        assert (opened.run, opened.ocr_run) == (2, 2)
        assert "artifact_mineru_markdown_key" not in opened.metadata
        assert await shop.work() == 2
        assert shop.ocr.calls == 2
        assert b"a new document" in await shop.tools.blobs.get(f"users/5/etl_artifacts/3/{number}/mineru.md")
        assert (await shop.row(opened)).status is Status.COMPLETED

    async def test_from_ocr_nothing_is_told_of_pages_that_were_read_before(self, shop: Workshop):
        task = await shop.submit()
        await shop.work()
        again = await steer.retry(shop.tools, ANNA, task.id, Again(from_stage=Stage.OCR, force=True))
        assert again.metadata.keys().isdisjoint({"pages_done", "page_count", "artifact_mineru_markdown_key"})

    async def test_a_remote_task_of_the_run_before_is_not_asked_for_again(self, shop: Workshop):
        ocr = OcrFarAway(shop.tools.blobs)
        shop.set(provider=ocr)
        task = await shop.submit()
        await shop.work()
        await steer.retry(shop.tools, ANNA, task.id, Again(from_stage=Stage.OCR, force=True))
        await shop.work()
        assert ocr.begun == ["far-1", "far-2"]

    async def test_without_a_stage_it_begins_after_what_is_done(self, shop: Workshop):
        number = await failed_in_shaping(shop)
        assert (await steer.retry(shop.tools, ANNA, number, Again())).ocr_run == 1
        shop.set(provider=OcrThatFails(shop.tools.blobs, Invalid(reason="no"), times=1))
        unread = await shop.submit("b.txt")
        await shop.work()
        assert (await steer.retry(shop.tools, ANNA, unread.id, Again())).ocr_run == 1

    async def test_without_a_stage_no_page_is_read_again_that_was_kept(self, shop: Workshop):
        ocr, task, working = await shop.caught(before_page=3)
        await steer.abort(shop.tools, ANNA, task.id)
        shop.clock.advance(seconds=1)
        ocr.go_on.set()
        await working
        again = await steer.retry(shop.tools, ANNA, task.id, Again())
        assert (await shop.shown(again)).course.phase is Phase.OCR
        await shop.work()
        assert (await shop.row(again)).status is Status.COMPLETED
        assert ocr.pages_read == {1: 1, 2: 1, 3: 1}
        assert not [key for key in await shop.keys() if "/pages/" in key]

    async def test_from_ocr_no_page_is_used_that_was_kept(self, shop: Workshop):
        shop.set(provider=OcrThatWaits(shop.tools.blobs, before_page=9))
        task = await shop.submit()
        await shop.tools.blobs.put(f"users/5/etl_artifacts/3/{task.id}/pages/1/page-1.md", b"of old")
        await steer.cancel(shop.tools, ANNA, task.id)
        await steer.retry(shop.tools, ANNA, task.id, Again(from_stage=Stage.OCR))
        await shop.work()
        folder = f"users/5/etl_artifacts/3/{task.id}/"
        assert b"of old" not in await shop.tools.blobs.get(f"{folder}mineru.md")
        assert not [key for key in await shop.keys() if "/pages/" in key]

    async def test_post_processing_without_a_reading_is_refused(self, shop: Workshop):
        shop.set(provider=OcrThatFails(shop.tools.blobs, Invalid(reason="no"), times=1))
        task = await shop.submit()
        await shop.work()
        with pytest.raises(NoReading):
            await steer.retry(shop.tools, ANNA, task.id, Again(from_stage=Stage.POSTPROCESS))

    async def test_a_reading_from_before_a_retry_from_ocr_does_not_count(self, shop: Workshop):
        number = await failed_in_shaping(shop)
        opened = await steer.retry(shop.tools, ANNA, number, Again(from_stage=Stage.OCR))
        await steer.cancel(shop.tools, ANNA, opened.id)
        with pytest.raises(NoReading):
            await steer.retry(shop.tools, ANNA, number, Again(from_stage=Stage.POSTPROCESS))

    async def test_a_cancelled_task_can_be_tried_again(self, shop: Workshop):
        task = await shop.submit()
        await steer.cancel(shop.tools, ANNA, task.id)
        await steer.retry(shop.tools, ANNA, task.id, Again())
        await shop.work()
        assert (await shop.row(task)).status is Status.COMPLETED

    async def test_a_completed_task_only_with_force(self, shop: Workshop):
        task = await shop.submit()
        await shop.work()
        with pytest.raises(EtlTaskOver):
            await steer.retry(shop.tools, ANNA, task.id, Again())
        opened = await steer.retry(shop.tools, ANNA, task.id, Again(force=True))
        assert (opened.result, opened.progress) == (None, 0)
        await shop.work()
        assert (await shop.row(task)).status is Status.COMPLETED
        assert (shop.ocr.calls, shop.shaper.calls) == (1, 2)

    async def test_a_running_task_is_not_tried_again(self, shop: Workshop):
        task = await shop.submit()
        with pytest.raises(EtlTaskRunning):
            await steer.retry(shop.tools, ANNA, task.id, Again(force=True))

    @everywhere
    async def test_of_many_retries_at_once_one_opens_a_run(self, shop: Workshop):
        number = await failed_in_shaping(shop)
        tries = (steer.retry(shop.tools, ANNA, number, Again()) for _ in range(5))
        answers = await asyncio.gather(*tries, return_exceptions=True)
        opened = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert len(opened) == 1
        assert all(isinstance(answer, EtlTaskRunning) for answer in answers if isinstance(answer, BaseException))
        await shop.work()
        assert (await shop.row(opened[0])).run == 2

    async def test_a_full_queue_takes_no_retry(self, shop: Workshop):
        number = await failed_in_shaping(shop)
        shop.set(queue_size=1)
        await shop.submit("b.txt")
        with pytest.raises(QueueFull):
            await steer.retry(shop.tools, ANNA, number, Again())

    async def test_a_document_that_is_gone_cannot_be_read_again(self, shop: Workshop):
        number = await failed_in_shaping(shop)
        await shop.tools.blobs.delete("users/5/raw/3/a.txt")
        with pytest.raises(SourceNotFound):
            await steer.retry(shop.tools, ANNA, number, Again(from_stage=Stage.OCR))

    async def test_run_state_shows_the_new_run_at_once(self, shop: Workshop):
        number = await failed_in_shaping(shop)
        opened = await steer.retry(shop.tools, ANNA, number, Again())
        shown = await shop.shown(opened)
        assert (shown.task.status, shown.task.run, shown.task.error) == (Status.PENDING, 2, None)

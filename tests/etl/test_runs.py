"""Run state of a run only moves forward, and only by the worker that started the latest turn."""

from dataclasses import replace

import pytest

from penstock.documents.ocr.provider import Desk, Reading
from penstock.documents.postprocessor import ExtractionResult, ExtractionRule
from penstock.etl import runs
from penstock.etl.desk import StageDesk
from penstock.etl.domain import Phase, Status
from penstock.etl.errors import RunCancelled
from penstock.etl.runs import RANKS, Course, Standing, Trail, job_id
from tests.etl.harness import EtlHarness, on_both_profiles
from tests.fakes.ocr import EchoShaper

POINTERS = ("artifact_mineru_markdown_key", "provider_task_id", "page_count", "pages_done", "ocr", "cache")


@pytest.mark.parametrize("profile", ["scale"], indirect=True)
async def test_other_programs_can_read_the_hash_of_a_running_task(harness: EtlHarness):
    ocr, task, working = await harness.paused(before_page=2)
    assert harness.link is not None
    found = {
        name.decode(): value.decode()
        for name, value in (await harness.link.execute("HGETALL", f"etl:task:{task.id}")).items()
    }
    said = {"status": "mineru_parsing", "phase": "ocr", "progress": "0", "attempt_ocr": "1"}
    assert found.items() >= {**said, "arq_job_id_ocr": f"etl:{task.id}:1:ocr", "user_id": "5"}.items()
    assert found["updated_at"]
    assert "error_code" not in found
    ocr.go_on.set()
    await working
    await harness.work()
    shown = await harness.link.execute("HMGET", f"etl:task:{task.id}", "status", "phase", "progress")
    assert shown == [b"completed", b"finalize", b"100"]
    assert await harness.link.execute("HGET", f"etl:task:{task.id}", "artifact_mineru_markdown_key")


@on_both_profiles
class TestOrder:
    async def test_within_a_run_no_status_gives_way_to_an_earlier_one(self, harness: EtlHarness):
        task = await harness.submit()
        course = Course(phase=Phase.OCR)
        by_rank = [Standing(task=replace(task, status=status), course=course).order for status in RANKS]
        last = Standing(task=replace(task, status=Status.FAILED), course=course).order
        latest_reader = replace(course, turn=2**27, step=2**31)
        reading = Standing(task=replace(task, status=Status.MINERU_PARSING), course=latest_reader).order
        assert [*by_rank, last] == sorted({*by_rank, last})
        assert reading < by_rank[-1] < last < 2**63

    async def test_an_earlier_worker_cannot_move_a_run(self, harness: EtlHarness):
        task = await harness.submit()
        first = await Trail.open(harness.deps, task, Phase.OCR, attempt=1)
        second = await Trail.open(harness.deps, task, Phase.OCR, attempt=2)
        await second.move(replace(second.task, progress=50))
        with pytest.raises(RunCancelled):
            await first.move(replace(first.task, progress=90))
        assert (await harness.shown(task)).task.progress == 50
        assert (await harness.shown(task)).course.attempt_ocr == 2

    async def test_putting_the_same_twice_is_harmless(self, harness: EtlHarness):
        task = await harness.submit()
        for _ in range(2):
            await runs.show(harness.deps, task)
        trail = await Trail.open(harness.deps, task, Phase.OCR, attempt=1)
        await runs.show(harness.deps, task)
        assert (await harness.shown(task)).task.status is Status.MINERU_PARSING
        over = replace(task, status=Status.FAILED, error="x")
        for _ in range(2):
            await runs.show(harness.deps, over)
        with pytest.raises(RunCancelled):
            await trail.move(trail.task)
        assert (await harness.shown(task)).task.error == "x"

    async def test_a_run_that_is_over_cannot_be_taken_up(self, harness: EtlHarness):
        task = await harness.submit()
        await runs.show(harness.deps, replace(task, status=Status.CANCELLED))
        with pytest.raises(RunCancelled):
            await Trail.open(harness.deps, task, Phase.OCR, attempt=1)
        opened = replace(task, run=2)
        assert (await Trail.open(harness.deps, opened, Phase.OCR, attempt=1)).task.run == 2
        with pytest.raises(RunCancelled):
            await Trail.open(harness.deps, task, Phase.OCR, attempt=1)

    async def test_a_run_does_not_go_on_from_another_databases_task(self, harness: EtlHarness):
        task = await harness.submit()
        other = replace(task, user_id=6, status=Status.MINERU_PARSING, progress=70, metadata={"provider_task_id": "x"})
        await harness.lose_run_state(task)
        await harness.deps.runs.put(runs.entry_of(harness.deps, Standing.of(other)))
        opened = await Trail.open(harness.deps, task, Phase.OCR, attempt=1)
        assert (opened.task.progress, opened.task.metadata.get("provider_task_id")) == (0, None)

    async def test_a_worker_that_finds_ocr_done_does_not_turn_back(self, harness: EtlHarness):
        task = await harness.submit()
        job = await harness.claim()
        await harness.do(job)
        await harness.rescue()
        again = await Trail.open(harness.deps, task, Phase.OCR, attempt=2)
        assert again.task.status is Status.LLM_PROCESSING
        assert again.task.progress == 80


@on_both_profiles
class TestWhatWasRead:
    @pytest.mark.parametrize("lost", [False, True])
    async def test_is_shown_when_post_processing_begins_and_put_again_only_where_it_was_lost(
        self, harness: EtlHarness, lost: bool
    ):
        seen: list[Standing] = []

        class ShaperThatLooks(EchoShaper):
            async def shape(
                self, filename: str, reading: Reading, rule: ExtractionRule, desk: Desk
            ) -> ExtractionResult:
                seen.append(await harness.shown(task))
                return await super().shape(filename, reading, rule, desk)

        harness.set(shaper=ShaperThatLooks())
        task = await harness.submit()
        job = await harness.claim()
        await harness.settle(job, await harness.do(job))
        before = (await harness.shown(task)).task.metadata
        if lost:
            await harness.lose_run_state(task)
        await harness.work()
        [standing] = seen
        shown = standing.task.metadata
        assert {name: shown[name] for name in POINTERS} == {name: before[name] for name in POINTERS}
        assert (standing.task.progress, standing.course.step) == (80, int(lost))


class TestPlace:
    @on_both_profiles
    async def test_keys_begin_with_what_is_set(self, harness: EtlHarness):
        harness.set(key_prefix="mine:")
        task = await harness.submit()
        assert await harness.deps.runs.get(f"mine:task:{task.id}") is not None
        assert await harness.deps.runs.get(f"etl:task:{task.id}") is None
        await harness.work()
        entry = await harness.deps.runs.get(f"mine:task:{task.id}")
        assert entry is not None
        assert entry.final

    @on_both_profiles
    async def test_an_entry_holds_all_that_a_status_answer_needs(self, harness: EtlHarness):
        task = await harness.submit()
        entry = await harness.deps.runs.get(f"etl:task:{task.id}")
        assert entry is not None
        assert {
            "status", "phase", "progress", "attempt_ocr", "attempt_postprocess", "arq_job_id_ocr",
            "arq_job_id_postprocess", "artifact_mineru_markdown_key", "provider_task_id", "error_code",
            "error_message", "updated_at", "created_at", "user_id", "project_id", "filename", "rule_id", "metadata",
        } <= set(entry.fields)  # fmt: skip

    async def test_jobs_are_named_by_task_run_and_stage(self, harness: EtlHarness):
        task = await harness.submit()
        assert job_id(task, Phase.OCR) == f"etl:{task.id}:1:ocr"
        assert job_id(replace(task, run=3), Phase.POSTPROCESS) == f"etl:{task.id}:3:postprocess"


@on_both_profiles
async def test_pages_that_are_passed_once_more_are_not_told_of_as_fewer(harness: EtlHarness):
    task = await harness.submit()
    for attempt, pages in ((1, (1, 2, 3)), (2, (1,))):
        desk = StageDesk(harness.deps, await Trail.open(harness.deps, task, Phase.OCR, attempt=attempt), Phase.OCR)
        for done in pages:
            harness.clock.advance(seconds=1)
            await desk.progress(done, 9)
    assert (await harness.shown(task)).task.metadata["pages_done"] == 3

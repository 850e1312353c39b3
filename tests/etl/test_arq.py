"""Stages as ARQ's users know them: ids that ARQ finds, functions by name, and functions that others enqueue."""

import json
from collections.abc import AsyncIterator

import pytest
from arq.connections import ArqRedis
from arq.jobs import Job as ArqJob
from arq.jobs import JobStatus

from penstock.etl.domain import EtlTask, Status
from penstock.kernel.errors import Invalid
from tests.etl.harness import EtlHarness, EtlProfile, on_scale
from tests.fakes.ocr import PostProcessorThatFails

QUEUE = "penstock:jobs:etl"

pytestmark = on_scale


@pytest.fixture
async def arq(profile: EtlProfile) -> AsyncIterator[ArqRedis]:
    """ARQ's own client, with the serializers that the how-to names."""
    client = ArqRedis.from_url(profile.redis or "")
    client.job_serializer, client.job_deserializer = lambda job: json.dumps(job).encode(), json.loads
    client.default_queue_name = QUEUE
    yield client
    await client.aclose()


async def job_of(arq: ArqRedis, task: EtlTask, phase: str) -> ArqJob:
    """The ARQ job that the hash of a task names."""
    name: bytes = await arq.execute_command("HGET", f"etl:task:{task.id}", f"arq_job_id_{phase}")
    return ArqJob(name.decode(), arq, _queue_name=QUEUE, _deserializer=json.loads)


async def failed_in_postprocess(harness: EtlHarness) -> EtlTask:
    harness.set(post_processor=PostProcessorThatFails(Invalid(reason="no"), times=1))
    task = await harness.submit()
    await harness.work()
    assert await harness.status(task) is Status.FAILED
    return task


async def test_the_hash_of_a_task_names_jobs_that_arq_finds(harness: EtlHarness, arq: ArqRedis):
    task = await harness.submit()
    await harness.deliver()
    reading = await job_of(arq, task, "ocr")
    info = await reading.info()
    assert info is not None
    assert (await reading.status(), info.function, list(info.args)) == (JobStatus.queued, "etl_ocr_job", [task.id])
    assert [(job.function, list(job.args)) for job in await arq.queued_jobs()] == [("etl_ocr_job", [task.id])]
    await harness.work()
    shaping = await job_of(arq, task, "postprocess")
    result = await shaping.result_info()
    assert result is not None
    assert (result.function, list(result.args), result.success) == ("etl_postprocess_job", [task.id], True)
    assert await reading.status() is JobStatus.complete


async def test_a_failed_stage_that_another_program_enqueues_runs_again(harness: EtlHarness, arq: ArqRedis):
    task = await failed_in_postprocess(harness)
    await arq.enqueue_job("etl_postprocess_job", task.id)
    await harness.work()
    await harness.work()  # the first handles the ARQ job; the second runs the job that it started
    assert await harness.status(task) is Status.COMPLETED
    assert harness.ocr.calls == 1
    row = await harness.row(task)
    assert (row.run, row.metadata["from_stage"]) == (2, "postprocess")


async def test_a_stage_that_waits_already_is_not_started_twice(harness: EtlHarness, arq: ArqRedis):
    task = await harness.submit()
    again = await arq.enqueue_job("etl_ocr_job", task.id)
    assert again is not None
    await harness.work()
    assert await harness.status(task) is Status.COMPLETED
    assert (harness.ocr.calls, (await harness.row(task)).run) == (1, 1)
    assert (await arq.queued_jobs(), await harness.transitions(task)) == ([], ["submit", "complete"])


@pytest.mark.parametrize("function", ["etl_ocr_job", "etl_postprocess_job"])
async def test_what_cannot_run_is_refused_with_a_line_in_the_log(
    harness: EtlHarness, arq: ArqRedis, caplog: pytest.LogCaptureFixture, function: str
):
    done = await harness.submit()
    await harness.work()
    for task_id, why in ((done.id, f"Task {done.id} is already completed"), (4711, "Task not found")):
        await arq.enqueue_job(function, task_id)
        await harness.work()
        [line] = [one for one in caplog.messages if one.startswith("refused ARQ job")]
        assert f"{function}({task_id})" in line
        assert why in line
        caplog.clear()
    assert (await harness.row(done)).run == 1

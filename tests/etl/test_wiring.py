"""The etl module as wiring builds it: real readers, real workers, and its settings."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.etl.api import actions, status
from penstock.etl.domain import EtlTask, Status
from penstock.etl.lifecycle import KINDS
from penstock.etl.module import etl_module
from penstock.etl.submit import NewTask
from penstock.etl.worker import MODULE
from penstock.kernel.processes import ProcessKind
from penstock.kernel.queue import JobState, NewJob, get_job
from penstock.settings import EtlSettings, Settings
from penstock.tasks.remove import REMOVE_JOB
from penstock.wiring import Runtime, open_runtime
from tests.etl.harness import ANNA, EtlProfile, on_both_profiles
from tests.fakes.blocking_handler import wait_until
from tests.fakes.ocr import OcrThatWaits

TEXT = "# Invoice 7\n\nTotal: 12.50\n"


@pytest.fixture
def settings(profile: EtlProfile) -> Settings:
    etl = EtlSettings(redis_prefix="docs:", arq_queue_name="my-documents", worker_count=1, state_ttl_seconds=77)
    place = profile.bucket
    if place is None or place.keys is None:
        return Settings(data_dir=profile.scratch, database_url=profile.database, etl=etl)
    return Settings(
        data_dir=profile.scratch,
        database_url=profile.database,
        redis_url=profile.redis or "",
        blobs_url=f"s3://{place.bucket}/{place.prefix}",
        aws_access_key_id=place.keys.key_id,
        aws_secret_access_key=place.keys.secret,
        aws_region=place.region,
        aws_endpoint_url=place.endpoint,
        etl=etl,
    )


@asynccontextmanager
async def working(runtime: Runtime) -> AsyncIterator[None]:
    """The runtime with its workers, as `penstock work` runs it."""
    keeping = asyncio.create_task(runtime.run_background(kind=ProcessKind.WORK, modules=runtime.modules.with_jobs))
    crews = asyncio.create_task(runtime.work())
    try:
        yield
    finally:
        for task in (crews, keeping):
            task.cancel()
        await asyncio.gather(crews, keeping, return_exceptions=True)


async def put(runtime: Runtime, name: str = "invoice.md") -> EtlTask:
    await runtime.blobs.put(f"users/5/raw/3/{name}", TEXT.encode())
    return await actions.submit_task(runtime.modules.etl, ANNA, NewTask(project_id=3, filename=name))


async def ended(runtime: Runtime, task: EtlTask) -> EtlTask:
    """As callers see it when it is over: told by the relay, which wakes nobody when it has put run state."""

    async def is_final() -> bool:
        return (await status.get_status(runtime.modules.etl, ANNA, task.id)).is_final

    await wait_until(is_final, seconds=60)
    return await status.get_status(runtime.modules.etl, ANNA, task.id)


@on_both_profiles
async def test_a_document_passes_both_stages_in_a_runtime(settings: Settings):
    async with open_runtime(settings) as runtime, working(runtime):
        task = await ended(runtime, await put(runtime))
        assert task.status is Status.COMPLETED, task.error
        markdown = await runtime.blobs.get(f"users/5/etl_artifacts/3/{task.id}/mineru.md")
        assert b"Total: 12.50" in markdown

        async def is_told() -> bool:
            entry = await runtime.modules.etl.runs.get(f"docs:task:{task.id}")
            assert entry is not None
            return entry.final

        await wait_until(is_told, seconds=30)


@on_both_profiles
async def test_settings_reach_the_module(settings: Settings):
    async with open_runtime(settings) as runtime:
        task = await put(runtime)
        assert MODULE in runtime.modules.with_jobs
        assert await runtime.modules.etl.runs.get(f"docs:task:{task.id}") is not None
        if runtime.redis is None:
            return
        while await runtime.relay.deliver():
            pass
        assert await runtime.redis.raw.zrange("my-documents", 0, -1) == [f"etl:{task.id}:1:ocr".encode()]
        left = await runtime.redis.raw.ttl(f"docs:task:{task.id}")
        assert 0 < left <= 77


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ((5, 300), (5, 300))),
        ({"retry_backoff_base_seconds": 7.0, "retry_backoff_max_seconds": 9.0}, ((7, 9), (7, 9))),
        ({"ocr_retry_backoff_base_seconds": 0.0, "ocr_retry_backoff_max_seconds": 20.0}, ((0, 20), (5, 300))),
        ({"postprocess_retry_backoff_base_seconds": 60.0}, ((5, 300), (60, 300))),
        ({"postprocess_retry_backoff_max_seconds": 6.0}, ((5, 300), (5, 6))),
    ],
)
async def test_each_stage_has_the_delays_between_attempts_that_are_set_for_it(
    tmp_path: Path, given: dict[str, Any], expected: tuple[tuple[float, float], ...]
):
    async with open_runtime(Settings(data_dir=tmp_path, etl=EtlSettings(**given))) as runtime:
        retries = runtime.modules.retries
    delays = [(one.first_seconds, one.max_seconds) for one in map(retries.get, KINDS.values()) if one is not None]
    assert tuple(delays) == expected


async def test_each_process_cleans_the_scratch_folder_at_its_start(settings: Settings):
    scratch = settings.data_dir / settings.etl.cache_dir
    await asyncio.to_thread(scratch.mkdir, parents=True)
    left = [scratch / name for name in ("a.part", "a.pdf", "b.md", "b.jsonl")]
    for path in (*left, scratch / "b.onnx"):
        path.write_bytes(b"x")
        os.utime(path, (0, 0))
    (scratch / "young.md").write_bytes(b"x")
    async with open_runtime(settings) as runtime, working(runtime):
        await wait_until(lambda: not any(path.exists() for path in left), seconds=30)
    assert {path.name for path in scratch.iterdir() if path.is_file()} == {"b.onnx", "young.md"}


async def test_the_longest_deferral_can_be_set(settings: Settings):
    async with open_runtime(replace(settings, etl=replace(settings.etl, patience_seconds=7))) as runtime:
        assert runtime.modules.etl.config.max_deferred_seconds == 7


@on_both_profiles
async def test_the_module_has_worker_slots_of_its_own(settings: Settings):
    """One stage at a time here, as was set, and jobs of other rooms do not wait for it."""
    async with open_runtime(settings) as runtime:
        ocr = OcrThatWaits(runtime.blobs, before_page=1)
        etl = replace(runtime.modules.etl, provider=ocr)
        runtime = replace(runtime, modules=runtime.modules.replacing(etl_module(etl)))
        async with working(runtime):
            tasks = [await put(runtime, f"{number}.md") for number in range(3)]
            await ocr.waits.wait()
            async with runtime.db.tx() as tx:
                gone = {"project_pk": "none", "queue_pk": None}
                await runtime.queue.enqueue(tx, NewJob(kind=REMOVE_JOB, id="other", module="tasks", payload=gone))
            await done(runtime, "other")
            assert ocr.calls == 1
            ocr.go_on.set()
            assert {(await ended(runtime, task)).status for task in tasks} == {Status.COMPLETED}


async def done(runtime: Runtime, job_id: str) -> None:
    async def is_done() -> bool:
        async with runtime.db.read() as tx:
            return (await get_job(tx, job_id)).state is JobState.DONE

    await wait_until(is_done, seconds=30)

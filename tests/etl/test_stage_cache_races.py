"""The cache stays right when documents and tasks change concurrently."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

from penstock.documents.ocr.provider import Reading, Source, StageContext
from penstock.etl import artifacts
from penstock.etl.api import actions
from penstock.etl.domain import EtlTask, Phase, Stage, Status
from penstock.etl.retry import RetryOptions
from penstock.kernel.blobs import Blobs
from tests.etl.cache_helpers import OTHER, SAME, markdown, ocr_of, read, remembered
from tests.etl.harness import ANNA, EtlHarness, on_both_profiles
from tests.fakes.ocr import EchoOcr, OcrThatBreaksOff, RemoteOcr


class OcrThatComesLate(EchoOcr):
    """The document is replaced before it is read."""

    async def read(self, source: Source, context: StageContext) -> Reading:
        await self._blobs.put(source.key, OTHER.encode())
        return await super().read(source, context)


class Meddled:
    """A blob store that runs a callback before the first copy."""

    def __init__(self, inner: Blobs, happens: Callable[[], Awaitable[object]]) -> None:
        self._inner = inner
        self._happens = [happens]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def copy(self, source: str, target: str) -> Any:
        """Copy after the callback."""
        while self._happens:
            await self._happens.pop()()
        return await self._inner.copy(source, target)


@on_both_profiles
class TestADocumentThatIsReplaced:
    async def test_a_replaced_document_is_not_cached(self, harness: EtlHarness):
        harness.set(provider=OcrThatComesLate(harness.deps.blobs))
        first = await read(harness)
        assert b"two page" in await markdown(harness, first)
        assert ocr_of(first) == {"hit": False, "task_id": None, "key": None}
        assert await remembered(harness) == []
        harness.set(provider=harness.ocr)
        assert b"one page" in await markdown(harness, await read(harness, "b.txt"))

    async def test_one_that_is_deleted_after_it_was_read_is_not_remembered(self, harness: EtlHarness):
        class OcrThatTidiesUp(EchoOcr):
            async def read(self, source: Source, context: StageContext) -> Reading:
                made = await super().read(source, context)
                await self._blobs.delete(source.key)
                return made

        harness.set(provider=OcrThatTidiesUp(harness.deps.blobs))
        assert (await read(harness)).status is Status.COMPLETED
        assert await remembered(harness) == []

    async def test_pages_of_two_documents_are_known_by_no_key(self, harness: EtlHarness):
        task = await half_read(harness)
        await harness.put(text=OTHER.replace("another", "the rest"))
        row = await go_on(harness, task)
        assert b"one page" in await markdown(harness, row)
        assert b"the rest" in await markdown(harness, row)
        assert ocr_of(row)["key"] is None
        assert await remembered(harness) == []

    async def test_pages_of_two_attempts_at_one_document_are_remembered(self, harness: EtlHarness):
        row = await go_on(harness, await half_read(harness))
        assert await remembered(harness) == [(5, row.id, "ocr")]

    async def test_pages_are_not_cached_when_run_state_is_lost(self, harness: EtlHarness):
        task = await half_read(harness)
        await harness.lose_run_state(task)
        await harness.reconcile()
        row = await go_on(harness, task)
        assert row.status is Status.COMPLETED
        assert await remembered(harness) == []

    async def test_a_document_at_a_remote_provider_is_not_cached(self, harness: EtlHarness):
        harness.set(provider=RemoteOcr(harness.deps.blobs, breaks=1))
        task = await harness.submit(text=SAME)
        await harness.work()
        await harness.put(text=OTHER)
        row = await go_on(harness, task)
        assert ocr_of(row)["key"] is None


async def half_read(harness: EtlHarness) -> EtlTask:
    """A task whose OCR failed after the first page."""
    harness.set(provider=OcrThatBreaksOff(harness.deps.blobs, before_page=2))
    task = await harness.submit(text=SAME)
    await harness.work()
    assert f"{artifacts.work_folder(task, Phase.OCR)}page-1.md" in await harness.keys()
    return task


async def go_on(harness: EtlHarness, task: EtlTask) -> EtlTask:
    """The task after its next attempt."""
    harness.clock.advance(seconds=20)
    await harness.work()
    row = await harness.row(task)
    assert row.status is Status.COMPLETED
    return row


@on_both_profiles
class TestRaces:
    async def test_two_tasks_at_once_may_both_read_and_the_last_is_remembered(self, harness: EtlHarness):
        tasks = [await harness.submit(name, text=SAME) for name in ("a.txt", "b.txt")]
        await harness.deliver()
        jobs = [await harness.claim() for _ in tasks]
        settles = [await harness.do(job) for job in jobs]
        for job, settle in zip(jobs, settles, strict=True):
            await harness.settle(job, settle)
        await harness.work()
        assert [(await harness.row(task)).status for task in tasks] == [Status.COMPLETED] * 2
        assert harness.ocr.calls == 2
        assert await remembered(harness) == [(5, jobs[1].payload["task_id"], "ocr")]

    async def test_a_task_that_is_removed_while_it_is_copied_is_a_miss(self, harness: EtlHarness):
        first = await read(harness)

        async def remove_first() -> None:
            await actions.delete_task(harness.deps, ANNA, first.id)
            await artifacts.drop(harness.deps.blobs, artifacts.folder_of(first))

        second = await read_meddled(harness, remove_first)
        assert (ocr_of(second)["hit"], second.status) == (False, Status.COMPLETED)

    async def test_a_task_that_is_read_anew_while_it_is_copied_is_a_miss(self, harness: EtlHarness):
        first = await read(harness)

        async def read_another() -> None:
            await actions.retry_task(harness.deps, ANNA, first.id, RetryOptions(from_stage=Stage.OCR, force=True))
            await harness.deps.blobs.put(artifacts.markdown_key(first), b"of another document")

        second = await read_meddled(harness, read_another)
        assert ocr_of(second)["hit"] is False
        assert b"one page" in await markdown(harness, second)

    async def test_artifacts_of_an_earlier_run_are_not_used(self, harness: EtlHarness):
        first = await read(harness)
        await harness.put(text=OTHER)
        await actions.retry_task(harness.deps, ANNA, first.id, RetryOptions(from_stage=Stage.OCR, force=True))
        await harness.work()
        assert b"two page" in await markdown(harness, await harness.row(first))
        second = await read(harness, "b.txt")
        assert ocr_of(second)["hit"] is False
        assert b"one page" in await markdown(harness, second)

    async def test_artifacts_of_a_stage_that_is_not_settled_are_not_found(self, harness: EtlHarness):
        first = await read(harness)
        await actions.retry_task(harness.deps, ANNA, first.id, RetryOptions(from_stage=Stage.OCR, force=True))
        await harness.deliver()
        await harness.do(await harness.claim())
        assert f"{artifacts.folder_of(first)}reading-2.json" in await harness.keys()
        assert ocr_of(await read(harness, "b.txt"))["hit"] is False

    async def test_a_cancelled_task_copies_nothing(self, harness: EtlHarness):
        await read(harness)
        task = await harness.submit("b.txt", text=SAME)
        await harness.deliver()
        job = await harness.claim()

        class CancelledOnTheWay(Meddled):
            async def get(self, key: str) -> bytes:
                if "/reading-" in key and self._happens:
                    await self._happens.pop()()
                return await self._inner.get(key)

        async def abort() -> None:
            await actions.abort_task(harness.deps, ANNA, task.id)

        own = harness.deps.blobs
        meddle(harness, CancelledOnTheWay(own, abort))
        assert await harness.do(job) is None
        assert await harness.keys(artifacts.folder_of(task)) == []

    async def test_a_copy_that_was_not_finished_is_made_again(self, harness: EtlHarness):
        first = await read(harness)
        task = await harness.submit("b.txt", text=SAME)
        await harness.deps.blobs.copy(artifacts.markdown_key(first), artifacts.markdown_key(task))
        await harness.work()
        assert ocr_of(await harness.row(task))["task_id"] == first.id

    async def test_what_a_dead_worker_has_read_is_remembered_by_the_next(self, harness: EtlHarness):
        task = await harness.submit(text=SAME)
        await harness.deliver()
        await harness.do(await harness.claim())
        assert await remembered(harness) == []
        await harness.rescue()
        await harness.work()
        assert await remembered(harness) == [(5, task.id, "ocr")]
        assert harness.ocr.calls == 1


def meddle(harness: EtlHarness, blobs: Meddled | Blobs) -> None:
    """Replace the blob store."""
    harness.deps = replace(harness.deps, blobs=cast(Blobs, blobs))


async def read_meddled(harness: EtlHarness, happens: Callable[[], Awaitable[object]]) -> EtlTask:
    """A task of the cached document; the callback runs while its artifacts are copied."""
    task = await harness.submit("b.txt", text=SAME)
    own = harness.deps.blobs
    meddle(harness, Meddled(own, happens))
    await harness.deliver()
    job = await harness.claim()
    settle = await harness.do(job)
    meddle(harness, own)
    await harness.settle(job, settle)
    await harness.work()
    return await harness.row(task)

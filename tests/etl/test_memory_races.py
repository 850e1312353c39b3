"""What is remembered is what was read, whatever happens to documents and tasks meanwhile."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

from penstock.documents.ocr.provider import Desk, Reading, Source
from penstock.etl import papers, remove, steer
from penstock.etl.domain import EtlTask, Stage, Status
from penstock.etl.steer import Again
from penstock.kernel.blobs import Blobs
from tests.etl.remembering import OTHER, SAME, markdown, ocr_of, read, remembered
from tests.etl.workshop import ANNA, Workshop
from tests.fakes.ocr import EchoOcr, OcrFarAway, OcrThatBreaksOff


class OcrThatComesLate(EchoOcr):
    """Somebody replaces the document before it is read."""

    async def read(self, source: Source, desk: Desk) -> Reading:
        await self._blobs.put(source.key, OTHER.encode())
        return await super().read(source, desk)


class Meddled:
    """A store where something happens before the first object is copied."""

    def __init__(self, inner: Blobs, happens: Callable[[], Awaitable[object]]) -> None:
        self._inner = inner
        self._happens = [happens]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def copy(self, source: str, target: str) -> Any:
        """Copy, late."""
        while self._happens:
            await self._happens.pop()()
        return await self._inner.copy(source, target)


class TestADocumentThatIsReplaced:
    async def test_what_was_read_is_not_remembered_as_what_was_hashed(self, shop: Workshop):
        shop.set(provider=OcrThatComesLate(shop.tools.blobs))
        first = await read(shop)
        assert b"two page" in await markdown(shop, first)
        assert ocr_of(first) == {"hit": False, "task_id": None, "key": None}
        assert await remembered(shop) == []
        shop.set(provider=shop.ocr)
        assert b"one page" in await markdown(shop, await read(shop, "b.txt"))

    async def test_one_that_is_deleted_after_it_was_read_is_not_remembered(self, shop: Workshop):
        class OcrThatTidiesUp(EchoOcr):
            async def read(self, source: Source, desk: Desk) -> Reading:
                made = await super().read(source, desk)
                await self._blobs.delete(source.key)
                return made

        shop.set(provider=OcrThatTidiesUp(shop.tools.blobs))
        assert (await read(shop)).status is Status.COMPLETED
        assert await remembered(shop) == []

    async def test_pages_of_two_documents_are_known_by_no_key(self, shop: Workshop):
        task = await half_read(shop)
        await shop.put(text=OTHER.replace("another", "the rest"))
        row = await go_on(shop, task)
        assert b"one page" in await markdown(shop, row)
        assert b"the rest" in await markdown(shop, row)
        assert ocr_of(row)["key"] is None
        assert await remembered(shop) == []

    async def test_pages_of_two_attempts_at_one_document_are_remembered(self, shop: Workshop):
        row = await go_on(shop, await half_read(shop))
        assert await remembered(shop) == [(5, row.id, "ocr")]

    async def test_nobody_knows_whose_pages_they_are_when_run_state_is_lost(self, shop: Workshop):
        task = await half_read(shop)
        await shop.lose_run_state(task)
        await shop.reconcile()
        row = await go_on(shop, task)
        assert row.status is Status.COMPLETED
        assert await remembered(shop) == []

    async def test_a_document_that_is_far_away_already_may_be_another(self, shop: Workshop):
        shop.set(provider=OcrFarAway(shop.tools.blobs, breaks=1))
        task = await shop.submit(text=SAME)
        await shop.work()
        await shop.put(text=OTHER)
        row = await go_on(shop, task)
        assert ocr_of(row)["key"] is None


async def half_read(shop: Workshop) -> EtlTask:
    """A task whose first page was read when its reader broke off."""
    shop.set(provider=OcrThatBreaksOff(shop.tools.blobs, before_page=2))
    task = await shop.submit(text=SAME)
    await shop.work()
    assert f"{papers.reading_folder(task)}page-1.md" in await shop.keys()
    return task


async def go_on(shop: Workshop, task: EtlTask) -> EtlTask:
    """The task after its next attempt."""
    shop.clock.advance(seconds=20)
    await shop.work()
    row = await shop.row(task)
    assert row.status is Status.COMPLETED
    return row


class TestRaces:
    async def test_two_tasks_at_once_may_both_read_and_the_last_is_remembered(self, shop: Workshop):
        tasks = [await shop.submit(name, text=SAME) for name in ("a.txt", "b.txt")]
        await shop.deliver()
        jobs = [await shop.claim() for _ in tasks]
        settles = [await shop.do(job) for job in jobs]
        for job, settle in zip(jobs, settles, strict=True):
            await shop.settle(job, settle)
        await shop.work()
        assert [(await shop.row(task)).status for task in tasks] == [Status.COMPLETED] * 2
        assert shop.ocr.calls == 2
        assert await remembered(shop) == [(5, jobs[1].payload["task_id"], "ocr")]

    async def test_a_task_that_is_removed_while_it_is_copied_is_a_miss(self, shop: Workshop):
        first = await read(shop)

        async def remove_first() -> None:
            await remove.delete_task(shop.tools, ANNA, first.id)
            await papers.drop(shop.tools.blobs, papers.folder_of(first))

        second = await read_meddled(shop, remove_first)
        assert (ocr_of(second)["hit"], second.status) == (False, Status.COMPLETED)

    async def test_a_task_that_is_read_anew_while_it_is_copied_is_a_miss(self, shop: Workshop):
        first = await read(shop)

        async def read_another() -> None:
            await steer.retry(shop.tools, ANNA, first.id, Again(from_stage=Stage.OCR, force=True))
            await shop.tools.blobs.put(papers.markdown_key(first), b"of another document")

        second = await read_meddled(shop, read_another)
        assert ocr_of(second)["hit"] is False
        assert b"one page" in await markdown(shop, second)

    async def test_papers_of_a_run_before_are_not_looked_at(self, shop: Workshop):
        first = await read(shop)
        await shop.put(text=OTHER)
        await steer.retry(shop.tools, ANNA, first.id, Again(from_stage=Stage.OCR, force=True))
        await shop.work()
        assert b"two page" in await markdown(shop, await shop.row(first))
        second = await read(shop, "b.txt")
        assert ocr_of(second)["hit"] is False
        assert b"one page" in await markdown(shop, second)

    async def test_papers_of_a_stage_that_is_not_settled_are_not_found(self, shop: Workshop):
        first = await read(shop)
        await steer.retry(shop.tools, ANNA, first.id, Again(from_stage=Stage.OCR, force=True))
        await shop.deliver()
        await shop.do(await shop.claim())
        assert f"{papers.folder_of(first)}reading-2.json" in await shop.keys()
        assert ocr_of(await read(shop, "b.txt"))["hit"] is False

    async def test_a_task_that_is_not_wanted_any_more_copies_nothing(self, shop: Workshop):
        await read(shop)
        task = await shop.submit("b.txt", text=SAME)
        await shop.deliver()
        job = await shop.claim()

        class CancelledOnTheWay(Meddled):
            async def get(self, key: str) -> bytes:
                if "/reading-" in key and self._happens:
                    await self._happens.pop()()
                return await self._inner.get(key)

        async def abort() -> None:
            await steer.abort(shop.tools, ANNA, task.id)

        own = shop.tools.blobs
        meddle(shop, CancelledOnTheWay(own, abort))
        assert await shop.do(job) is None
        assert await shop.keys(papers.folder_of(task)) == []

    async def test_a_copy_that_was_not_finished_is_made_again(self, shop: Workshop):
        first = await read(shop)
        task = await shop.submit("b.txt", text=SAME)
        await shop.tools.blobs.copy(papers.markdown_key(first), papers.markdown_key(task))
        await shop.work()
        assert ocr_of(await shop.row(task))["task_id"] == first.id

    async def test_what_a_dead_worker_has_read_is_remembered_by_the_next(self, shop: Workshop):
        task = await shop.submit(text=SAME)
        await shop.deliver()
        await shop.do(await shop.claim())
        assert await remembered(shop) == []
        await shop.rescue()
        await shop.work()
        assert await remembered(shop) == [(5, task.id, "ocr")]
        assert shop.ocr.calls == 1


def meddle(shop: Workshop, blobs: Meddled | Blobs) -> None:
    """Let the room work with this store."""
    shop.tools = replace(shop.tools, blobs=cast(Blobs, blobs))


async def read_meddled(shop: Workshop, happens: Callable[[], Awaitable[object]]) -> EtlTask:
    """A task of the known document, and something happens while its papers are copied."""
    task = await shop.submit("b.txt", text=SAME)
    own = shop.tools.blobs
    meddle(shop, Meddled(own, happens))
    await shop.deliver()
    job = await shop.claim()
    settle = await shop.do(job)
    meddle(shop, own)
    await shop.settle(job, settle)
    await shop.work()
    return await shop.row(task)

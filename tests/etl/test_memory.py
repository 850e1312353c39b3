"""The same document is read once: the next task of the same user copies what was read."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.access.domain import Caller
from penstock.adapters.disk import DiskBlobs
from penstock.adapters.local_reader import LocalReader, ReaderLimits
from penstock.etl import papers, remove, steer
from penstock.etl.domain import Stage, Status
from penstock.etl.meters import Meters
from penstock.etl.papers import ReadingPaper
from penstock.etl.steer import Again
from penstock.etl.store.tables import etl_memory
from penstock.kernel.errors import Invalid
from penstock.kernel.sandbox.call import Sandbox
from tests.etl.remembering import OTHER, SAME, markdown, ocr_of, read, remembered
from tests.etl.workshop import ANNA, BERT, ROOT, Workshop
from tests.fakes.ocr import OcrThatFails


class TestAHit:
    async def test_a_known_document_under_another_name_is_not_read_again(self, shop: Workshop):
        first = await read(shop)
        second = await read(shop, "b.TXT")
        assert (second.status, shop.ocr.calls) == (Status.COMPLETED, 1)
        assert ocr_of(first) == {"hit": False, "task_id": None, "key": ocr_of(first)["key"]}
        assert ocr_of(second) == {"hit": True, "task_id": first.id, "key": ocr_of(first)["key"]}
        assert second.metadata["ocr"] == first.metadata["ocr"]
        assert second.metadata["page_count"] == 2
        assert second.metadata["artifact_mineru_markdown_key"] == papers.markdown_key(second)

    async def test_its_papers_are_the_tasks_own(self, shop: Workshop):
        first = await read(shop)
        second = await read(shop, "b.txt")
        assert await markdown(shop, second) == await markdown(shop, first)
        blobs, names = shop.tools.blobs, ("grounding-1.json", "mineru.md", "pages-1.jsonl", "reading-1.json")
        folder = papers.folder_of(second)
        assert await shop.keys(folder) == [*(folder + name for name in names), f"{folder}result-1.json"]
        assert await blobs.get(papers.pages_key(second)) == await blobs.get(papers.pages_key(first))
        assert b"b.txt" in await blobs.get(papers.public_key_of(second))

    @pytest.mark.parametrize("gone", [0, 1])
    async def test_when_either_task_is_deleted_the_other_is_whole(self, shop: Workshop, gone: int):
        both = [await read(shop), await read(shop, "b.txt")]
        await remove.delete_task(shop.tools, ANNA, both[gone].id)
        await shop.work()
        left = both[1 - gone]
        assert b"and another" in await markdown(shop, left)
        assert await shop.tools.blobs.get(papers.result_key(left))

    async def test_the_latest_papers_are_those_that_are_remembered(self, shop: Workshop):
        first = await read(shop)
        second = await read(shop, "b.txt")
        assert await remembered(shop) == [(5, second.id, "ocr")]
        await remove.delete_task(shop.tools, ANNA, first.id)
        await shop.work()
        assert ocr_of(await read(shop, "c.txt"))["task_id"] == second.id

    async def test_hits_and_misses_are_counted(self, shop: Workshop):
        await read(shop)
        await read(shop, "b.txt")
        await read(shop, "c.txt", force=True)
        assert looks(shop.tools.meters) == {("mineru", "miss"): 1, ("mineru", "hit"): 1}


def looks(meters: Meters) -> dict[tuple[str, str], float]:
    [family] = [family for family in meters.collect() if family.name == "penstock_etl_memory"]
    return {(one.labels["stage"], one.labels["outcome"]): one.value for one in family.samples}


class TestAMiss:
    @pytest.mark.parametrize(("name", "text"), [("b.md", SAME), ("b", SAME), ("b.txt", OTHER)])
    async def test_another_ending_or_another_text_is_another_document(self, shop: Workshop, name: str, text: str):
        await read(shop)
        assert ocr_of(await read(shop, name, text=text))["hit"] is False
        assert shop.ocr.calls == 2

    async def test_another_version_of_the_reader_reads_again(self, shop: Workshop):
        await read(shop)
        shop.ocr.version = "2"
        assert ocr_of(await read(shop, "b.txt"))["hit"] is False

    @pytest.mark.parametrize("other", [BERT, ROOT], ids=lambda caller: caller.name)
    async def test_a_memory_is_its_owners_alone(self, shop: Workshop, other: Caller):
        first = await read(shop)
        theirs = await read(shop, by=other)
        assert ocr_of(theirs)["hit"] is False
        assert ocr_of(theirs)["key"] == ocr_of(first)["key"]
        assert await remembered(shop) == [(5, first.id, "ocr"), (other.user_id, theirs.id, "ocr")]
        assert ocr_of(await read(shop, "b.txt"))["task_id"] == first.id

    async def test_a_row_that_points_at_somebody_elses_task_finds_nothing(self, shop: Workshop):
        theirs = await read(shop, by=BERT)
        async with shop.db.tx() as tx:
            await tx.conn.execute(etl_memory.update().values(user_id=5))
        assert theirs.status is Status.COMPLETED
        assert ocr_of(await read(shop))["hit"] is False

    async def test_a_failure_is_not_remembered(self, shop: Workshop):
        shop.set(provider=OcrThatFails(shop.tools.blobs, Invalid(reason="no"), times=1))
        assert (await read(shop)).status is Status.FAILED
        assert await remembered(shop) == []
        assert (await read(shop, "b.txt")).status is Status.COMPLETED

    async def test_papers_that_are_gone_or_say_another_key_are_no_hit(self, shop: Workshop):
        first = await read(shop)
        await shop.tools.blobs.delete(papers.pages_key(first))
        second = await read(shop, "b.txt")
        assert (ocr_of(second)["hit"], second.status) == (False, Status.COMPLETED)
        reading = await papers.find_reading(shop.tools.blobs, second)
        assert reading is not None
        await papers.keep_reading(shop.tools.blobs, second, reading)
        assert ocr_of(await read(shop, "c.txt"))["hit"] is False


class TestForce:
    async def test_it_reads_anew_and_is_remembered(self, shop: Workshop):
        await read(shop)
        forced = await read(shop, "b.txt", force=True)
        assert (ocr_of(forced)["hit"], forced.metadata["force"], shop.ocr.calls) == (False, True, 2)
        assert ocr_of(await read(shop, "c.txt"))["task_id"] == forced.id

    async def test_every_attempt_and_the_reconciler_know(self, shop: Workshop):
        await read(shop)
        ocr = OcrThatFails(shop.tools.blobs, OSError("no"), times=1)
        shop.set(provider=ocr)
        task = await shop.submit("b.txt", text=SAME, force=True)
        await shop.work()
        await shop.lose_run_state(task)
        await shop.reconcile()
        shop.clock.advance(seconds=20)
        await shop.work()
        assert ocr_of(await shop.row(task))["hit"] is False
        assert ocr.calls == 2

    async def test_a_retry_without_it_uses_the_memory_after_a_failure(self, shop: Workshop):
        shop.set(provider=OcrThatFails(shop.tools.blobs, Invalid(reason="no"), times=1))
        failed = await read(shop, force=True)
        other = await read(shop, "b.txt")
        await steer.retry(shop.tools, ANNA, failed.id, Again())
        await shop.work()
        row = await shop.row(failed)
        assert (row.status, ocr_of(row)["task_id"]) == (Status.COMPLETED, other.id)
        assert "force" not in row.metadata

    async def test_a_retry_from_ocr_reads_the_document_again_whoever_has_read_it(self, shop: Workshop):
        shop.set(provider=OcrThatFails(shop.tools.blobs, Invalid(reason="no"), times=1))
        failed = await read(shop)
        await read(shop, "b.txt")
        await steer.retry(shop.tools, ANNA, failed.id, Again(from_stage=Stage.OCR))
        await shop.work()
        assert ocr_of(await shop.row(failed)) == {"hit": False, "task_id": None, "key": ocr_of(failed)["key"]}

    async def test_a_retry_by_force_says_so_and_forgets_what_was_said_of_the_memory(self, shop: Workshop):
        await read(shop)
        second = await read(shop, "b.txt")
        again = await steer.retry(shop.tools, ANNA, second.id, Again(from_stage=Stage.OCR, force=True))
        assert again.metadata["force"] is True
        assert "cache" not in again.metadata
        await shop.work()
        assert ocr_of(await shop.row(second))["hit"] is False


class TestReaders:
    def test_the_local_reader_is_another_by_its_profile_and_by_how_large_it_draws(self, tmp_path: Path):
        def identity(profile: str, pixels: int) -> dict[str, Any]:
            reader = LocalReader(
                DiskBlobs(tmp_path),
                parsers=Sandbox(),
                engine=Sandbox(),
                scratch=tmp_path,
                profile=profile,
                limits=ReaderLimits(max_page_pixels=pixels),
            )
            return reader.identity

        usual = identity("accurate", 50_000_000)
        assert usual == identity("accurate", 50_000_000)
        assert usual["versions"]["liteparse"]
        assert usual != identity("fast", 50_000_000)
        assert usual != identity("accurate", 1_000_000)

    async def test_papers_from_before_there_was_a_memory_are_understood(self, shop: Workshop):
        task = await read(shop)
        reading = await papers.find_reading(shop.tools.blobs, task)
        assert reading is not None
        await shop.tools.blobs.put(papers.reading_key(task), msgspec.json.encode({"run": 1, "reading": reading}))
        assert await papers.find_reading_paper(shop.tools.blobs, task) == ReadingPaper(run=1, reading=reading)
        assert ocr_of(await read(shop, "b.txt"))["hit"] is False

"""Cache of OCR results: the next task of the same user with the same document copies them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.access.domain import Caller
from penstock.adapters.disk import DiskBlobs
from penstock.adapters.local_reader import LocalReader, ReaderLimits
from penstock.documents.ocr.provider import Reading, Source, StageContext
from penstock.etl import artifacts
from penstock.etl.api import actions
from penstock.etl.artifacts import OcrCommit
from penstock.etl.domain import Stage, Status
from penstock.etl.metrics import Metrics
from penstock.etl.retry import RetryOptions
from penstock.etl.store.tables import etl_memory
from penstock.kernel.errors import Invalid
from penstock.kernel.sandbox.call import Sandbox
from tests.etl.cache_helpers import OTHER, SAME, markdown, ocr_of, read, remembered
from tests.etl.harness import ANNA, BERT, ROOT, EtlHarness, on_both_profiles
from tests.fakes.ocr import EchoOcr, NoOcr, OcrThatFails
from tests.fakes.remote_blobs import RemoteBlobs


class TestAHit:
    @on_both_profiles
    async def test_a_known_document_under_another_name_is_not_read_again(self, harness: EtlHarness):
        first = await read(harness)
        second = await read(harness, "b.TXT")
        assert (second.status, harness.ocr.calls) == (Status.COMPLETED, 1)
        assert ocr_of(first) == {"hit": False, "task_id": None, "key": ocr_of(first)["key"]}
        assert ocr_of(second) == {"hit": True, "task_id": first.id, "key": ocr_of(first)["key"]}
        assert second.metadata["ocr"] == first.metadata["ocr"]
        assert second.metadata["page_count"] == 2
        assert second.metadata["artifact_mineru_markdown_key"] == artifacts.markdown_key(second)

    @on_both_profiles
    async def test_its_artifacts_are_the_tasks_own(self, harness: EtlHarness):
        first = await read(harness)
        second = await read(harness, "b.txt")
        assert await markdown(harness, second) == await markdown(harness, first)
        blobs, names = harness.deps.blobs, ("grounding-1.json", "mineru.md", "pages-1.jsonl", "reading-1.json")
        folder = artifacts.folder_of(second)
        assert await harness.keys(folder) == [*(folder + name for name in names), f"{folder}result-1.json"]
        assert await blobs.get(artifacts.pages_key(second)) == await blobs.get(artifacts.pages_key(first))
        assert b"b.txt" in await blobs.get(artifacts.public_key_of(second))

    @pytest.mark.parametrize("gone", [0, 1])
    async def test_when_either_task_is_deleted_the_other_is_whole(self, harness: EtlHarness, gone: int):
        both = [await read(harness), await read(harness, "b.txt")]
        await actions.delete_task(harness.deps, ANNA, both[gone].id)
        await harness.work()
        left = both[1 - gone]
        assert b"and another" in await markdown(harness, left)
        assert await harness.deps.blobs.get(artifacts.result_key(left))

    async def test_the_latest_artifacts_are_cached(self, harness: EtlHarness):
        first = await read(harness)
        second = await read(harness, "b.txt")
        assert await remembered(harness) == [(5, second.id, "ocr")]
        await actions.delete_task(harness.deps, ANNA, first.id)
        await harness.work()
        assert ocr_of(await read(harness, "c.txt"))["task_id"] == second.id

    async def test_hits_and_misses_are_counted(self, harness: EtlHarness):
        await read(harness)
        await read(harness, "b.txt")
        await read(harness, "c.txt", force=True)
        assert looks(harness.deps.metrics) == {("mineru", "miss"): 1, ("mineru", "hit"): 1}


def looks(metrics: Metrics) -> dict[tuple[str, str], float]:
    [family] = [family for family in metrics.collect() if family.name == "penstock_etl_memory"]
    return {(one.labels["stage"], one.labels["outcome"]): one.value for one in family.samples}


class OcrOfTheOpenFile(EchoOcr):
    """Reads the file that the stage has open, as the local reader does."""

    async def read(self, source: Source, context: StageContext) -> Reading:
        assert source.path is not None
        await self._blobs.put(source.key + ".copy", source.path.read_bytes())
        return await super().read(replace(source, key=source.key + ".copy"), context)


class TestTheDocument:
    async def test_of_a_remote_store_is_read_once_hashed_while_it_is_copied(self, harness: EtlHarness, tmp_path: Path):
        remote = RemoteBlobs(tmp_path / "remote")
        harness.deps = replace(harness.deps, blobs=remote)
        harness.set(provider=OcrOfTheOpenFile(remote))
        first, second = await read(harness), await read(harness, "b.txt")
        assert remote.streamed_bytes[first.s3_key] == remote.streamed_bytes[second.s3_key] == len(SAME)
        assert (ocr_of(first)["hit"], ocr_of(second)["hit"]) == (False, True)
        assert [path for path in harness.deps.scratch.iterdir() if path.is_file()] == []

    async def test_over_the_size_limit_is_refused_before_it_is_copied(self, harness: EtlHarness, tmp_path: Path):
        remote = RemoteBlobs(tmp_path / "remote")
        harness.deps = replace(harness.deps, blobs=remote)
        task = await harness.submit(text=SAME)
        harness.set(provider=NoOcr(), max_file_bytes=len(SAME) - 1)
        await harness.work()
        row = await harness.row(task)
        assert (row.status, row.metadata["error_code"]) == (Status.FAILED, "DOCUMENT_TOO_LARGE")
        assert remote.streamed_bytes[task.s3_key] == 0


class TestAMiss:
    @pytest.mark.parametrize(("name", "text"), [("b.md", SAME), ("b", SAME), ("b.txt", OTHER)])
    async def test_another_ending_or_another_text_is_another_document(self, harness: EtlHarness, name: str, text: str):
        await read(harness)
        assert ocr_of(await read(harness, name, text=text))["hit"] is False
        assert harness.ocr.calls == 2

    async def test_another_version_of_the_reader_reads_again(self, harness: EtlHarness):
        await read(harness)
        harness.ocr.version = "2"
        assert ocr_of(await read(harness, "b.txt"))["hit"] is False

    @pytest.mark.parametrize("other", [BERT, ROOT], ids=lambda caller: caller.name)
    async def test_a_memory_is_its_owners_alone(self, harness: EtlHarness, other: Caller):
        first = await read(harness)
        theirs = await read(harness, by=other)
        assert ocr_of(theirs)["hit"] is False
        assert ocr_of(theirs)["key"] == ocr_of(first)["key"]
        assert await remembered(harness) == [(5, first.id, "ocr"), (other.user_id, theirs.id, "ocr")]
        assert ocr_of(await read(harness, "b.txt"))["task_id"] == first.id

    async def test_a_row_that_points_at_somebody_elses_task_finds_nothing(self, harness: EtlHarness):
        theirs = await read(harness, by=BERT)
        async with harness.db.tx() as tx:
            await tx.conn.execute(etl_memory.update().values(user_id=5))
        assert theirs.status is Status.COMPLETED
        assert ocr_of(await read(harness))["hit"] is False

    async def test_a_failure_is_not_remembered(self, harness: EtlHarness):
        harness.set(provider=OcrThatFails(harness.deps.blobs, Invalid(reason="no"), times=1))
        assert (await read(harness)).status is Status.FAILED
        assert await remembered(harness) == []
        assert (await read(harness, "b.txt")).status is Status.COMPLETED

    @on_both_profiles
    async def test_artifacts_that_are_gone_or_have_another_key_are_a_miss(self, harness: EtlHarness):
        first = await read(harness)
        await harness.deps.blobs.delete(artifacts.pages_key(first))
        second = await read(harness, "b.txt")
        assert (ocr_of(second)["hit"], second.status) == (False, Status.COMPLETED)
        reading = await artifacts.find_ocr(harness.deps.blobs, second)
        assert reading is not None
        await artifacts.commit_ocr(harness.deps.blobs, second, reading.reading)
        assert ocr_of(await read(harness, "c.txt"))["hit"] is False


class TestForce:
    async def test_it_reads_anew_and_is_remembered(self, harness: EtlHarness):
        await read(harness)
        forced = await read(harness, "b.txt", force=True)
        assert (ocr_of(forced)["hit"], forced.metadata["force"], harness.ocr.calls) == (False, True, 2)
        assert ocr_of(await read(harness, "c.txt"))["task_id"] == forced.id

    async def test_every_attempt_and_the_reconciler_know(self, harness: EtlHarness):
        await read(harness)
        ocr = OcrThatFails(harness.deps.blobs, OSError("no"), times=1)
        harness.set(provider=ocr)
        task = await harness.submit("b.txt", text=SAME, force=True)
        await harness.work()
        await harness.lose_run_state(task)
        await harness.reconcile()
        harness.clock.advance(seconds=20)
        await harness.work()
        assert ocr_of(await harness.row(task))["hit"] is False
        assert ocr.calls == 2

    async def test_a_retry_without_it_uses_the_memory_after_a_failure(self, harness: EtlHarness):
        harness.set(provider=OcrThatFails(harness.deps.blobs, Invalid(reason="no"), times=1))
        failed = await read(harness, force=True)
        other = await read(harness, "b.txt")
        await actions.retry_task(harness.deps, ANNA, failed.id, RetryOptions())
        await harness.work()
        row = await harness.row(failed)
        assert (row.status, ocr_of(row)["task_id"]) == (Status.COMPLETED, other.id)
        assert "force" not in row.metadata

    async def test_a_retry_from_ocr_reads_the_document_again_whoever_has_read_it(self, harness: EtlHarness):
        harness.set(provider=OcrThatFails(harness.deps.blobs, Invalid(reason="no"), times=1))
        failed = await read(harness)
        await read(harness, "b.txt")
        await actions.retry_task(harness.deps, ANNA, failed.id, RetryOptions(from_stage=Stage.OCR))
        await harness.work()
        assert ocr_of(await harness.row(failed)) == {"hit": False, "task_id": None, "key": ocr_of(failed)["key"]}

    async def test_a_retry_by_force_says_so_and_forgets_what_was_said_of_the_memory(self, harness: EtlHarness):
        await read(harness)
        second = await read(harness, "b.txt")
        again = await actions.retry_task(harness.deps, ANNA, second.id, RetryOptions(from_stage=Stage.OCR, force=True))
        assert again.metadata["force"] is True
        assert "cache" not in again.metadata
        await harness.work()
        assert ocr_of(await harness.row(second))["hit"] is False


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

    async def test_artifacts_from_before_the_cache_are_read(self, harness: EtlHarness):
        task = await read(harness)
        done = await artifacts.find_ocr(harness.deps.blobs, task)
        assert done is not None
        reading = done.reading
        await harness.deps.blobs.put(artifacts.reading_key(task), msgspec.json.encode({"run": 1, "reading": reading}))
        assert await artifacts.find_ocr(harness.deps.blobs, task) == OcrCommit(run=1, reading=reading)
        assert ocr_of(await read(harness, "b.txt"))["hit"] is False

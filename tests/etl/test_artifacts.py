"""Deleting artifacts, and publishing results by filename."""

from pathlib import Path

import pytest

from penstock.adapters.disk import DiskBlobs
from penstock.etl import artifacts
from penstock.etl.api import actions
from penstock.etl.artifacts import drop
from penstock.etl.domain import EtlTask
from penstock.etl.submit import NewTask
from penstock.kernel.blobs import BlobPage
from tests.etl.harness import ANNA, EtlHarness, on_both_profiles
from tests.fakes.ocr import EchoOcr


class BlobsInShortPages(DiskBlobs):
    """Lists two blobs per page."""

    async def list(self, prefix: str, *, after: str | None = None, limit: int = 2) -> BlobPage:
        return await super().list(prefix, after=after, limit=limit)


async def test_everything_below_a_prefix_goes_however_many_pages_it_takes_to_list(tmp_path: Path):
    blobs = BlobsInShortPages(tmp_path)
    for name in ("1/a", "1/b", "1/c/d", "1/c/e", "1/f", "10/a"):
        await blobs.put(f"papers/{name}", b"x")
    await drop(blobs, "papers/1/")
    assert [blob.key for blob in (await blobs.list("papers/")).blobs] == ["papers/10/a"]
    await drop(blobs, "papers/1/")


@on_both_profiles
async def test_a_result_by_name_stays_that_of_a_later_task(harness: EtlHarness):
    ocr, slow, working = await harness.paused(before_page=2)
    harness.set(provider=EchoOcr(harness.deps.blobs))
    await harness.deps.blobs.put("users/5/raw/3/other.txt", b"later")
    later = NewTask(project_id=3, filename=slow.filename, s3_key="users/5/raw/3/other.txt")
    quick = await actions.submit_task(harness.deps, ANNA, later)
    await harness.work()
    public = artifacts.public_key_of(quick)
    assert ((await harness.row(quick)).result or {})["output_path"] == public
    before = await harness.deps.blobs.get(public)
    ocr.go_on.set()
    await working
    await harness.work()
    row = await harness.row(slow)
    assert row.result is not None
    assert row.result["output_path"] == artifacts.result_key(row) != public
    assert await harness.deps.blobs.get(public) == before
    assert len(await harness.deps.blobs.get(artifacts.result_key(row))) == row.result["output_size"]


@on_both_profiles
@pytest.mark.parametrize("is_removed", [False, True])
async def test_a_result_by_name_is_given_back_to_a_later_task_that_is_completed_meanwhile(
    harness: EtlHarness, monkeypatch: pytest.MonkeyPatch, is_removed: bool
):
    copy, later = harness.deps.blobs.copy, list[EtlTask]()

    async def slow_copy(source: str, target: str) -> None:
        if target == public and not later:
            later.append(await harness.submit("a.txt", text="later"))
            await harness.work()
            if is_removed:
                await harness.deps.blobs.delete(artifacts.result_key(later[0]))
        await copy(source, target)

    early = await harness.submit("a.txt", text="early")
    public = artifacts.public_key_of(early)
    monkeypatch.setattr(harness.deps.blobs, "copy", slow_copy)
    await harness.work()
    row = await harness.row(early)
    assert row.result is not None
    shown = early if is_removed else later[0]
    assert f"/{shown.id}/".encode() in await harness.deps.blobs.get(public)
    assert row.result["output_path"] == (public if is_removed else artifacts.result_key(row))

"""The staging area on disk: a lock keeps late writers of other processes out."""

from pathlib import Path

import pytest

from penstock.adapters.disk import DiskBlobs, DiskStaging
from penstock.kernel.blobs import BadBlobRange
from penstock.kernel.staging import StagedObject, StagedObjectBusy, StagedObjectNotFound
from tests.fakes.blocking_handler import wait_until
from tests.storms import processes
from tests.storms.staged_writer import hold_open

KEY = "uploads/upl_1"


@pytest.fixture
def staging(tmp_path: Path) -> DiskStaging:
    return DiskStaging(tmp_path / "blobs")


async def begun(staging: DiskStaging) -> StagedObject:
    return await staging.begin(KEY, max_bytes=100)


async def test_a_second_writer_is_refused_until_the_first_has_closed(staging: DiskStaging):
    staged = await begun(staging)
    async with staging.append(staged, offset=0) as first:
        await first.write(b"abc")
        with pytest.raises(StagedObjectBusy):
            async with staging.append(staged, offset=3):
                pass
        with pytest.raises(StagedObjectBusy):
            await staging.seal(staged, size_bytes=3)
    async with staging.append(staged, offset=3) as second:
        await second.write(b"def")
        await second.seal()


async def test_a_frozen_process_keeps_its_lock_and_a_killed_one_loses_it(staging: DiskStaging, tmp_path: Path):
    staged = await begun(staging)
    frozen = processes.start(hold_open, tmp_path, KEY)
    await wait_until((tmp_path / "open").exists, seconds=60)
    processes.freeze(frozen)
    with pytest.raises(StagedObjectBusy):
        async with staging.append(staged, offset=3):
            pass
    processes.kill(frozen)
    async with staging.append(staged, offset=3) as writer:
        await writer.write(b"def")
        await writer.seal()
    assert await DiskBlobs(tmp_path / "blobs").get(KEY) == b"abcdef"


async def test_a_writer_opens_at_the_end_only(staging: DiskStaging):
    staged = await begun(staging)
    for offset in (1, 100):
        with pytest.raises(BadBlobRange, match="0 bytes are stored"):
            async with staging.append(staged, offset=offset):
                pass


async def test_a_sealed_file_cannot_be_opened_for_writing(staging: DiskStaging, tmp_path: Path):
    staged = await begun(staging)
    async with staging.append(staged, offset=0) as writer:
        await writer.write(b"abc")
        await writer.seal()
    with pytest.raises(StagedObjectNotFound):
        async with staging.append(staged, offset=3):
            pass
    assert await DiskBlobs(tmp_path / "blobs").get(KEY) == b"abc"

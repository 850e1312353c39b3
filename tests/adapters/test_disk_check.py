"""The health check of the local directory, and its missing links."""

import os
from pathlib import Path

import pytest

from penstock.adapters.disk import DiskBlobs
from penstock.kernel.blobs import Blobs, BlobsUnavailable
from penstock.kernel.errors import DiskFull


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


async def test_a_folder_that_can_be_written_to_is_well_and_stays_clean(root):
    await DiskBlobs(root).check()
    assert [path.name for path in root.rglob("*")] == ["incoming"]


async def test_a_folder_that_cannot_be_written_to_is_told(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BlobsUnavailable, match="Not a directory") as failed:
        await DiskBlobs(tmp_path / "file").check()
    assert failed.value.internal_outage


async def test_a_full_disk_is_told_and_left_clean(root, monkeypatch):
    full = os.open("/dev/full", os.O_WRONLY)  # the kernel's own full disk
    real_write = os.write

    def no_space(file: int, content: bytes) -> int:
        return real_write(full, content)

    monkeypatch.setattr(os, "write", no_space)
    with pytest.raises(DiskFull):
        await DiskBlobs(root).check()
    os.close(full)
    assert [path.name for path in root.rglob("*")] == ["incoming"]


async def test_a_disk_has_no_links(root):
    blobs: Blobs = DiskBlobs(root)
    await blobs.put("a", b"x")
    assert await blobs.link("a", seconds=60) is None
    assert await blobs.upload_link("a", seconds=60) is None

"""Objects of a local directory, opened as files."""

import errno
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.adapters.disk import DiskBlobs
from penstock.kernel.blobs import BlobNotFound

MIB = 1024 * 1024


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def blobs(root: Path) -> DiskBlobs:
    return DiskBlobs(root)


def drafts(root: Path) -> list[Path]:
    return list((root / "incoming").iterdir())


async def test_an_opened_file_is_the_object_itself_and_not_a_copy(blobs, root):
    await blobs.put("a/b", b"x" * MIB)
    async with blobs.open_file("a/b", suffix=".pdf") as path:
        assert path.suffix == ".pdf"
        assert path.samefile(root / "objects/a~/b")
    assert drafts(root) == []


async def test_an_opened_file_keeps_its_content_when_the_object_is_replaced_or_deleted(blobs, root):
    await blobs.put("a", b"first")
    async with blobs.open_file("a", suffix=".pdf") as path:
        await blobs.put("a", b"second")
        assert path.read_bytes() == b"first"
        await blobs.delete("a")
        assert path.read_bytes() == b"first"
    assert drafts(root) == []


async def test_an_opened_file_is_missing_as_its_object(blobs, root):
    await blobs.put("b", b"")
    with pytest.raises(BlobNotFound):
        async with blobs.open_file("a", suffix=".pdf"):
            raise AssertionError
    assert drafts(root) == []


async def test_an_opened_file_is_not_there_where_the_file_system_has_no_hard_links(blobs, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EPERM, "no hard links")

    await blobs.put("a", b"x")
    monkeypatch.setattr(os, "link", refuse)
    async with blobs.open_file("a", suffix=".pdf") as path:
        assert path is None


async def test_an_opened_file_is_swept_a_week_later_than_a_write_that_a_crash_left(blobs, root):
    await blobs.put("a", b"x")
    async with blobs.open_file("a", suffix=".pdf") as path:
        opened_at = datetime.fromtimestamp(path.stat().st_ctime, tz=UTC)
        assert await blobs.sweep(opened_at + timedelta(days=6)) == 0
        assert await blobs.sweep(opened_at + timedelta(days=8)) == 1
    assert await blobs.get("a") == b"x"

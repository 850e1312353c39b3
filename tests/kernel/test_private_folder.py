"""Data folders are for the user of the process only, whatever the umask."""

import asyncio
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.documents import blob_files
from penstock.documents.blob_files import temporary_file
from penstock.kernel.private_folder import make_private_folder
from penstock.settings import Settings
from penstock.wiring import open_runtime


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """A umask that denies nothing."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(root: Path) -> dict[str, int]:
    """The mode of every folder below a root."""
    return {str(path.relative_to(root)): path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_dir()}


def test_a_new_folder_and_those_above_it_are_private(tmp_path: Path):
    make_private_folder(tmp_path / "a" / "b")
    make_private_folder(tmp_path / "a" / "b")
    assert modes(tmp_path) == {"a": 0o700, "a/b": 0o700}


async def test_every_folder_of_a_data_folder_is_private(tmp_path: Path):
    settings = Settings(data_dir=tmp_path / "home" / "data")
    async with open_runtime(settings) as runtime:
        await runtime.blobs.put("users/1/raw/letter.txt", b"Dear all")
        async with temporary_file(runtime.modules.etl.scratch):
            found = modes(tmp_path)
    assert set(found.values()) == {0o700}
    assert len(found) > 5


async def test_a_folder_that_others_may_enter_is_reported_and_left_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    shared = tmp_path / "data"
    shared.mkdir(0o750)
    with caplog.at_level(logging.WARNING):
        async with open_runtime(Settings(data_dir=shared)):
            pass
    assert f"other users may enter the data folder {shared} (mode 750)" in caplog.text
    assert shared.stat().st_mode & 0o777 == 0o750


async def test_a_temporary_file_in_use_stays_young(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(blob_files, "RENEW_SECONDS", 0.001)
    async with temporary_file(tmp_path) as path:
        os.utime(path, (0, 0))
        async with asyncio.timeout(30):
            while path.stat().st_mtime == 0:  # noqa: ASYNC110  (renewed in the background)
                await asyncio.sleep(0.001)
    assert not path.exists()

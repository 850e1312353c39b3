"""A runtime on SQLite in a temporary folder, without Redis or an object store."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.settings import Settings
from penstock.wiring import Runtime, open_runtime


@pytest.fixture
def settings(tmp_path: Path, sqlite_template: Path) -> Settings:
    """Settings with a copy of a migrated database: migrating would take longer than most tests."""
    (tmp_path / "data").mkdir()
    shutil.copy(sqlite_template, tmp_path / "data")
    return Settings(data_dir=tmp_path / "data", grace_seconds=1.0)


@pytest.fixture
async def runtime(settings: Settings) -> AsyncIterator[Runtime]:
    """An open runtime."""
    async with open_runtime(settings) as opened:
        yield opened

"""Houses to serve: on SQLite in a folder of the test's own, without any service."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.settings import Settings
from penstock.wiring import Runtime, open_runtime


@pytest.fixture
def settings(tmp_path: Path, sqlite_template: Path) -> Settings:
    """The settings of a house for a test. Its database is migrated, which would take longer than most tests."""
    (tmp_path / "data").mkdir()
    shutil.copy(sqlite_template, tmp_path / "data")
    return Settings(data_dir=tmp_path / "data", grace_seconds=1.0)


@pytest.fixture
async def house(settings: Settings) -> AsyncIterator[Runtime]:
    """An open house."""
    async with open_runtime(settings) as opened:
        yield opened

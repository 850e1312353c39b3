"""A release with a schema step that old processes can live with leaves them ready; any other tells them to stop."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.kernel.db import Db
from penstock.kernel.migrations import DatabaseNewer, migrate, pending
from penstock.web import probes
from penstock.web.health import HealthChecker

STEP = """
from alembic import op
revision = "{revision}"
down_revision = {parent!r}
compatible = {compatible}
def upgrade():
    op.execute("CREATE TABLE {revision} (id INTEGER)")
"""


def release(folder: Path, *steps: tuple[str, bool]) -> list[Path]:
    """The migrations of a release: revisions in order, and whether each is compatible."""
    folder.mkdir()
    parent: str | None = None
    for revision, compatible in steps:
        step = STEP.format(revision=revision, parent=parent, compatible=compatible)
        (folder / f"{revision}.py").write_text(step)
        parent = revision
    return [folder]


async def find_unready(db: Db, folders: Sequence[Path]) -> dict[str, str]:
    return await HealthChecker([probes.migrations(db, folders)], version="1").find_unready()


async def test_an_old_process_stays_ready_after_compatible_steps(db: Db, tmp_path: Path):
    old = release(tmp_path / "old", ("one", False))
    new = release(tmp_path / "new", ("one", False), ("two", True), ("three", True))
    await migrate(db, old)
    assert await migrate(db, new) == ["two", "three"]
    assert await pending(db, old) == await migrate(db, old) == []
    assert await find_unready(db, old) == {}


async def test_an_old_process_is_not_ready_after_a_step_that_it_cannot_live_with(db: Db, tmp_path: Path):
    old = release(tmp_path / "old", ("one", False))
    new = release(tmp_path / "new", ("one", False), ("two", False), ("three", True))
    await migrate(db, old)
    await migrate(db, new)
    with pytest.raises(DatabaseNewer, match="three"):
        await pending(db, old)
    assert await find_unready(db, old) == {"migrations": "newer than this program"}


async def test_a_new_process_still_waits_for_its_steps(db: Db, tmp_path: Path):
    old = release(tmp_path / "old", ("one", False))
    new = release(tmp_path / "new", ("one", False), ("two", True))
    await migrate(db, old)
    assert await pending(db, new) == ["two"]
    assert await find_unready(db, new) == {"migrations": ""}  # their names are for callers with a key

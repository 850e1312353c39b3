"""The import contracts hold, and would notice if they were broken."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checks import tree


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """Run the contracts on the package under `root`."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    return subprocess.run(
        command, cwd=root, env={"PYTHONPATH": str(root / "src")}, capture_output=True, text=True, check=False
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package and its contracts, free to be spoilt."""
    shutil.copy(tree.ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(tree.SRC, tmp_path / "src" / "penstock", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    """Add a file to the copied package, with the packages it lies in."""
    path = root / "src" / "penstock" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / "__init__.py").touch()
    path.write_text(text)


def test_the_contracts_hold():
    result = lint_imports(tree.ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        pytest.param({"helpers.py": ""}, "helpers", id="a stray module"),
        pytest.param(
            {"etl/stray.py": "", "gateway/stray.py": "import penstock.etl.stray\n"},
            "penstock.gateway is not allowed to import penstock.etl",
            id="a module that imports a module",
        ),
        pytest.param(
            {"tasks/stray.py": "", "kernel/stray.py": "from penstock.tasks import stray\n"},
            "penstock.kernel is not allowed to import penstock.tasks",
            id="a kernel that imports a module",
        ),
        pytest.param(
            {"ingest/stray.py": "from penstock.settings import Settings\n"},
            "penstock.ingest.stray -> penstock.settings",
            id="a module that imports the settings",
        ),
        pytest.param(
            {"kernel/stray.py": "import fastapi\n"},
            "penstock.kernel is not allowed to import fastapi",
            id="a kernel that knows the web framework",
        ),
    ],
)
def test_the_contracts_catch(copy: Path, files: dict[str, str], fault: str):
    for name, text in files.items():
        write(copy, name, text)
    result = lint_imports(copy)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "BROKEN" in result.stdout
    assert fault in result.stdout, result.stdout

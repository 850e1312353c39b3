"""`penstock --help`, `--version` and shell completion start quickly: they import nothing heavy."""

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

PENSTOCK = str(Path(sys.executable).with_name("penstock"))
BASELINE = (sys.executable, "-c", "import typer, rich")
MAX_RATIO = 1.6  # CPU seconds beside those of the baseline
ROUNDS = 7
HEAVY = {"aiohttp", "alembic", "fastapi", "numpy", "obstore", "onnxruntime", "redis", "sqlalchemy"}
HEAVY |= {"penstock.web", "penstock.wiring"}
COMPLETION = {"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": "penstock ke", "COMP_CWORD": "1"}


def cpu_seconds(command: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_it_takes_little_more_cpu_than_importing_typer_and_rich(argument: str):
    # The least of several runs, taken in turns: a busy machine slows both alike.
    pairs = [(cpu_seconds(BASELINE), cpu_seconds((PENSTOCK, argument))) for _ in range(ROUNDS)]
    baseline, ours = (min(column) for column in zip(*pairs, strict=True))
    assert ours <= MAX_RATIO * baseline, f"{ours:.3f} s beside {baseline:.3f} s"


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_it_imports_no_heavy_package(argument: str):
    assert not imported_by(argument) & (HEAVY | {"asyncio", "msgspec", "penstock.settings", "rich.console"})


@pytest.mark.parametrize("group", ["keys", "tasks", "etl"])
def test_the_help_of_a_group_imports_no_heavy_package(group: str):
    assert not imported_by(group, "--help") & HEAVY


def test_shell_completion_imports_no_heavy_package():
    assert not imported_by(**COMPLETION) & HEAVY  # Typer itself imports Rich and pydantic for it


def imported_by(*arguments: str, **env: str) -> set[str]:
    """The modules that a command imports."""
    command = (sys.executable, "-X", "importtime", PENSTOCK, *arguments)
    ended = subprocess.run(command, env=os.environ | env, capture_output=True, text=True, check=False)
    assert ended.stdout, ended.stderr
    lines = [line for line in ended.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}

"""The command line: help for every command, and errors as messages without a traceback."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.wiring import MODULES
from tests.journeys.command import environment, free_port, run


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["serve"],
        ["work"],
        ["migrate"],
        ["demo"],
        ["keys"],
        ["keys", "create"],
        ["doctor"],
        ["jobs"],
        ["messages", "resend"],
        ["periodic"],
        ["processes"],
    ],
)
def test_every_command_has_help(command: list[str]):
    shown = run(*command, "--help")
    assert shown.returncode == 0
    assert "--help" in shown.stdout


def test_the_version_is_shown():
    assert run("--version").stdout.startswith("penstock 0.")


def test_shell_completion_lists_commands():
    asked = environment(_PENSTOCK_COMPLETE="complete_bash", COMP_WORDS="penstock ke", COMP_CWORD="1")
    script = Path(sys.executable).with_name("penstock")
    shown = subprocess.run([script], env=asked, capture_output=True, text=True, timeout=100, check=False)
    assert shown.stdout.split() == ["keys"]


@pytest.mark.parametrize("flag", ["--modules", "--rooms"])  # the second is the former name
def test_an_unknown_module_is_refused_and_the_known_ones_are_listed(flag: str):
    refused = run("work", flag, "kitchen")
    assert refused.returncode == 2
    assert "kitchen" in refused.stderr
    assert ", ".join(MODULES) in " ".join(refused.stderr.replace("│", "").split())


def test_the_help_of_work_shows_how_modules_are_named_and_no_former_flag():
    shown = run("work", "--help").stdout
    example = re.search(r"such as: ([a-z,]+)\.", " ".join(shown.split()))
    assert example is not None
    assert {*example[1].split(",")} < {*MODULES}
    assert "--rooms" not in shown


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"PENSTOCK_WORKERS": "many"}, "Invalid PENSTOCK_WORKERS 'many': expected an integer"),
        ({"PENSTOCK_DATABASE_URL": "mysql://somewhere"}, "mysql is neither postgresql nor sqlite"),
        ({"PENSTOCK_DATA_DIR": "/proc/nowhere"}, "cannot be stored in /proc/nowhere"),
        ({"PENSTOCK_BLOBS_URL": "ftp://somewhere"}, "PENSTOCK_BLOBS_URL"),
        ({"PENSTOCK_DATABASE_URL": "postgresql://me:hunter2@127.0.0.1:1/x"}, "cannot be reached"),
    ],
)
def test_a_wrong_setting_is_named_without_a_traceback_or_a_secret(settings: dict[str, str], told: str, tmp_path: Path):
    refused = run("serve", "--port", str(free_port()), cwd=tmp_path, **settings)
    assert refused.returncode == 1
    assert told in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "hunter2" not in refused.stderr


def test_migrating_twice_takes_the_steps_once(tmp_path: Path):
    first = run("migrate", PENSTOCK_DATA_DIR=str(tmp_path))
    second = run("migrate", PENSTOCK_DATA_DIR=str(tmp_path))
    assert "migrated: 0001" in first.stdout
    assert "up to date" in second.stdout


def test_a_file_that_is_no_database_is_named(tmp_path: Path):
    (tmp_path / "penstock.db").write_text("not a database at all, but long enough to look at " * 40)
    refused = run("work", PENSTOCK_DATA_DIR=str(tmp_path))
    assert refused.returncode == 1
    assert "file is not a database" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    "command",
    [["work"], ["keys", "list"], ["keys", "revoke", "k"], ["jobs", "list"], ["messages", "list"], ["periodic", "list"],
     ["processes"], ["doctor"]],
    ids=" ".join,
)  # fmt: skip
def test_looking_creates_nothing_and_names_the_folder(command: list[str], tmp_path: Path):
    looked = run(*command, "--data-dir", "here", cwd=tmp_path)
    assert str(tmp_path / "here") in looked.stdout + looked.stderr
    assert looked.returncode == (0 if command == ["doctor"] else 1)
    assert "Traceback" not in looked.stderr
    assert list(tmp_path.iterdir()) == []

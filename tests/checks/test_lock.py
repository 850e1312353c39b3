"""The lock is complete, and holds names and hashes only."""

import re
import tomllib

from tests.checks import tree

PIN = re.compile(r"(?P<name>[a-z0-9-]+)==[^ ]+(?: ; [^\\]+)? \\")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}(?: \\)?")


def lock_lines() -> list[str]:
    return (tree.ROOT / "requirements.lock").read_text().splitlines()


def test_the_lock_holds_names_and_hashes_only():
    stray = [line for line in lock_lines() if not PIN.fullmatch(line) and not HASH.fullmatch(line)]
    assert not stray, f"run `make lock`: {stray}"


def test_the_lock_names_every_dependency():
    project = tomllib.loads((tree.ROOT / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"] + project["dependency-groups"]["dev"]
    names = {re.split(r"[\[<>=! ;]", requirement)[0] for requirement in wanted}
    locked = {match["name"] for line in lock_lines() if (match := PIN.fullmatch(line))}
    assert names <= locked, f"run `make lock`: {names - locked}"

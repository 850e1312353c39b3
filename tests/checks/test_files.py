"""Files stay small, have telling names, and contain nothing of the machine they were written on."""

import re
from pathlib import Path

import pytest

from tests.checks import tree

MAX_LINES = 400
VAGUE = re.compile(r"(?:utils?|helpers?|commons?|bases?|managers?|services?|misc)", re.IGNORECASE)
# Patterns and samples are written so that this file does not contain what it looks for.
OPEN_ENDED = re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X])\b(?!.*#\d)")
REGISTRY = re.compile(r"\b(?:pypi|pythonhosted|npmjs|yarnpkg|npmmirror|anaconda)\.(?:org|com|io)\b", re.IGNORECASE)
MACHINE_PATH = re.compile(r"(?<![\w.~}/-])/(?:work|root|home|Users)/")


def matching_lines(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    found = []
    for path in paths:
        for number, line in enumerate((tree.text_of(path) or "").splitlines(), start=1):
            if pattern.search(line):
                found.append(f"{path.relative_to(tree.ROOT)}:{number}: {line.strip()[:100]}")
    return found


def test_no_python_file_is_longer_than_the_limit():
    lengths = {path: len(path.read_text().splitlines()) for path in tree.python_files("src", "tests", "bench")}
    assert lengths
    long = {str(path.relative_to(tree.ROOT)): count for path, count in lengths.items() if count > MAX_LINES}
    assert not long, f"over {MAX_LINES} lines, cut along nouns or verbs: {long}"


def test_no_file_or_folder_has_a_name_that_invites_everything():
    code = [path for path in tree.files() if path.suffix in {".py", ".ts", ".tsx"}]
    names = [(path, part) for path in code for part in path.relative_to(tree.ROOT).with_suffix("").parts]
    vague = sorted({str(path.relative_to(tree.ROOT)) for path, part in names if VAGUE.fullmatch(part)})
    assert not vague, f"name these by what they do: {vague}"


def test_every_open_end_carries_an_issue_number():
    found = matching_lines(OPEN_ENDED, [path for path in tree.files() if path.suffix != ".md"])
    assert not found, "\n".join(found)


def test_no_file_names_a_package_registry():
    found = matching_lines(REGISTRY, list(tree.files()))
    assert not found, "\n".join(found)


def test_no_file_names_a_path_of_one_machine():
    found = matching_lines(MACHINE_PATH, list(tree.files()))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("pattern", "bad", "good"),
    [
        (OPEN_ENDED, "# TO_DO later", "# TO_DO #12 later"),
        (REGISTRY, "see pypi_.org", "see the registry"),
        (REGISTRY, "resolved: registry.npmjs_.org/x", "npm"),
        (MACHINE_PATH, "cd /_root/x", "GET /api/v1/root/7"),
        (MACHINE_PATH, '"/_home/me/x"', "file:///var/lib/penstock"),
    ],
)
def test_the_patterns_find_what_they_are_for(pattern: re.Pattern[str], bad: str, good: str):
    assert pattern.search(bad.replace("_", ""))
    assert not pattern.search(good.replace("_", ""))

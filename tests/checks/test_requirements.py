"""Every requirement has an id of its own and is shown by a test that exists."""

import re
from collections import Counter
from functools import cache

from tests.checks import tree

ID = re.compile(r"(?:ETL|ING|TSK|GW|ONE)-[1-9][0-9]*")
TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+(?:::\w+)*)")


def requirements() -> list[list[str]]:
    return tree.rows(tree.reference("requirements.md"))


@cache
def defined_in(path: str) -> set[str]:
    full = tree.ROOT / path
    return tree.defined_tests(full) if full.is_file() else set()


def test_every_requirement_is_an_id_a_sentence_and_its_tests():
    rows = requirements()
    assert rows
    odd = [row for row in rows if len(row) != 3 or not ID.fullmatch(row[0]) or not row[1]]
    assert not odd


def test_every_requirement_id_is_used_once():
    counts = Counter(row[0] for row in requirements())
    assert not [name for name, count in counts.items() if count > 1]


def test_every_requirement_names_a_test():
    bare = [row[0] for row in requirements() if not TEST.search(row[-1])]
    assert not bare


def test_every_test_that_a_requirement_names_exists():
    named = [(row[0], path, name) for row in requirements() for path, name in TEST.findall(row[-1])]
    missing = [f"{row}: {path}::{name}" for row, path, name in named if name not in defined_in(path)]
    assert not missing, "\n".join(missing)

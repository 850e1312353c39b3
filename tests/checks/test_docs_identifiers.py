"""Identifiers and file names that the documentation puts in backticks exist."""

import re
from functools import cache
from pathlib import Path

from tests.checks import tree

CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
PLAIN = re.compile(r"[\w./:\-{}\[\]=*]+(?:\(\))?")  # one name, path, address or assignment; longer code is a sample
FILE = re.compile(r"[\w./-]+\.(?:py|md|toml|conf|yaml|yml|lock)")
NAME = re.compile(r"[A-Za-z_]\w{2,}")
# Where a name may come from. Decision records keep the names of their time.
SOURCES = ("src", "bench", "deploy", ".ci", "Makefile", "pyproject.toml", "requirements.lock")
# Commands, AWS actions, MinerU's languages, metrics of the Prometheus client; kinds of events that are put together.
OUTSIDE = re.compile(r"curl|mongoexport|ListBucket|japan|process_\w+|etl_(?:pending|completed|failed|cancelled)")
RECORDS = ("docs/decisions/", "docs/reference/benchmarks.md")


def pages() -> list[Path]:
    found = [path for path in tree.files() if path.suffix == ".md" and path.name != "CHANGELOG.md"]
    return [path for path in found if not path.relative_to(tree.ROOT).as_posix().startswith(RECORDS)]


@cache
def known_words() -> frozenset[str]:
    words: set[str] = set()
    for path in tree.files():
        if path.relative_to(tree.ROOT).parts[0] in SOURCES:
            words.update(NAME.findall(tree.text_of(path) or ""))
            words.update(NAME.findall(path.as_posix()))
    return frozenset(words)


@cache
def known_paths() -> frozenset[str]:
    return frozenset(path.relative_to(tree.ROOT).as_posix() for path in tree.files())


def missing_in(code: str) -> list[str]:
    """The parts of a code span that stand for something in the repository and are not there."""
    if not PLAIN.fullmatch(code):
        return []
    if FILE.fullmatch(code):
        found = any(path == code or path.endswith("/" + code) for path in known_paths())
        return [] if found else [code]
    return [name for name in NAME.findall(code) if not is_known(name)]


def is_known(name: str) -> bool:
    """Prometheus appends _total to the name of a counter, and the envelope spells fields in camel case."""
    spellings = {name, name.strip("_"), name.removesuffix("_total"), re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()}
    return bool(spellings & known_words() or OUTSIDE.fullmatch(name))


def test_every_identifier_in_backticks_exists():
    missing = [
        f"{page.relative_to(tree.ROOT)}: `{code}`"
        for page in pages()
        for code in CODE.findall(tree.prose(page.read_text(encoding="utf-8")))
        if missing_in(code)
    ]
    assert not missing, "\n".join(missing)


def test_a_stale_identifier_is_found():
    assert missing_in("kernel/no_such_file" + ".py")
    assert missing_in("Runtime.no_such" + "_attribute")
    assert not missing_in("kernel/scheduler.py")
    assert not missing_in("open_runtime()")

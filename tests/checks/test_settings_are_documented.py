"""Every setting is on its page with its default, the page invents none, and one file reads the environment."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from penstock.settings import describe
from tests.checks import tree

NAME = re.compile(r"\b(?:PENSTOCK|GW|ETL|MINERU|LLM|PULL|INGEST)_(?:[A-Z0-9_]*[A-Z0-9])\b")
READS_ENVIRONMENT = {"environ", "environb", "getenv", "getenvb"}


def environment_reads(path: Path) -> Iterator[int]:
    """The lines on which a file touches the environment, other than to empty it."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    emptied = {node.value for node in nodes if isinstance(node, ast.Attribute) and node.attr == "clear"}
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in READS_ENVIRONMENT and node not in emptied:
            yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from (node.lineno for alias in node.names if alias.name in READS_ENVIRONMENT)


def test_every_setting_is_documented_with_its_default():
    settings = describe()
    assert settings
    documented = {row[0]: row[1] for row in tree.rows(tree.reference("settings.md"))}
    missing = {setting.env: setting.default for setting in settings if documented.get(setting.env) != setting.default}
    assert not missing, f"missing in docs/reference/settings.md, or with another default: {missing}"


def test_every_setting_has_its_own_name_and_a_sentence():
    settings = describe()
    names = [setting.env for setting in settings]
    assert sorted(names) == sorted(set(names))
    assert not [setting.env for setting in settings if not setting.doc.strip().endswith(".")]


def test_the_page_names_no_setting_that_does_not_exist():
    # An older name that is still honoured is told of in the sentence of the new one.
    known = {name for setting in describe() for name in [setting.env, *NAME.findall(setting.doc)]}
    invented = set(NAME.findall(tree.reference("settings.md"))) - known
    assert not invented, f"docs/reference/settings.md names what does not exist: {invented}"


def test_only_the_settings_read_the_environment():
    reads = {path: list(environment_reads(path)) for path in tree.python_files("src")}
    assert reads.pop(tree.SRC / "settings/environment.py"), "this test looks for the wrong thing: that file reads it"
    strays = {str(path.relative_to(tree.ROOT)): lines for path, lines in reads.items() if lines}
    assert not strays, f"take a setting instead: {strays}"

"""The rules for Prometheus can be read, and speak of figures that exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checks import tree
from tests.checks.test_metrics_are_documented import documented_names

RULES = sorted((tree.ROOT / "deploy" / "prometheus").glob("*.rules.yml"))
LINE = re.compile(r'(?P<indent> *)(?P<dash>- )?(?P<key>[a-z_]+):(?: (?P<value>[^\s"].*|"[^"]*"))?')
NAME = re.compile(r"\bpenstock_\w+")
OF_HISTOGRAMS = re.compile(r"_(bucket|sum|count)$")
PAIRS = {"(": ")", "[": "]", "{": "}"}


def rules(path: Path) -> list[dict[str, str]]:
    """The rules of a file in the plainest YAML there is: keys, plain or quoted values, lists by dashes."""
    found: list[dict[str, str]] = []
    for indent, key, value in _lines(path):
        if key == "alert":
            found.append({})
        if found:
            found[-1][key] = value
        assert indent % 2 == 0, f"{path.name}: {key} is indented by {indent}"
    return found


def _lines(path: Path) -> Iterator[tuple[int, str, str]]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        read = LINE.fullmatch(line)
        assert read, f"{path.name}:{number} is no plain YAML: {line}"
        value = read["value"] or ""
        assert value.startswith('"') or (": " not in value and " #" not in value), f"{path.name}:{number}: quote it"
        yield len(read["indent"]) + len(read["dash"] or ""), read["key"], value.strip('"')


def balanced(expression: str) -> bool:
    ahead: list[str] = []
    for mark in re.sub(r'"[^"]*"', "", expression):
        if mark in PAIRS:
            ahead.append(PAIRS[mark])
        elif mark in PAIRS.values() and (not ahead or ahead.pop() != mark):
            return False
    return not ahead


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
class TestRulesFile:
    def test_every_rule_says_what_it_looks_at_for_how_long_and_what_it_means(self, path: Path):
        for rule in rules(path):
            assert {"alert", "expr", "for", "severity", "summary", "description"} <= rule.keys(), rule
            assert re.fullmatch(r"\d+[smh]", rule["for"]), rule
            assert balanced(rule["expr"]), rule

    def test_the_alarms_have_names_of_their_own(self, path: Path):
        names = [rule["alert"] for rule in rules(path)]
        assert names
        assert len(names) == len(set(names))

    def test_they_speak_only_of_figures_that_exist(self, path: Path):
        known = documented_names()
        used = {name for rule in rules(path) for name in NAME.findall(rule["expr"])}
        assert used
        invented = {name for name in used if name not in known and OF_HISTOGRAMS.sub("", name) not in known}
        assert not invented


def test_there_are_rules_for_what_tasks_are_watched_for():
    [path] = [path for path in RULES if path.name == "penstock-tasks.rules.yml"]
    watched = {name for rule in rules(path) for name in NAME.findall(rule["expr"])}
    assert watched >= {
        "penstock_pull_success_ratio",
        "penstock_pulls_overdue",
        "penstock_pull_requests_total",
        "penstock_queue_operations_total",
    }


@pytest.mark.parametrize("line", ["key: value: other", "\tkey: value", "- item", 'key: "open', "key: value # words"])
def test_what_is_no_plain_yaml_is_found(tmp_path: Path, line: str):
    (tmp_path / "bad.rules.yml").write_text(f"alert: One\n{line}\n", encoding="utf-8")
    with pytest.raises(AssertionError):
        rules(tmp_path / "bad.rules.yml")

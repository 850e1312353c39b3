"""`penstock etl rules`."""

import asyncio
from contextlib import chdir
from pathlib import Path

import pytest
from msgspec import json
from typer.testing import CliRunner, Result

from penstock.access.domain import Caller, Scope
from penstock.cli.etl import app, session
from penstock.cli.etl.session import caller, find_rule_id
from penstock.etl.api import actions
from penstock.etl.domain import Mode, RuleBody
from penstock.etl.errors import BadRule, EtlTaskNotFound, RuleNotFound, SystemRule
from penstock.settings import Settings
from penstock.wiring import open_runtime
from tests.journeys.command import run

pytestmark = pytest.mark.timeout(240)

SCHEMA = {
    "type": "object",
    "properties": {
        "number": {"type": "string", "title": "Invoice No."},
        "total": {"type": "number", "title": "Total"},
    },
}
RULE = {"name": "bills", "description": "What is to be paid.", "postprocess_mode": "fields", "json_schema": SCHEMA}
BILL = "# Bill\n\nInvoice No.: 2026-17\n\nTotal: 90.00\n"


class Terminal:
    """A terminal, with a rule, a schema and a bill in files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = {"PENSTOCK_DATA_DIR": str(folder / "data"), "ETL_OCR_PROFILE": "fast"}
        for name, content in (("rule.json", RULE), ("schema.json", SCHEMA)):
            (folder / name).write_bytes(json.encode(content))
        (folder / "bill.md").write_text(BILL)

    def rules(self, *arguments: object) -> Result:
        """`penstock etl rules …`, to its end."""
        return self.etl("rules", *arguments)

    def etl(self, *arguments: object) -> Result:
        """`penstock etl …`, to its end."""
        with chdir(self.folder):
            return CliRunner().invoke(app, [str(one) for one in arguments], env=self.settings)

    def listed(self) -> list[list[str]]:
        """The rules, by their cells."""
        return [line.split("\t") for line in self.rules("list").stdout.splitlines()]


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


@pytest.fixture(scope="module")
def with_rule(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """With the rule added, for tests that only try it: each command that checks a rule starts a sandbox."""
    terminal = Terminal(tmp_path_factory.mktemp("ruled"))
    assert terminal.rules("add", "rule.json").exit_code == 0
    return terminal


def test_a_rule_is_added_from_a_file_listed_shown_and_removed(terminal: Terminal):
    added = terminal.rules("add", "rule.json")
    assert (added.exit_code, added.stdout) == (0, "1\tv1\tfields\tuser 1\tbills\tWhat is to be paid.\n"), added.stderr
    assert [row[0] for row in terminal.listed()] == ["0", "1"]
    assert terminal.rules().stdout == terminal.rules("list").stdout
    shown = terminal.rules("show", "bills")
    assert json.decode(shown.stdout) == RULE
    assert shown.stderr == "rule 1, version 1, owner user 1\n"
    assert terminal.rules("remove", 1).stdout == "1\tremoved\n"
    assert [row[0] for row in terminal.listed()] == ["0"]
    assert isinstance(terminal.rules("show", 1).exception, RuleNotFound)


def test_what_is_shown_can_be_added_again(terminal: Terminal, with_rule: Terminal):
    (terminal.folder / "again.json").write_text(with_rule.rules("show", 1).stdout)
    assert terminal.rules("add", "again.json").exit_code == 0
    assert json.decode(terminal.rules("show", 1).stdout) == RULE


def test_a_rule_is_added_from_a_name_and_a_schema(terminal: Terminal):
    added = terminal.rules(
        "add", "--name", "bills", "--schema", "schema.json", "--mode", "fields", "--description", "Pay"
    )
    assert added.stdout == "1\tv1\tfields\tuser 1\tbills\tPay\n"
    assert json.decode(terminal.rules("show", 1).stdout)["json_schema"] == SCHEMA
    assert terminal.rules("add", "--name", "read only", "--mode", "skip").stdout.startswith("2\tv1\tskip\t")


def test_a_rule_is_tried_on_a_text(with_rule: Terminal):
    tried = with_rule.rules("try", "bills", "bill.md")
    assert tried.exit_code == 0, tried.stderr
    assert json.decode(tried.stdout) == {"number": "2026-17", "total": 90}
    assert [line.split() for line in tried.stderr.splitlines()] == [["number", "page", "1"], ["total", "page", "1"]]


def test_a_rule_is_tried_on_a_document_that_was_read(with_rule: Terminal):
    assert with_rule.etl("submit", "bill.md", "--wait").exit_code == 0
    assert json.decode(with_rule.rules("try", 1, "--task", 1).stdout) == {"number": "2026-17", "total": 90}
    assert isinstance(with_rule.rules("try", 1, "--task", 2).exception, EtlTaskNotFound)


def test_what_a_document_says_cannot_move_the_cursor(with_rule: Terminal):
    (with_rule.folder / "evil.md").write_text("Invoice No.: 20\u009b2J17\n\nTotal: 90.00\n")
    tried = with_rule.rules("try", 1, "evil.md").stdout
    assert "\u009b" not in tried
    assert json.decode(tried)["number"].startswith("20")


def test_an_invalid_rule_is_reported(terminal: Terminal):
    (terminal.folder / "prose.json").write_text("not JSON at all")
    (terminal.folder / "list.json").write_text("[1]")
    assert isinstance(terminal.rules("add", "prose.json").exception, BadRule)
    for schema in ("prose.json", "list.json"):
        refused = terminal.rules("add", "--name", "x", "--schema", schema)
        assert isinstance(refused.exception, BadRule)
        assert f"{schema} is not a JSON object" in str(refused.exception)
    (terminal.folder / "long.json").write_text(f'{{"type": "object", "title": "{"x" * 1024 * 1024}"}}')
    assert "is longer than" in str(terminal.rules("add", "--name", "x", "--schema", "long.json").exception)
    told = run("etl", "rules", "add", "--name", "x", cwd=terminal.folder, **terminal.settings)
    assert (told.returncode, told.stdout) == (1, "")
    assert "json_schema is required" in told.stderr


def test_a_name_refers_to_ones_own_rule_first(terminal: Terminal):
    bert = Caller(name="bert", user_id=2, scope=Scope.WRITE)

    async def chosen(*names: str) -> list[int]:
        async with open_runtime(Settings(data_dir=terminal.folder / "data")) as runtime:
            for name, maker in (("bills", caller()), ("bills", bert), ("notes", bert)):
                await actions.add_rule(runtime.modules.etl, maker, RuleBody(name=name, postprocess_mode=Mode.SKIP))
            return [await find_rule_id(runtime, name) for name in names]

    assert asyncio.run(chosen("bills", "notes", "3")) == [1, 3, 3]


def test_all_pages_of_rules_are_listed(terminal: Terminal, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(session, "PAGE", 2)
    for number in range(4):
        terminal.rules("add", "--name", f"rule {number}", "--mode", "skip")
    assert [row[0] for row in terminal.listed()] == ["0", "1", "2", "3", "4"]


def test_system_rules_cannot_be_removed(terminal: Terminal):
    assert isinstance(terminal.rules("remove", 0).exception, SystemRule)


@pytest.mark.parametrize(
    "arguments",
    [
        ("add",),
        ("add", "rule.json", "--name", "x"),
        ("add", "rule.json", "--schema", "schema.json"),
        ("add", "gone.json"),
        ("add", "--name", "x", "--mode", "nonsense"),
        ("try", "0"),
        ("try", "0", "bill.md", "--task", "1"),
        ("try", "0", "empty.md"),
        ("try", "0", "picture.md"),
        ("remove", "bills"),
    ],
)
def test_an_invalid_use_is_a_usage_error(terminal: Terminal, arguments: tuple[str, ...]):
    (terminal.folder / "empty.md").touch()
    (terminal.folder / "picture.md").write_bytes(b"\xff\xd8\xff\xe0")
    refused = terminal.rules(*arguments)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "Error" in refused.stderr


def test_every_command_has_help(terminal: Terminal):
    for command in ("list", "show", "add", "remove", "try"):
        assert terminal.rules(command, "--help").exit_code == 0, command

"""`penstock etl rules` as people run it."""

import asyncio
from contextlib import chdir
from pathlib import Path

import pytest
from msgspec import json
from typer.testing import CliRunner, Result

from penstock.access.domain import Caller, Scope
from penstock.cli.etl import app, session
from penstock.cli.etl.session import caller, find_rule_id
from penstock.etl import rules
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


class Desk:
    """A person at a terminal, with a rule, a schema and a bill in files."""

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
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_rule_is_added_from_a_file_listed_shown_and_removed(desk: Desk):
    added = desk.rules("add", "rule.json")
    assert (added.exit_code, added.stdout) == (0, "1\tv1\tfields\tuser 1\tbills\tWhat is to be paid.\n"), added.stderr
    assert [row[0] for row in desk.listed()] == ["0", "1"]
    assert desk.rules().stdout == desk.rules("list").stdout
    shown = desk.rules("show", "bills")
    assert json.decode(shown.stdout) == RULE
    assert shown.stderr == "rule 1, version 1, owner user 1\n"
    assert desk.rules("remove", 1).stdout == "1\tremoved\n"
    assert [row[0] for row in desk.listed()] == ["0"]
    assert isinstance(desk.rules("show", 1).exception, RuleNotFound)


def test_what_is_shown_can_be_added_again(desk: Desk):
    desk.rules("add", "rule.json")
    (desk.folder / "again.json").write_text(desk.rules("show", 1).stdout)
    assert desk.rules("add", "again.json").exit_code == 0
    assert json.decode(desk.rules("show", 2).stdout) == RULE


def test_a_rule_is_added_from_a_name_and_a_schema(desk: Desk):
    added = desk.rules("add", "--name", "bills", "--schema", "schema.json", "--mode", "fields", "--description", "Pay")
    assert added.stdout == "1\tv1\tfields\tuser 1\tbills\tPay\n"
    assert json.decode(desk.rules("show", 1).stdout)["json_schema"] == SCHEMA
    assert desk.rules("add", "--name", "read only", "--mode", "skip").stdout.startswith("2\tv1\tskip\t")


def test_a_rule_is_tried_on_a_text(desk: Desk):
    desk.rules("add", "rule.json")
    tried = desk.rules("try", "bills", "bill.md")
    assert tried.exit_code == 0, tried.stderr
    assert json.decode(tried.stdout) == {"number": "2026-17", "total": 90}
    assert [line.split() for line in tried.stderr.splitlines()] == [["number", "page", "1"], ["total", "page", "1"]]


def test_a_rule_is_tried_on_a_document_that_was_read(desk: Desk):
    desk.rules("add", "rule.json")
    assert desk.etl("submit", "bill.md", "--wait").exit_code == 0
    assert json.decode(desk.rules("try", 1, "--task", 1).stdout) == {"number": "2026-17", "total": 90}
    assert isinstance(desk.rules("try", 1, "--task", 2).exception, EtlTaskNotFound)


def test_what_a_document_says_cannot_move_the_cursor(desk: Desk):
    desk.rules("add", "rule.json")
    (desk.folder / "evil.md").write_text("Invoice No.: 20\u009b2J17\n\nTotal: 90.00\n")
    tried = desk.rules("try", 1, "evil.md").stdout
    assert "\u009b" not in tried
    assert json.decode(tried)["number"].startswith("20")


def test_a_rule_that_is_none_is_told_in_words(desk: Desk):
    (desk.folder / "prose.json").write_text("not JSON at all")
    (desk.folder / "list.json").write_text("[1]")
    assert isinstance(desk.rules("add", "prose.json").exception, BadRule)
    for schema in ("prose.json", "list.json"):
        refused = desk.rules("add", "--name", "x", "--schema", schema)
        assert isinstance(refused.exception, BadRule)
        assert f"{schema} is not a JSON object" in str(refused.exception)
    (desk.folder / "long.json").write_text(f'{{"type": "object", "title": "{"x" * 1024 * 1024}"}}')
    assert "is longer than" in str(desk.rules("add", "--name", "x", "--schema", "long.json").exception)
    told = run("etl", "rules", "add", "--name", "x", cwd=desk.folder, **desk.settings)
    assert (told.returncode, told.stdout) == (1, "")
    assert "json_schema is required" in told.stderr


def test_a_name_is_ones_own_before_it_is_somebody_elses(desk: Desk):
    bert = Caller(name="bert", user_id=2, scope=Scope.WRITE)

    async def chosen(*names: str) -> list[int]:
        async with open_runtime(Settings(data_dir=desk.folder / "data")) as house:
            for name, maker in (("bills", caller()), ("bills", bert), ("notes", bert)):
                await rules.add(house.modules.etl, maker, RuleBody(name=name, postprocess_mode=Mode.SKIP))
            return [await find_rule_id(house, name) for name in names]

    assert asyncio.run(chosen("bills", "notes", "3")) == [1, 3, 3]


def test_rules_are_listed_however_many_there_are(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(session, "PAGE", 2)
    for _ in range(4):
        desk.rules("add", "rule.json")
    assert [row[0] for row in desk.listed()] == ["0", "1", "2", "3", "4"]


def test_rules_of_the_system_stay(desk: Desk):
    assert isinstance(desk.rules("remove", 0).exception, SystemRule)


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
def test_what_makes_no_sense_is_a_wrong_use_of_the_command(desk: Desk, arguments: tuple[str, ...]):
    (desk.folder / "empty.md").touch()
    (desk.folder / "picture.md").write_bytes(b"\xff\xd8\xff\xe0")
    refused = desk.rules(*arguments)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "Error" in refused.stderr


def test_every_command_has_help(desk: Desk):
    for command in ("list", "show", "add", "remove", "try"):
        assert desk.rules(command, "--help").exit_code == 0, command

"""`penstock etl correct`, `corrections` and `accuracy`."""

import csv
import shutil
from contextlib import chdir
from pathlib import Path

import pytest
from msgspec import json
from typer.testing import CliRunner, Result

from penstock.cli.database import NoDatabase
from penstock.cli.etl import app
from penstock.etl.domain.review import BadCorrections
from penstock.etl.errors import ArtifactNotReady, EtlTaskNotFound, RuleNotFound

pytestmark = pytest.mark.timeout(240)

RULE = {
    "name": "bills",
    "postprocess_mode": "fields",
    "json_schema": {
        "type": "object",
        "properties": {
            "number": {"type": "string", "title": "Invoice No."},
            "total": {"type": "number", "title": "Total"},
        },
    },
}
BILL = "# Bill\n\nInvoice No.: 2026-17\n\nTotal: 90.00\n"


class Terminal:
    """A terminal with a rule and a bill."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = {"PENSTOCK_DATA_DIR": str(folder / "data"), "ETL_OCR_PROFILE": "fast"}
        rules = folder / "data" / ".etl_rules"
        rules.mkdir(parents=True)
        (rules / "bills.json").write_bytes(json.encode(RULE))
        (folder / "bill.md").write_text(BILL)

    def etl(self, *arguments: object) -> Result:
        """`penstock etl …`, to its end."""
        with chdir(self.folder):
            return CliRunner().invoke(app, [str(one) for one in arguments], env=self.settings)

    def told(self, *arguments: object) -> list[list[str]]:
        """What such a command prints, by lines and cells."""
        ended = self.etl(*arguments)
        assert ended.exit_code == 0, (ended.stderr, ended.exception)
        return [line.split("\t") for line in ended.stdout.splitlines()]


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


@pytest.fixture(scope="module")
def read_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the bill was read, for tests to copy."""
    terminal = Terminal(tmp_path_factory.mktemp("read"))
    assert terminal.etl("submit", "bill.md", "--rule", "bills", "--wait").exit_code == 0
    return terminal.folder


@pytest.fixture
def with_bill(terminal: Terminal, read_once: Path) -> Terminal:
    shutil.copytree(read_once, terminal.folder, dirs_exist_ok=True)
    return terminal


def test_a_bill_is_corrected_exported_and_counted(with_bill: Terminal):
    [line] = with_bill.told("correct", 1, "/total", "91.5", "--note", "the stamp")
    assert line[1:5] == ["1", "/total", "90", "91.5"]
    assert line[6] == "the stamp"
    [line] = with_bill.told("correct", 1, "/number", "发票 17 🧾", "--reviewed")
    assert line[2:5] == ["/number", '"2026-17"', '"发票 17 🧾"']
    assert [cells[2] for cells in with_bill.told("corrections", "bills")] == ["/number", "/total"]
    shown = "\n".join(cells[0] for cells in with_bill.told("accuracy", "bills"))
    assert "0.0% of 2 values right, in 1 tasks, 1 of them reviewed whole" in shown
    assert [line.split() for line in shown.splitlines()[1:]] == [
        ["VERSION", "OR", "FIELD", "VALUES", "WRONG", "RIGHT"],
        ["v1", "2", "2", "0.0%"],
        ["/number", "1", "1", "0.0%"],
        ["/total", "1", "1", "0.0%"],
    ]
    for name in ("all.csv", "all.JSONL"):
        assert with_bill.etl("corrections", "1", "--out", name).exit_code == 0
    with (with_bill.folder / "all.csv").open(encoding="utf-8-sig", newline="") as file:
        assert [(row["pointer"], row["corrected"]) for row in csv.DictReader(file)] == [
            ("/number", "发票 17 🧾"),
            ("/total", "91.5"),
        ]
    lines = [json.decode(line) for line in (with_bill.folder / "all.JSONL").read_bytes().splitlines()]
    assert [line["corrected"] for line in lines] == ["发票 17 🧾", 91.5]
    assert with_bill.told("corrections", "bills", "--version", 2) == []


def test_a_value_is_json_unless_it_is_given_as_text(with_bill: Terminal):
    refused = with_bill.etl("correct", 1, "/number", "2026")
    assert isinstance(refused.exception, BadCorrections)
    [line] = with_bill.told("correct", 1, "/number", "2026", "--text")
    assert line[4] == '"2026"'
    assert with_bill.told("correct", 1, "--reviewed") == []


def test_a_negative_value_is_not_an_option(with_bill: Terminal):
    [line] = with_bill.told("correct", 1, "/total", "-3.5", "--note", "a credit")
    assert line[2:5] == ["/total", "90", "-3.5"]
    assert with_bill.etl("correct", 1, "/number", "--reviewd").exit_code == 2
    [line] = with_bill.told("correct", 1, "/number", "--reviewd", "--text")
    assert line[4] == '"--reviewd"'


def test_invalid_commands_are_reported(terminal: Terminal):
    assert isinstance(terminal.etl("correct", 1, "/total", "1").exception, NoDatabase)
    assert terminal.etl("submit", "bill.md").exit_code == 0
    assert isinstance(terminal.etl("correct", 2, "/total", "1").exception, EtlTaskNotFound)
    assert isinstance(terminal.etl("correct", 1, "/total", "1").exception, ArtifactNotReady)
    for rule in ("nonsense", 99):
        assert isinstance(terminal.etl("corrections", rule).exception, RuleNotFound)
        assert isinstance(terminal.etl("accuracy", rule).exception, RuleNotFound)
    for arguments in (
        ("correct", 1),
        ("correct", 1, "/total"),
        ("correct", 0, "/total", 1),
        ("corrections", 0, "--out", "all.xlsx"),
        ("corrections", 0, "--version", 2**31),
        ("corrections", 0, "--out", "no/such/folder/all.csv"),
    ):
        assert terminal.etl(*arguments).exit_code == 2, arguments
    assert terminal.told("accuracy", 0) == [["rule 0: - of 0 values right, in 0 tasks, 0 of them reviewed whole"]]


def test_each_has_help(terminal: Terminal):
    for command in ("correct", "corrections", "accuracy"):
        shown = terminal.etl(command, "--help")
        assert (shown.exit_code, "--help" in shown.stdout) == (0, True), command

"""`penstock etl correct`, `corrections` and `accuracy` as people run them."""

import csv
from contextlib import chdir
from pathlib import Path

import pytest
from msgspec import json
from typer.testing import CliRunner, Result

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


class Desk:
    """A person at a terminal, with a bill that was read."""

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
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_bill_is_corrected_exported_and_counted(desk: Desk):
    assert desk.etl("submit", "bill.md", "--rule", "bills", "--wait").exit_code == 0
    [line] = desk.told("correct", 1, "/total", "91.5", "--note", "the stamp")
    assert line[1:5] == ["1", "/total", "90", "91.5"]
    assert line[6] == "the stamp"
    [line] = desk.told("correct", 1, "/number", "发票 17 🧾", "--reviewed")
    assert line[2:5] == ["/number", '"2026-17"', '"发票 17 🧾"']
    assert [cells[2] for cells in desk.told("corrections", "bills")] == ["/number", "/total"]
    shown = "\n".join(cells[0] for cells in desk.told("accuracy", "bills"))
    assert "0.0% of 2 values right, in 1 tasks, 1 of them reviewed whole" in shown
    assert [line.split() for line in shown.splitlines()[1:]] == [
        ["VERSION", "OR", "FIELD", "VALUES", "WRONG", "RIGHT"],
        ["v1", "2", "2", "0.0%"],
        ["/number", "1", "1", "0.0%"],
        ["/total", "1", "1", "0.0%"],
    ]
    for name in ("all.csv", "all.JSONL"):
        assert desk.etl("corrections", "1", "--out", name).exit_code == 0
    with (desk.folder / "all.csv").open(encoding="utf-8-sig", newline="") as file:
        assert [(row["pointer"], row["corrected"]) for row in csv.DictReader(file)] == [
            ("/number", "发票 17 🧾"),
            ("/total", "91.5"),
        ]
    lines = [json.decode(line) for line in (desk.folder / "all.JSONL").read_bytes().splitlines()]
    assert [line["corrected"] for line in lines] == ["发票 17 🧾", 91.5]
    assert desk.told("corrections", "bills", "--version", 2) == []


def test_what_looks_like_a_number_is_one_unless_it_is_said_to_be_a_text(desk: Desk):
    assert desk.etl("submit", "bill.md", "--rule", "bills", "--wait").exit_code == 0
    refused = desk.etl("correct", 1, "/number", "2026")
    assert isinstance(refused.exception, BadCorrections)
    [line] = desk.told("correct", 1, "/number", "2026", "--text")
    assert line[4] == '"2026"'
    assert desk.told("correct", 1, "--reviewed") == []


def test_a_value_below_nought_is_no_option(desk: Desk):
    assert desk.etl("submit", "bill.md", "--rule", "bills", "--wait").exit_code == 0
    [line] = desk.told("correct", 1, "/total", "-3.5", "--note", "a credit")
    assert line[2:5] == ["/total", "90", "-3.5"]
    assert desk.etl("correct", 1, "/number", "--reviewd").exit_code == 2
    [line] = desk.told("correct", 1, "/number", "--reviewd", "--text")
    assert line[4] == '"--reviewd"'


def test_what_cannot_be_done_is_told_in_words(desk: Desk):
    assert isinstance(desk.etl("correct", 1, "/total", "1").exception, EtlTaskNotFound)
    assert desk.etl("submit", "bill.md").exit_code == 0
    assert isinstance(desk.etl("correct", 1, "/total", "1").exception, ArtifactNotReady)
    for rule in ("nonsense", 99):
        assert isinstance(desk.etl("corrections", rule).exception, RuleNotFound)
        assert isinstance(desk.etl("accuracy", rule).exception, RuleNotFound)
    for arguments in (
        ("correct", 1),
        ("correct", 1, "/total"),
        ("correct", 0, "/total", 1),
        ("corrections", 0, "--out", "all.xlsx"),
        ("corrections", 0, "--version", 2**31),
        ("corrections", 0, "--out", "no/such/folder/all.csv"),
    ):
        assert desk.etl(*arguments).exit_code == 2, arguments
    assert desk.told("accuracy", 0) == [["rule 0: - of 0 values right, in 0 tasks, 0 of them reviewed whole"]]


def test_each_has_help(desk: Desk):
    for command in ("correct", "corrections", "accuracy"):
        shown = desk.etl(command, "--help")
        assert (shown.exit_code, "--help" in shown.stdout) == (0, True), command

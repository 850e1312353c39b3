"""Results in folders and tables."""

import csv
from pathlib import Path

from msgspec import json

from penstock.cli.etl.output import DocumentOutcome, is_table, make_folder, write_files, write_table

INVOICE = {"number": "A-1", "paid": False, "lines": [{"what": "纸", "amount": 2.5}, {"what": None, "amount": -3}]}


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_a_folder_gets_the_result_and_the_markdown_by_the_name_of_the_document(tmp_path: Path):
    folder = tmp_path / "new" / "folder"
    make_folder(folder)
    write_files(folder, "a.pdf", INVOICE, b"# A")
    assert json.decode((folder / "a.pdf.json").read_bytes()) == INVOICE
    assert (folder / "a.pdf.md").read_bytes() == b"# A"


def test_a_table_has_one_row_per_document_and_a_column_per_leaf(tmp_path: Path):
    path = tmp_path / "new" / "out.csv"
    make_folder(path)
    done = DocumentOutcome(name="a.pdf", task_id=1, status="completed", value=INVOICE)
    bad = DocumentOutcome(name="b.pdf", task_id=2, status="failed", error="b.pdf is empty.", code="DOCUMENT_EMPTY")
    write_table(path, [done, bad])
    first, second = read(path)
    assert list(first)[:4] == ["file", "task_id", "status", "error"]
    assert (first["lines.0.what"], first["lines.0.amount"], first["lines.1.amount"]) == ("纸", "2.5", "-3")
    assert (first["lines.1.what"], first["paid"]) == ("", "false")
    assert (second["status"], second["error"], second["number"]) == ("failed", "b.pdf is empty.", "")


def test_a_result_that_has_a_column_of_ours_does_not_take_its_place(tmp_path: Path):
    value = {"status": "paid", "file": "theirs"}
    write_table(tmp_path / "out.csv", [DocumentOutcome(name="a.pdf", task_id=1, status="completed", value=value)])
    [row] = read(tmp_path / "out.csv")
    assert (row["status"], row["result.status"]) == ("completed", "paid")
    assert (row["file"], row["result.file"]) == ("a.pdf", "theirs")


def test_a_table_contains_no_spreadsheet_formulas(tmp_path: Path):
    value = {"number": "=HYPERLINK(1)", "total": -5, "=2+2": "leaf", "note": "\n=1"}
    write_table(tmp_path / "out.csv", [DocumentOutcome(name="@a.pdf", task_id=1, status="completed", value=value)])
    [row] = read(tmp_path / "out.csv")
    assert row["number"] == "'=HYPERLINK(1)"
    assert row["total"] == "-5"
    assert row["file"] == "'@a.pdf"
    assert row["'=2+2"] == "leaf"
    assert row["note"] == "'\n=1"


def test_the_ending_csv_asks_for_a_table():
    assert is_table(Path("a/out.CSV"))
    assert not is_table(Path("out"))

"""The results of documents, written to a folder as JSON and markdown, or to one CSV table."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import json

from penstock.etl.correction_export import csv_cell

HEADINGS = ("file", "task_id", "status", "error")


@dataclass(frozen=True, kw_only=True)
class DocumentOutcome:
    """How one document ended. `code`, `hint` and `stage` say why it failed."""

    name: str
    task_id: int
    status: str
    value: Any = None
    error: str = ""
    code: str = ""
    hint: str = ""
    stage: str = ""


def is_table(out: Path) -> bool:
    """Whether the output is one table instead of a folder."""
    return out.suffix.lower() == ".csv"


def make_folder(out: Path) -> None:
    """Create the folder to write to, so that a wrong path fails before any work is done."""
    (out.parent if is_table(out) else out).mkdir(parents=True, exist_ok=True)


def write_files(folder: Path, name: str, value: object, markdown: bytes) -> None:
    """Write `<name>.json` and `<name>.md`."""
    pretty = json.format(json.encode(value), indent=2)
    (folder / f"{name}.json").write_bytes(pretty + b"\n")
    (folder / f"{name}.md").write_bytes(markdown)


def write_table(path: Path, outcomes: Sequence[DocumentOutcome]) -> None:
    """Write one row per document, with a column for each leaf of the results. The BOM makes spreadsheets read UTF-8."""
    rows = [_row(outcome) for outcome in outcomes]
    columns = dict.fromkeys(HEADINGS) | dict.fromkeys(name for row in rows for name in row)
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        table = csv.DictWriter(file, fieldnames=list(columns), restval="")
        table.writeheader()
        table.writerows(rows)


def _row(outcome: DocumentOutcome) -> dict[str, object]:
    fixed = dict(zip(HEADINGS, (outcome.name, outcome.task_id, outcome.status, outcome.error), strict=True))
    result = {f"result.{name}" if name in HEADINGS else name: leaf for name, leaf in leaves(outcome.value)}
    return {str(csv_cell(name)): csv_cell(value) for name, value in (fixed | result).items()}


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every leaf of a result with its path: `seller.name`, `lines.0.amount`."""
    if isinstance(value, dict):
        parts = ((str(name), inner) for name, inner in value.items())
    elif isinstance(value, list):
        parts = ((str(number), inner) for number, inner in enumerate(value))
    else:
        if path:
            yield path, value
        return
    for name, inner in parts:
        yield from leaves(inner, f"{path}.{name}" if path else name)

"""What a person gets of their documents: a folder of JSON and markdown, or one table."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import json

from penstock.etl.review_files import cell

HEADINGS = ("file", "task_id", "status", "error")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one document ended. `code` and `hint` say why it failed."""

    name: str
    task_id: int
    status: str
    value: Any = None
    error: str = ""
    code: str = ""
    hint: str = ""
    stage: str = ""


def is_table(out: Path) -> bool:
    """Whether one table is wanted instead of a folder."""
    return out.suffix.lower() == ".csv"


def make_place(out: Path) -> None:
    """Make sure that there is a folder to write to, before anything is done for it."""
    (out.parent if is_table(out) else out).mkdir(parents=True, exist_ok=True)


def write_files(folder: Path, name: str, value: object, markdown: bytes) -> None:
    """The result and the markdown of one document, by its name."""
    pretty = json.format(json.encode(value), indent=2)
    (folder / f"{name}.json").write_bytes(pretty + b"\n")
    (folder / f"{name}.md").write_bytes(markdown)


def write_table(path: Path, outcomes: Sequence[Outcome]) -> None:
    """One row per document; each leaf of a result is a column, named by its path. Spreadsheets know it as UTF-8."""
    rows = [_row(outcome) for outcome in outcomes]
    columns = dict.fromkeys(HEADINGS) | dict.fromkeys(name for row in rows for name in row)
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        table = csv.DictWriter(file, fieldnames=list(columns), restval="")
        table.writeheader()
        table.writerows(rows)


def _row(outcome: Outcome) -> dict[str, object]:
    told = dict(zip(HEADINGS, (outcome.name, outcome.task_id, outcome.status, outcome.error), strict=True))
    leaves_of_it = {f"result.{name}" if name in HEADINGS else name: leaf for name, leaf in leaves(outcome.value)}
    return {str(cell(name)): cell(value) for name, value in (told | leaves_of_it).items()}


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every leaf of a result by its path: `seller.name`, `lines.0.amount`."""
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

"""Export corrections as JSON lines or CSV. Written page by page, so of any length."""

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from penstock.etl.domain.review import Correction

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # a spreadsheet would run these cells as formulas
HEADINGS = (
    "correction_id", "task_id", "run", "rule_id", "rule_version", "pointer", "field", "original", "missing",
    "corrected", "confirmed", "note", "created_by", "created_at",
)  # fmt: skip
UTF8_BOM = "\ufeff"  # spreadsheets detect UTF-8 by it


class ExportFormat(StrEnum):
    """File format of an export."""

    JSONL = "jsonl"
    CSV = "csv"


async def export_corrections(pages: AsyncIterator[Sequence[Correction]], kind: ExportFormat) -> AsyncIterator[bytes]:
    """The chunks of the file."""
    if kind is ExportFormat.CSV:
        yield (UTF8_BOM + _rows([HEADINGS])).encode()
    async for page in pages:
        if page:
            yield await asyncio.to_thread(
                _lines if kind is ExportFormat.JSONL else _table, page
            )  # a page can be megabytes


def _lines(page: Sequence[Correction]) -> bytes:
    return b"".join(msgspec.json.encode(_record(one)) + b"\n" for one in page)


def _table(page: Sequence[Correction]) -> bytes:
    return _rows(map(_cells, page)).encode()


def _record(one: Correction) -> dict[str, Any]:
    """A correction by column; its values are JSON text already."""
    known = asdict(one) | {
        "correction_id": one.id,
        "original": msgspec.Raw((one.original or "null").encode()),
        "missing": one.original is None,
        "corrected": msgspec.Raw(one.corrected.encode()),
        "confirmed": one.confirms,
    }
    return {name: known[name] for name in HEADINGS}


def _rows(rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def _cells(one: Correction) -> list[object]:
    record = _record(one) | {"original": _cell_value(one.original), "corrected": _cell_value(one.corrected)}
    return [csv_cell(record[name]) for name in HEADINGS]


def _cell_value(json: str | None) -> object:
    """The value of a cell: strings and numbers as they are, anything else as JSON text, nothing if missing."""
    value = None if json is None else msgspec.json.decode(json)
    return value if isinstance(value, str | int | float) else json


def csv_cell(value: object) -> object:
    """A value as a CSV cell; strings that look like a formula are prefixed with `'` against formula injection."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return "" if value is None else value

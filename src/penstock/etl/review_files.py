"""Corrections as a file: one JSON object per line, or a table for spreadsheets. Made page by page, so of any length."""

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

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # what a spreadsheet would run instead of showing
HEADINGS = (
    "correction_id", "task_id", "run", "rule_id", "rule_version", "pointer", "field", "original", "missing",
    "corrected", "confirmed", "note", "created_by", "created_at",
)  # fmt: skip
MARK = "\ufeff"  # by which spreadsheets know UTF-8


class FileKind(StrEnum):
    """What kind of file."""

    JSONL = "jsonl"
    CSV = "csv"


async def written(pages: AsyncIterator[Sequence[Correction]], kind: FileKind) -> AsyncIterator[bytes]:
    """The pieces of a file, as the pages come."""
    if kind is FileKind.CSV:
        yield (MARK + _rows([HEADINGS])).encode()
    async for page in pages:
        if page:
            yield await asyncio.to_thread(_lines if kind is FileKind.JSONL else _table, page)  # some are megabytes


def _lines(page: Sequence[Correction]) -> bytes:
    return b"".join(msgspec.json.encode(_told(one)) + b"\n" for one in page)


def _table(page: Sequence[Correction]) -> bytes:
    return _rows(map(_cells, page)).encode()


def _told(one: Correction) -> dict[str, Any]:
    """A correction by its headings; its values are JSON already."""
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
    told = _told(one) | {"original": _plain(one.original), "corrected": _plain(one.corrected)}
    return [cell(told[name]) for name in HEADINGS]


def _plain(json: str | None) -> object:
    """Texts as they are, numbers as numbers, all else as JSON; where there was nothing, nothing."""
    value = None if json is None else msgspec.json.decode(json)
    return value if isinstance(value, str | int | float) else json


def cell(value: object) -> object:
    """A value as a table has it: no text is a formula."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return "" if value is None else value

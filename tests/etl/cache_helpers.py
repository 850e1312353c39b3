"""Helpers for tests of the stage cache."""

from typing import Any

from sqlalchemy import select

from penstock.access.domain import Caller
from penstock.etl import artifacts
from penstock.etl.domain import EtlTask
from penstock.etl.store.tables import etl_memory
from tests.etl.harness import ANNA, EtlHarness

SAME = "one page\fand another"
OTHER = "two page\fand another"  # the same length


async def read(
    harness: EtlHarness, name: str = "a.txt", *, by: Caller = ANNA, text: str = SAME, **more: Any
) -> EtlTask:
    """Submit a task of this document, run it, and return its row."""
    task = await harness.submit(name, by=by, text=text, **more)
    await harness.work()
    return await harness.row(task)


def ocr_of(task: EtlTask) -> dict[str, Any]:
    """The cache outcome of a task's OCR stage."""
    known: dict[str, Any] = task.metadata["cache"]["ocr"]
    return known


async def remembered(harness: EtlHarness) -> list[tuple[int, int, str]]:
    """User, task and stage of every cache entry."""
    m = etl_memory.c
    async with harness.db.read() as tx:
        rows = await tx.conn.execute(select(m.user_id, m.task_id, m.stage).order_by(m.task_id))
        return [(row.user_id, row.task_id, row.stage) for row in rows]


async def markdown(harness: EtlHarness, task: EtlTask) -> bytes:
    """The markdown of a task."""
    return await harness.deps.blobs.get(artifacts.markdown_key(task))

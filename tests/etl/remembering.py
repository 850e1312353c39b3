"""Tasks of one document, or of one that looks alike, and what is remembered of them."""

from typing import Any

from sqlalchemy import select

from penstock.access.domain import Caller
from penstock.etl import papers
from penstock.etl.domain import EtlTask
from penstock.etl.store.tables import etl_memory
from tests.etl.workshop import ANNA, Workshop

SAME = "one page\fand another"
OTHER = "two page\fand another"  # as long as the first


async def read(shop: Workshop, name: str = "a.txt", *, by: Caller = ANNA, text: str = SAME, **more: Any) -> EtlTask:
    """A task of this document when it is over."""
    task = await shop.submit(name, by=by, text=text, **more)
    await shop.work()
    return await shop.row(task)


def ocr_of(task: EtlTask) -> dict[str, Any]:
    """What the task says of the memory of readings."""
    known: dict[str, Any] = task.metadata["cache"]["ocr"]
    return known


async def remembered(shop: Workshop) -> list[tuple[int, int, str]]:
    """User, task and stage of everything that is remembered."""
    m = etl_memory.c
    async with shop.db.read() as tx:
        rows = await tx.conn.execute(select(m.user_id, m.task_id, m.stage).order_by(m.task_id))
        return [(row.user_id, row.task_id, row.stage) for row in rows]


async def markdown(shop: Workshop, task: EtlTask) -> bytes:
    """What was read for a task."""
    return await shop.tools.blobs.get(papers.markdown_key(task))

"""The demo's own two-stage job chain: a letter is read page by page, then its words are counted.

It shows the pattern every room follows. Work leaves its result in a blob under a key that is always the same, so that
a second run finds it; how far it is goes to the run state; and the transaction that marks the first job done is the one
that enqueues the second.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from msgspec import json

from penstock.kernel.blobs import BlobExists
from penstock.kernel.db import Tx
from penstock.kernel.queue import Job, NewJob
from penstock.kernel.runstate import RunEntry, RunMovedOn
from penstock.kernel.workers import JobHandler, Settle
from penstock.wiring import Runtime

ROOM = "demo"
SECONDS_PER_PAGE = 0.15  # long enough to watch, short enough to wait for
COUNTING = 1_000_000  # the second stage comes after every page of the first

LETTER = "demo/letter.txt"
RESULT = "demo/result.json"
RUN = "demo:letter"
READ_ID, COUNT_ID = "demo:letter:read", "demo:letter:count"


def first_job() -> NewJob:
    """The chain's first job; the second is enqueued when this one is settled."""
    return NewJob(id=READ_ID, kind="demo.read", payload={"letter": LETTER}, room=ROOM)


def handlers(house: Runtime) -> Mapping[str, JobHandler]:
    """The two stages as the workers know them."""
    chain = Chain(house)
    return {"demo.read": chain.read, "demo.count": chain.count}


def page_key(number: int) -> str:
    """Where the page with this number is kept once it is read."""
    return f"demo/pages/{number:03}.txt"


class Chain:
    """The two stages."""

    def __init__(self, house: Runtime) -> None:
        self._house = house

    async def read(self, job: Job) -> Settle:
        """Read the letter page by page; pages that an earlier attempt has read are not read again."""
        letter = (await self._house.blobs.get(job.payload["letter"])).decode()
        pages = letter.split("\f")
        for number, page in enumerate(pages, start=1):
            await self._read_page(number, page)
            await self._show(job, "reading", number, len(pages))
        return self._enqueue_count(len(pages))

    async def count(self, job: Job) -> None:
        """Count the words of every page and keep the result."""
        total: int = job.payload["pages"]
        words = []
        for number in range(1, total + 1):
            page = await self._house.blobs.get(page_key(number))
            words.append(len(page.decode().split()))
            await asyncio.sleep(SECONDS_PER_PAGE / 3)
            await self._show(job, "counting", number, total, base=COUNTING)
        await self._house.blobs.put(RESULT, json.encode({"pages": total, "words": words, "total": sum(words)}))
        order = 2 * COUNTING
        await self._house.runs.put(RunEntry(key=RUN, run=1, order=order, status="done", final=True))

    async def _read_page(self, number: int, page: str) -> None:
        if (await self._house.blobs.list(page_key(number), limit=1)).blobs:
            return
        await asyncio.sleep(SECONDS_PER_PAGE)
        try:
            await self._house.blobs.create(page_key(number), page.strip().encode())
        except BlobExists:
            return  # a rival was quicker, with the same page

    def _enqueue_count(self, pages: int) -> Settle:
        async def settle(tx: Tx) -> None:
            count = NewJob(id=COUNT_ID, kind="demo.count", payload={"pages": pages}, room=ROOM)
            await self._house.queue.enqueue(tx, count)

        return settle

    async def _show(self, job: Job, stage: str, number: int, total: int, *, base: int = 0) -> None:
        """Tell how far it is. One that begins again, after a death or a stop, is silent until it is further."""
        fields = {"stage": stage, "page": number, "pages": total, "worker": job.worker}
        with suppress(RunMovedOn):
            await self._house.runs.put(RunEntry(key=RUN, run=1, order=base + number, status="running", fields=fields))

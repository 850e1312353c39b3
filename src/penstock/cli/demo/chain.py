"""A chain of two jobs: read a letter page by page, then count its words.

It shows the pattern that every module follows. A job writes its results to blobs under deterministic keys, so that a
retry finds them; progress goes to the run state; and the transaction that finishes the first job enqueues the second.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from msgspec import json

from penstock.kernel.blobs import BlobExists
from penstock.kernel.db import Tx
from penstock.kernel.queue import Job, NewJob
from penstock.kernel.runstate import RunMovedOn, RunSnapshot
from penstock.kernel.workers import JobHandler, Settle
from penstock.wiring import Runtime

MODULE = "demo"
SECONDS_PER_PAGE = 0.15  # long enough to see the progress bar move
COUNTING = 1_000_000  # order of the second stage in the run state: after every page of the first

LETTER = "demo/letter.txt"
RESULT = "demo/result.json"
RUN = "demo:letter"
READ_ID, COUNT_ID = "demo:letter:read", "demo:letter:count"


def first_job() -> NewJob:
    """The first job. It enqueues the second when it finishes."""
    return NewJob(id=READ_ID, kind="demo.read", payload={"letter": LETTER}, module=MODULE)


def handlers(runtime: Runtime) -> Mapping[str, JobHandler]:
    """The job handlers by kind."""
    chain = LetterChain(runtime)
    return {"demo.read": chain.read, "demo.count": chain.count}


def page_key(number: int) -> str:
    """The blob key of a page that was read."""
    return f"demo/pages/{number:03}.txt"


class LetterChain:
    """The handlers of the two jobs."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def read(self, job: Job) -> Settle:
        """Read the letter page by page, skipping pages that an earlier attempt has read."""
        letter = (await self._runtime.blobs.get(job.payload["letter"])).decode()
        pages = letter.split("\f")
        for number, page in enumerate(pages, start=1):
            await self._read_page(number, page)
            await self._report_progress(job, "reading", number, len(pages))
        return self._enqueue_count(len(pages))

    async def count(self, job: Job) -> None:
        """Count the words of every page and store the result."""
        total: int = job.payload["pages"]
        words = []
        for number in range(1, total + 1):
            page = await self._runtime.blobs.get(page_key(number))
            words.append(len(page.decode().split()))
            await asyncio.sleep(SECONDS_PER_PAGE / 3)
            await self._report_progress(job, "counting", number, total, base=COUNTING)
        await self._runtime.blobs.put(RESULT, json.encode({"pages": total, "words": words, "total": sum(words)}))
        order = 2 * COUNTING
        await self._runtime.runs.put(RunSnapshot(key=RUN, run=1, order=order, status="done", final=True))

    async def _read_page(self, number: int, page: str) -> None:
        if (await self._runtime.blobs.list(page_key(number), limit=1)).blobs:
            return
        await asyncio.sleep(SECONDS_PER_PAGE)
        try:
            await self._runtime.blobs.create(page_key(number), page.strip().encode())
        except BlobExists:
            return  # another worker stored the same page first

    def _enqueue_count(self, pages: int) -> Settle:
        async def settle(tx: Tx) -> None:
            count = NewJob(id=COUNT_ID, kind="demo.count", payload={"pages": pages}, module=MODULE)
            await self._runtime.queue.enqueue(tx, count)

        return settle

    async def _report_progress(self, job: Job, stage: str, number: int, total: int, *, base: int = 0) -> None:
        """Update the run state. A retry is behind the last update at first: those updates are ignored."""
        fields = {"stage": stage, "page": number, "pages": total, "worker": job.worker}
        with suppress(RunMovedOn):
            await self._runtime.runs.put(
                RunSnapshot(key=RUN, run=1, order=base + number, status="running", fields=fields)
            )

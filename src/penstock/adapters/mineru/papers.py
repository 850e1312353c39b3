"""What a reading by MinerU keeps between attempts, in the folder that its desk has for this run.

`plan.json` says how the document is cut, `job.json` what MinerU was given, `part-0001.jsonl` holds the pages of a part
and `part-0001.json`, written after it, says that they are whole. A folder is of one run only, so what lies there is
never that of another provider or of an earlier try: an id is gone on with when `job.json` has it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from penstock.adapters.mineru.jobs import Job, Part, Plan
from penstock.documents.blob_files import borrowed, find_value, pieces_of
from penstock.documents.ocr.provider import PAGES_TYPE
from penstock.documents.pages import Page, read_pages
from penstock.kernel.blobs import JSON_TYPE, Blobs

FOLDER = "mineru/"
BATCH = 50  # pages in memory


class KeptPart(msgspec.Struct, frozen=True, kw_only=True):
    """That the pages of a part are kept, and what they are like."""

    pages: int
    by_page: bool  # whether MinerU told what stands on which page


class JobPapers:
    """The objects of one reading that is under way."""

    def __init__(self, blobs: Blobs, folder: str, scratch: Path) -> None:
        self._blobs = blobs
        self._folder = folder + FOLDER
        self._scratch = scratch

    async def find_plan(self, protocol: str, size_bytes: int) -> Plan | None:
        """The plan, if it is one for this protocol and for a document of this size."""
        plan = await find_value(self._blobs, self._folder + "plan.json", Plan)
        if plan is None or (plan.protocol, plan.size_bytes) != (protocol, size_bytes):
            return None
        return plan

    async def begin(self, plan: Plan) -> None:
        """Keep a plan. What was kept under another one is worth nothing now."""
        while found := (await self._blobs.list(self._folder)).blobs:
            for blob in found:
                await self._blobs.delete(blob.key)
        await self.keep_plan(plan)

    async def keep_plan(self, plan: Plan) -> None:
        """Put the plan where the next attempt finds it."""
        await self._put("plan.json", plan)

    async def find_job(self, endpoint: str) -> Job | None:
        """The job, if it was given to this very server."""
        job = await find_value(self._blobs, self._folder + "job.json", Job)
        return job if job is not None and job.endpoint == endpoint else None

    async def keep_job(self, job: Job) -> None:
        """Put the job where the next attempt finds it."""
        await self._put("job.json", job)

    async def drop_job(self, job: Job) -> None:
        """Forget a job that leads to nothing more, unless another worker has put its own there."""
        kept = await self.find_job(job.endpoint)
        if kept is not None and kept.id == job.id:
            await self._blobs.delete(self._folder + "job.json")

    async def find_part(self, part: Part) -> KeptPart | None:
        """What is said of a part that was read."""
        return await find_value(self._blobs, f"{self._folder}{part.tag}.json", KeptPart)

    async def keep_part(self, part: Part, lines: Path, kept: KeptPart) -> None:
        """Keep the pages of a part, and last that they are kept."""
        await self._blobs.put(self._pages_key(part), pieces_of(lines), content_type=PAGES_TYPE)
        await self._put(f"{part.tag}.json", kept)

    async def pages(self, part: Part) -> AsyncIterator[Sequence[Page]]:
        """The pages of a part, some at a time."""
        async with borrowed(self._blobs, self._pages_key(part), self._scratch) as path:
            with await asyncio.to_thread(path.open, "rb") as lines:
                found = read_pages(lines)
                while batch := await asyncio.to_thread(lambda: list(islice(found, BATCH))):
                    yield batch

    def file_key(self, part: Part, ending: str) -> str:
        """Where a part lies that MinerU fetches by its address."""
        return f"{self._folder}{part.tag}{ending}"

    def _pages_key(self, part: Part) -> str:
        return f"{self._folder}{part.tag}.jsonl"

    async def _put(self, name: str, value: Plan | Job | KeptPart) -> None:
        await self._blobs.put(self._folder + name, msgspec.json.encode(value), content_type=JSON_TYPE)

"""Checkpoints of a reading by MinerU, which the next attempt continues from, in the folder of its run.

`plan.json` says how the document is split, `job.json` what was submitted, `part-0001.jsonl` holds the pages of a part
and `part-0001.json`, written after it, marks them as complete. A folder belongs to one run, so it never holds files of
another provider or an earlier run: a job is resumed if `job.json` names it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from penstock.adapters.mineru.jobs import DocumentPart, MineruJob, SplitPlan
from penstock.documents.blob_files import file_chunks, local_file
from penstock.documents.ocr.provider import PAGES_TYPE
from penstock.documents.pages import Page, read_pages
from penstock.kernel.blobs import Blobs
from penstock.kernel.stages.artifacts import Artifacts

FOLDER = "mineru/"
BATCH = 50  # pages in memory


class KeptPart(msgspec.Struct, frozen=True, kw_only=True):
    """Marks the pages of a part as stored."""

    pages: int
    by_page: bool  # whether MinerU reported page numbers


class JobCheckpoints:
    """The stored objects of one reading in progress."""

    def __init__(self, blobs: Blobs, folder: str, scratch: Path) -> None:
        self._kept = Artifacts(blobs, folder + FOLDER)
        self._scratch = scratch

    async def find_plan(self, protocol: str, size_bytes: int) -> SplitPlan | None:
        """The plan, if it is for this protocol and a document of this size."""
        plan = await self._kept.find("plan.json", SplitPlan)
        if plan is None or (plan.protocol, plan.size_bytes) != (protocol, size_bytes):
            return None
        return plan

    async def begin(self, plan: SplitPlan) -> None:
        """Store a plan and delete everything stored under an earlier one."""
        await self._kept.drop()
        await self.keep_plan(plan)

    async def keep_plan(self, plan: SplitPlan) -> None:
        """Store the plan for the next attempt."""
        await self._kept.commit("plan.json", plan)

    async def find_job(self, endpoint: str) -> MineruJob | None:
        """The job, if it was submitted to this endpoint."""
        job = await self._kept.find("job.json", MineruJob)
        return job if job is not None and job.endpoint == endpoint else None

    async def keep_job(self, job: MineruJob) -> None:
        """Store the job for the next attempt."""
        await self._kept.commit("job.json", job)

    async def drop_job(self, job: MineruJob) -> None:
        """Delete a job that leads nowhere, unless another worker has stored its own."""
        kept = await self.find_job(job.endpoint)
        if kept is not None and kept.id == job.id:
            await self._kept.delete("job.json")

    async def find_part(self, part: DocumentPart) -> KeptPart | None:
        """The marker of a part that was read."""
        return await self._kept.find(f"{part.tag}.json", KeptPart)

    async def keep_part(self, part: DocumentPart, lines: Path, kept: KeptPart) -> None:
        """Store the pages of a part, then its marker."""
        await self._kept.put(f"{part.tag}.jsonl", file_chunks(lines), content_type=PAGES_TYPE)
        await self._kept.commit(f"{part.tag}.json", kept)

    async def pages(self, part: DocumentPart) -> AsyncIterator[Sequence[Page]]:
        """The pages of a part in batches."""
        async with local_file(self._kept.blobs, self._kept.key(f"{part.tag}.jsonl"), self._scratch) as path:
            with await asyncio.to_thread(path.open, "rb") as lines:
                found = read_pages(lines)
                while batch := await asyncio.to_thread(lambda: list(islice(found, BATCH))):
                    yield batch

    def file_key(self, part: DocumentPart, ending: str) -> str:
        """The key of a part that MinerU fetches by URL."""
        return self._kept.key(part.tag + ending)

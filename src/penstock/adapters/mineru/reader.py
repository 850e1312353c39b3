"""The provider: plan the document, send it, follow the job, bind what came back.

What MinerU does not know any more is sent again, once in a reading; what it cannot fetch by an address is uploaded. Of
several parts, those that are read are kept, so that after a failure only the others are sent and paid for again.
"""

import asyncio
import hashlib
import logging
import time
from functools import partial
from pathlib import Path

from penstock.adapters.local_reader.papers import Papers
from penstock.adapters.mineru.cloud import Cloud
from penstock.adapters.mineru.errand import Copy, Errand, Means
from penstock.adapters.mineru.errors import MineruKeyMissing, MineruLost, MineruUrlUnread
from penstock.adapters.mineru.jobs import Job
from penstock.adapters.mineru.papers import JobPapers
from penstock.adapters.mineru.patience import while_alive
from penstock.adapters.mineru.plan import Cutter
from penstock.adapters.mineru.protocol import Service
from penstock.adapters.mineru.selfhosted import SelfHosted
from penstock.adapters.mineru.terms import MineruTerms
from penstock.adapters.mineru.watch import Watch
from penstock.adapters.mineru.wire import Wire
from penstock.documents.ocr.provider import Desk, Reading, Source
from penstock.kernel.blobs import Blobs
from penstock.kernel.clock import Clock
from penstock.kernel.json_object import JsonObject
from penstock.kernel.sandbox.call import Sandbox

log = logging.getLogger(__name__)


class MineruReader:
    """The OCR provider `mineru`."""

    name = "mineru"

    def __init__(self, blobs: Blobs, *, sandbox: Sandbox, scratch: Path, clock: Clock, terms: MineruTerms) -> None:
        """A token that is missing is said in the log; other parts of the house can do without."""
        self._means = Means(blobs=blobs, sandbox=sandbox, scratch=scratch, terms=terms)
        self._clock = clock
        self._terms = terms
        self._lacks_key = terms.spoken == "cloud" and not terms.api_key
        self._wire = Wire(terms.address, terms.api_key if terms.spoken == "cloud" else "")
        kind = Cloud if terms.spoken == "cloud" else SelfHosted
        self._service: Service = kind(self._wire, clock, terms)
        if self._lacks_key:
            log.warning("MINERU_API_KEY is not set: documents cannot be read by MinerU's cloud")

    @property
    def identity(self) -> JsonObject:
        """What a reading depends on beside the document."""
        return self._terms.identity

    async def read(self, source: Source, desk: Desk) -> Reading:
        """Read a document, going on where an earlier attempt stopped."""
        papers = Papers(self._means.blobs, desk.folder, self._means.scratch)
        if (done := await papers.find_reading()) is not None:
            return done
        if self._lacks_key:
            raise MineruKeyMissing
        began = time.perf_counter()
        async with Copy(self._means.blobs, source.key, self._means.scratch) as copy:
            errand = await self._begun(source, desk, copy)
            await self._read_parts(errand)
        return await self._bound(errand, papers, began)

    async def close(self) -> None:
        """Close what is open."""
        await self._wire.close()

    async def _begun(self, source: Source, desk: Desk, copy: Copy) -> Errand:
        """The reading as far as it has come."""
        means = self._means
        papers = JobPapers(means.blobs, desk.folder, means.scratch)
        plan = await papers.find_plan(self._terms.spoken, source.size_bytes)
        if plan is None:
            cutter = Cutter(sandbox=means.sandbox, terms=self._terms)
            cutter.check_size(source)
            planning = cutter.plan(await copy.path(), source)
            plan = await while_alive(planning, partial(desk.progress, 0, 1), self._clock, self._terms.poll_interval)
            await papers.begin(plan)
        errand = Errand(source=source, desk=desk, means=means, papers=papers, plan=plan, copy=copy)
        for part in plan.parts:
            if (kept := await papers.find_part(part)) is not None:
                errand.kept[part.number] = kept
        errand.job = await papers.find_job(self._terms.address)
        await errand.tell({})
        return errand

    async def _read_parts(self, errand: Errand) -> None:
        losses = 0
        while errand.parts:
            try:
                job = await self._sent(errand)
                await errand.copy.drop()
                await Watch(errand, job, self._service, self._clock, self._terms).run()
            except MineruLost:
                await errand.drop_job()
                losses += 1
                if losses > 1:
                    raise
                log.warning("MinerU has lost the job of %s: it is sent again", errand.source.key)
            except MineruUrlUnread:
                await errand.drop_job()
                if errand.plan.by_upload:
                    raise
                await errand.switch_to_upload()
                log.warning("MinerU cannot fetch %s: it is uploaded", errand.source.key)

    async def _sent(self, errand: Errand) -> Job:
        """The job that reads what is missing: an earlier one when it does, else a new one."""
        job = errand.job
        missing = {part.number for part in errand.parts}
        if job is not None and missing <= set(job.parts) and not job.uploads:
            await errand.show(job)  # a worker may have died before it could
            return job
        if job is not None and missing <= set(job.parts):
            errand.job = await self._service.go_on_sending(job, errand)
        else:
            errand.job = await self._service.send(errand)
        return errand.job

    async def _bound(self, errand: Errand, papers: Papers, began: float) -> Reading:
        """All parts as one reading."""
        pages = 0
        async with papers.bound() as binding:
            for part in errand.plan.parts:
                async for batch in errand.papers.pages(part):
                    await asyncio.to_thread(binding.add, batch)
                    pages += len(batch)
            reading = Reading(
                markdown_key=papers.markdown_key,
                pages_key=papers.pages_key,
                provider_task_id=self._id_of(errand),
                page_count=errand.plan.pages or pages,
                metadata={**self._metadata(errand, pages), "seconds": round(time.perf_counter() - began, 3)},
            )
            await papers.finish(binding, reading)
        return reading

    def _id_of(self, errand: Errand) -> str:
        """The id of the last job; one of our own where a server gives none."""
        if errand.job is not None and errand.job.id:
            return errand.job.id
        name = hashlib.sha256(f"{errand.desk.folder}\n{errand.source.key}".encode()).hexdigest()
        return f"{self.name}-{name[:16]}"

    def _metadata(self, errand: Errand, pages: int) -> JsonObject:
        terms = self._terms
        known: JsonObject = {
            "provider": self.name,  # MinerU's licence wants services that use it to name it
            "protocol": terms.spoken,
            "pages": errand.plan.pages or pages,
            "parts": len(errand.plan.parts),
            "by_page": all(kept.by_page for kept in errand.kept.values()),
        }
        return {**known, "model_version": terms.model_version} if terms.spoken == "cloud" else known

"""The provider: plan the document, submit it, poll the job, assemble the pages.

A lost job is submitted again, once per attempt; a document that MinerU cannot fetch by URL is uploaded. Parts that were
read are stored, so after a failure only the others are submitted, and paid for, again.
"""

import asyncio
import hashlib
import logging
import time
from functools import partial
from pathlib import Path

from penstock.adapters.local_reader.artifacts import ReadingArtifacts
from penstock.adapters.mineru.checkpoints import JobCheckpoints
from penstock.adapters.mineru.cloud import Cloud
from penstock.adapters.mineru.config import MineruConfig
from penstock.adapters.mineru.errors import MineruJobLost, MineruKeyMissing, MineruUrlUnreachable
from penstock.adapters.mineru.heartbeat import with_heartbeat
from penstock.adapters.mineru.http import MineruHttp
from penstock.adapters.mineru.jobs import MineruJob
from penstock.adapters.mineru.plan import PdfSplitter
from penstock.adapters.mineru.poll import JobPoller
from penstock.adapters.mineru.protocol import MineruService
from penstock.adapters.mineru.selfhosted import SelfHosted
from penstock.adapters.mineru.session import LocalCopy, MineruDeps, MineruSession
from penstock.documents.ocr.provider import Reading, Source, StageContext, check_size
from penstock.kernel.blobs import Blobs
from penstock.kernel.clock import Clock
from penstock.kernel.json_object import JsonObject
from penstock.kernel.sandbox.call import Sandbox

log = logging.getLogger(__name__)


class MineruReader:
    """The OCR provider `mineru`."""

    name = "mineru"

    def __init__(self, blobs: Blobs, *, sandbox: Sandbox, scratch: Path, clock: Clock, config: MineruConfig) -> None:
        """A missing API key is only logged: the rest of the process works without it."""
        self._deps = MineruDeps(blobs=blobs, sandbox=sandbox, scratch=scratch, config=config)
        self._clock = clock
        self._config = config
        self._key_missing = config.resolved_protocol == "cloud" and not config.api_key
        self._http = MineruHttp(config.address, config.api_key if config.resolved_protocol == "cloud" else "")
        kind = Cloud if config.resolved_protocol == "cloud" else SelfHosted
        self._service: MineruService = kind(self._http, clock, config)
        if self._key_missing:
            log.warning("MINERU_API_KEY is not set: MinerU's cloud cannot read documents")

    @property
    def identity(self) -> JsonObject:
        """What a reading depends on besides the document."""
        return self._config.identity

    async def read(self, source: Source, context: StageContext) -> Reading:
        """Read a document, resuming an earlier attempt."""
        artifacts = ReadingArtifacts(self._deps.blobs, context.folder, self._deps.scratch)
        if (done := await artifacts.find_reading()) is not None:
            return done
        if self._key_missing:
            raise MineruKeyMissing
        began = time.perf_counter()
        async with LocalCopy(self._deps.blobs, source, self._deps.scratch) as copy:
            session = await self._resume(source, context, copy)
            await self._read_parts(session)
        return await self._assemble(session, artifacts, began)

    async def close(self) -> None:
        """Close the HTTP session."""
        await self._http.close()

    async def _resume(self, source: Source, context: StageContext, copy: LocalCopy) -> MineruSession:
        """The session, with everything earlier attempts stored."""
        deps = self._deps
        checkpoints = JobCheckpoints(deps.blobs, context.folder, deps.scratch)
        plan = await checkpoints.find_plan(self._config.resolved_protocol, source.size_bytes)
        if plan is None:
            cutter = PdfSplitter(sandbox=deps.sandbox, config=self._config)
            check_size(source, max_bytes=self._config.max_document_bytes)
            planning = cutter.plan(await copy.path(), source)
            plan = await with_heartbeat(
                planning, partial(context.progress, 0, 1), self._clock, self._config.poll_interval
            )
            await checkpoints.begin(plan)
        session = MineruSession(
            source=source, context=context, deps=deps, checkpoints=checkpoints, plan=plan, copy=copy
        )
        for part in plan.parts:
            if (kept := await checkpoints.find_part(part)) is not None:
                session.kept[part.number] = kept
        session.job = await checkpoints.find_job(self._config.address)
        await session.report_progress({})
        return session

    async def _read_parts(self, session: MineruSession) -> None:
        losses = 0
        while session.parts:
            try:
                job = await self._submit(session)
                await session.copy.drop()
                await JobPoller(session, job, self._service, self._clock, self._config).run()
            except MineruJobLost:
                await session.drop_job()
                losses += 1
                if losses > 1:
                    raise
                log.warning("MinerU has lost the job of %s; submitting it again", session.source.key)
            except MineruUrlUnreachable:
                await session.drop_job()
                if session.plan.by_upload:
                    raise
                await session.switch_to_upload()
                log.warning("MinerU cannot fetch %s; uploading it", session.source.key)

    async def _submit(self, session: MineruSession) -> MineruJob:
        """The job that reads the missing parts: an earlier one if it covers them, else a new one."""
        job = session.job
        missing = {part.number for part in session.parts}
        if job is not None and missing <= set(job.parts) and not job.uploads:
            await session.show(job)  # an earlier worker may have died before it could
            return job
        if job is not None and missing <= set(job.parts):
            session.job = await self._service.resume_upload(job, session)
        else:
            session.job = await self._service.send(session)
        return session.job

    async def _assemble(self, session: MineruSession, artifacts: ReadingArtifacts, began: float) -> Reading:
        """Assemble all parts into one reading."""
        pages = 0
        async with artifacts.result_files() as files:
            for part in session.plan.parts:
                async for batch in session.checkpoints.pages(part):
                    await asyncio.to_thread(files.add, batch)
                    pages += len(batch)
            reading = Reading(
                markdown_key=artifacts.markdown_key,
                pages_key=artifacts.pages_key,
                provider_task_id=self._id_of(session),
                page_count=session.plan.pages or pages,
                metadata={**self._metadata(session, pages), "seconds": round(time.perf_counter() - began, 3)},
            )
            await artifacts.finish(files, reading)
        return reading

    def _id_of(self, session: MineruSession) -> str:
        """The id of the last job; one of our own if the server has none."""
        if session.job is not None and session.job.id:
            return session.job.id
        name = hashlib.sha256(f"{session.context.folder}\n{session.source.key}".encode()).hexdigest()
        return f"{self.name}-{name[:16]}"

    def _metadata(self, session: MineruSession, pages: int) -> JsonObject:
        config = self._config
        known: JsonObject = {
            "provider": self.name,  # MinerU's licence requires services to name it
            "protocol": config.resolved_protocol,
            "pages": session.plan.pages or pages,
            "parts": len(session.plan.parts),
            "by_page": all(kept.by_page for kept in session.kept.values()),
        }
        return {**known, "model_version": config.model_version} if config.resolved_protocol == "cloud" else known

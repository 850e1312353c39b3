"""The stage context of an attempt: the folder of its checkpoints, its progress reports and its cancel check.

Every report counts as a heartbeat. A stage without one for ETL_TASK_TIMEOUT is stopped, so a long document does not
fail for being long. Progress updates of run state are throttled to a few per second.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeVar

from penstock.etl import papers
from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask, Failure, Phase, Status
from penstock.etl.errors import RunCancelled, StageTimedOut
from penstock.etl.papers import Memo, ReadingPaper
from penstock.etl.runs import Trail
from penstock.etl.store import tasks
from penstock.kernel.json_object import JsonObject

T = TypeVar("T")

BETWEEN_PUTS = timedelta(seconds=0.25)  # faster pages are reported together
BREATH = timedelta(seconds=10)  # the longest time without a progress update
STOP_SECONDS = 5  # for a cancelled provider to stop
SHARE = {Phase.OCR: (1, 80), Phase.POSTPROCESS: (80, 99)}  # range of the progress, in percent


class StageDesk:
    """One attempt of one stage. It is the `Desk` that providers of `documents/` are given."""

    def __init__(self, deps: Deps, trail: Trail, phase: Phase) -> None:
        self.trail = trail
        self.is_cancelled = False
        self._deps = deps
        self._phase = phase
        self._alive_at = self._put_at = deps.db.clock.now()

    @property
    def task(self) -> EtlTask:
        """The task as it is in run state, or will be with the next update."""
        return self.trail.task

    @property
    def cached(self) -> JsonObject | None:
        """The cache metadata that an earlier attempt of this stage reported."""
        known: JsonObject | None = self.task.metadata.get(papers.CACHE, {}).get(self._phase)
        return known

    @property
    def folder(self) -> str:
        """The prefix, with its slash, of every key that the stage writes while it works."""
        of = papers.reading_folder if self._phase is Phase.OCR else papers.shaping_folder
        return of(self.task)

    @property
    def provider_task_id(self) -> str | None:
        """The remote task id that an earlier attempt stored."""
        known: str | None = self.task.metadata.get("provider_task_id")
        return known

    async def progress(self, done: int, of: int) -> None:
        """Report how many pages (or steps) are done. Raises `RunCancelled` after a cancel; do not catch it."""
        now = self._live()
        if now - self._put_at < BETWEEN_PUTS:
            return  # the end of the stage reports it too
        self._put_at = now
        first, last = SHARE[self._phase]
        percent = first + (last - first) * min(done, of) // max(of, 1)
        metadata = {**self.task.metadata, **(self._pages(done, of) if self._phase is Phase.OCR else {})}
        await self._move(replace(self.task, progress=max(self.task.progress, percent), metadata=metadata))

    async def remember(self, provider_task_id: str) -> None:
        """Store a remote provider's task id before the first poll, so that the next attempt polls the same task."""
        self._live()
        pointers = {**self.task.metadata, "provider_task_id": provider_task_id}
        async with self._deps.db.tx() as tx:
            active = await tasks.move_metadata(tx, self.task, pointers)
        if not active:
            self._stop()
        await self._move(replace(self.task, metadata=pointers))

    def note_cache(self, phase: Phase, memo: Memo) -> None:
        """Report the cache outcome with the next update."""
        self._live()
        self.trail.note(replace(self.task, metadata={**self.task.metadata, **self._cache(phase, memo)}))

    async def begin_shaping(self, paper: ReadingPaper) -> None:
        """Report that OCR is done, and where its markdown is."""
        self._live()
        progress = max(self.task.progress, SHARE[Phase.POSTPROCESS][0])
        pointers = {**self.task.metadata, **self._pointers(paper)}
        read = replace(self.task, status=Status.LLM_PROCESSING, progress=progress, metadata=pointers)
        await self._move(read, phase=Phase.POSTPROCESS)

    def shows(self, paper: ReadingPaper) -> bool:
        """Whether that was reported already: by the OCR stage, unless this run started after OCR."""
        was_shown = self.task.progress >= SHARE[Phase.POSTPROCESS][0]
        return was_shown and self.task.metadata.items() >= self._pointers(paper).items()

    async def note(self, failure: Failure) -> None:
        """Report why this attempt failed; another follows."""
        await self._move(self.task, error_code=failure.code, error_message=failure.message)

    async def check(self) -> None:
        """Raise `RunCancelled` if the row says that this run has ended. Call it before writing artifacts."""
        await self.breathe()
        async with self._deps.db.read() as tx:
            active = await tasks.is_active(tx, self.task.id, run=self.task.run)
        if not active:
            self._stop()

    async def breathe(self) -> None:
        """Send a heartbeat if there was no update for a while: hashing a large document takes long and has no pages to
        report."""
        now = self._live()
        if now - self._put_at >= BREATH:
            self._put_at = now
            await self._move(self.task)

    def seconds(self) -> float:
        """Seconds since the first worker started the run."""
        now = self._deps.db.clock.now()
        return round((now - (self.trail.course.began_at or now)).total_seconds(), 3)

    async def watched(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work; `StageTimedOut` if it reports nothing for ETL_TASK_TIMEOUT."""
        working = asyncio.create_task(work)
        watching = asyncio.create_task(self._wait_for_silence())
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise StageTimedOut
        finally:
            watching.cancel()
            working.cancel()
            done, _ = await asyncio.wait({working, watching}, timeout=STOP_SECONDS)
            for task in done:
                if not task.cancelled():
                    task.exception()  # retrieve it, or asyncio logs that it was never retrieved

    async def _wait_for_silence(self) -> None:
        clock, timeout = self._deps.db.clock, timedelta(seconds=self._deps.config.task_timeout)
        while (left := (self._alive_at + timeout - clock.now()).total_seconds()) > 0:
            await clock.sleep(left)

    def _pages(self, done: int, of: int) -> JsonObject:
        """An attempt that resumes passes the existing pages again; the number of finished pages never decreases."""
        return {"pages_done": max(done, self.task.metadata.get("pages_done", 0)), "page_count": of}

    def _pointers(self, paper: ReadingPaper) -> JsonObject:
        reading = paper.reading
        return {
            "artifact_mineru_markdown_key": reading.markdown_key,
            "provider_task_id": reading.provider_task_id,
            "pages_done": reading.page_count,
            "page_count": reading.page_count,
            "ocr": reading.metadata,
            **self._cache(Phase.OCR, paper.memo),
        }

    def _cache(self, phase: Phase, memo: Memo) -> JsonObject:
        return {papers.CACHE: {**self.task.metadata.get(papers.CACHE, {}), phase.value: memo.shown}}

    async def _move(self, task: EtlTask, **course: Any) -> None:
        try:
            await self.trail.move(task, **course)
        except RunCancelled:
            self._stop()

    def _stop(self) -> NoReturn:
        """Set a flag too, since a provider may wrap the error."""
        self.is_cancelled = True
        raise RunCancelled(task_id=self.task.id, run=self.task.run)

    def _live(self) -> datetime:
        self._alive_at = self._deps.db.clock.now()
        return self._alive_at

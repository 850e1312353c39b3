"""The desk of a stage: where its tool works, and whom it tells how far it is.

Whatever is told here is a sign of life. A stage that gives none for ETL_TASK_TIMEOUT is stopped, so a long document
does not fail for being long. Run state is not put for every page of a quick reader, but a few times a second at most.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeVar

from penstock.etl import papers
from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask, Failure, Phase, Status
from penstock.etl.errors import NotWanted, StageTimedOut
from penstock.etl.papers import Memo, ReadingPaper
from penstock.etl.runs import Trail
from penstock.etl.store import tasks
from penstock.kernel.json_object import JsonObject

T = TypeVar("T")

BETWEEN_PUTS = timedelta(seconds=0.25)  # quicker pages are shown together
BREATH = timedelta(seconds=10)  # the longest silence of a stage that is asked whether it is wanted
STOP_SECONDS = 5  # for a tool that is told to stop
SHARE = {Phase.OCR: (1, 80), Phase.POSTPROCESS: (80, 99)}  # of the whole way, in percent


class StageDesk:
    """One attempt of one stage. It is the `Desk` that tools of `documents/` are given."""

    def __init__(self, tools: Deps, trail: Trail, phase: Phase) -> None:
        self.trail = trail
        self.unwanted = False
        self._tools = tools
        self._phase = phase
        self._alive_at = self._put_at = tools.db.clock.now()

    @property
    def task(self) -> EtlTask:
        """The task as it is shown now, or will be by the next word to run state."""
        return self.trail.task

    @property
    def cached(self) -> JsonObject | None:
        """What an earlier attempt of this stage had to say of the memory."""
        known: JsonObject | None = self.task.metadata.get(papers.CACHE, {}).get(self._phase)
        return known

    @property
    def folder(self) -> str:
        """The prefix, with its slash, of every key that the stage writes while it works."""
        of = papers.reading_folder if self._phase is Phase.OCR else papers.shaping_folder
        return of(self.task)

    @property
    def provider_task_id(self) -> str | None:
        """What an earlier attempt was told to remember."""
        known: str | None = self.task.metadata.get("provider_task_id")
        return known

    async def progress(self, done: int, of: int) -> None:
        """Tell how many pages (or steps) are done. Raises when the task is not wanted any more: let it through."""
        now = self._live()
        if now - self._put_at < BETWEEN_PUTS:
            return  # what ends a stage shows it, too
        self._put_at = now
        first, last = SHARE[self._phase]
        percent = first + (last - first) * min(done, of) // max(of, 1)
        metadata = {**self.task.metadata, **(self._pages(done, of) if self._phase is Phase.OCR else {})}
        await self._move(replace(self.task, progress=max(self.task.progress, percent), metadata=metadata))

    async def remember(self, provider_task_id: str) -> None:
        """Keep a remote provider's task id, so that the next attempt can go on asking for it."""
        self._live()
        pointers = {**self.task.metadata, "provider_task_id": provider_task_id}
        async with self._tools.db.tx() as tx:
            wanted = await tasks.move_pointers(tx, self.task, pointers)
        if not wanted:
            self._stop()
        await self._move(replace(self.task, metadata=pointers))

    def note_cache(self, phase: Phase, memo: Memo) -> None:
        """Show with the next word what the memory had to say."""
        self._live()
        self.trail.note(replace(self.task, metadata={**self.task.metadata, **self._cache(phase, memo)}))

    async def begin_shaping(self, paper: ReadingPaper) -> None:
        """Show that the document is read, and where its markdown is."""
        self._live()
        progress = max(self.task.progress, SHARE[Phase.POSTPROCESS][0])
        pointers = {**self.task.metadata, **self._pointers(paper)}
        read = replace(self.task, status=Status.LLM_PROCESSING, progress=progress, metadata=pointers)
        await self._move(read, phase=Phase.POSTPROCESS)

    def shows(self, paper: ReadingPaper) -> bool:
        """Whether that was shown when this stage began: whoever read the document did it, unless this is a new run."""
        was_shown = self.task.progress >= SHARE[Phase.POSTPROCESS][0]
        return was_shown and self.task.metadata.items() >= self._pointers(paper).items()

    async def note(self, failure: Failure) -> None:
        """Show why this attempt failed; another will follow."""
        await self._move(self.task, error_code=failure.code, error_message=failure.message)

    async def check(self) -> None:
        """Raise `NotWanted` unless this run is still under way by its row: before something is written that lasts."""
        await self.breathe()
        async with self._tools.db.read() as tx:
            wanted = await tasks.is_under_way(tx, self.task.id, run=self.task.run)
        if not wanted:
            self._stop()

    async def breathe(self) -> None:
        """Let others see that the stage lives, where nothing was shown for a while: to hash a large document takes
        long, and has no pages to tell of."""
        now = self._live()
        if now - self._put_at >= BREATH:
            self._put_at = now
            await self._move(self.task)

    def seconds(self) -> float:
        """How long the run has taken since its first worker took it up."""
        now = self._tools.db.clock.now()
        return round((now - (self.trail.course.began_at or now)).total_seconds(), 3)

    async def watched(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work returns, or `StageTimedOut` when it gives no sign of life for too long."""
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
                    task.exception()  # looked at, or asyncio complains that nobody did

    async def _wait_for_silence(self) -> None:
        clock, patience = self._tools.db.clock, timedelta(seconds=self._tools.terms.task_timeout)
        while (left := (self._alive_at + patience - clock.now()).total_seconds()) > 0:
            await clock.sleep(left)

    def _pages(self, done: int, of: int) -> JsonObject:
        """An attempt that finds pages passes them once more, and does not tell of fewer than were there before."""
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
        except NotWanted:
            self._stop()

    def _stop(self) -> NoReturn:
        """Remembered too, since a tool may give the error another name on its way up."""
        self.unwanted = True
        raise NotWanted(task_id=self.task.id, run=self.task.run)

    def _live(self) -> datetime:
        self._alive_at = self._tools.db.clock.now()
        return self._alive_at

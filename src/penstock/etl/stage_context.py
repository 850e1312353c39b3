"""The context of one attempt of a stage: the folder of its checkpoints, its progress and its cancel check."""

from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, TypeVar

from penstock.etl import artifacts, run_state
from penstock.etl.artifacts import CacheOutcome, OcrCommit
from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask, Failure, Phase, Status
from penstock.etl.errors import RunCancelled, StageTimedOut
from penstock.etl.run_state import AttemptCodec, TaskRun
from penstock.etl.store import tasks
from penstock.kernel.db import Tx
from penstock.kernel.json_object import JsonObject
from penstock.kernel.stages.run_handle import HeldLease, RunHandle
from penstock.kernel.stages.stage_run import StageRun

T = TypeVar("T")

PERCENT = {Phase.OCR: (1, 80), Phase.POSTPROCESS: (80, 99)}  # range of the progress


class EtlStageContext:
    """One attempt of one stage. It is the `StageContext` that providers and post-processors get."""

    def __init__(self, deps: Deps, run: StageRun[TaskRun], phase: Phase) -> None:
        self._deps = deps
        self._run = run
        self._phase = phase

    @classmethod
    async def open(cls, deps: Deps, lease: HeldLease, row: EtlTask, phase: Phase, *, attempt: int) -> "EtlStageContext":
        """Take over the run state. `LeaseLost` if the run has ended; `RunMovedOn` if run state cannot be taken over."""
        run_key, clock = run_state.key(deps, row.id), deps.db.clock
        codec = AttemptCodec(key=run_key, row=row, phase=phase, attempt=attempt, clock=clock, database=deps.db.identity)
        run = StageRun(
            await RunHandle.take_over(deps.runs, lease, codec),
            advance=_advance_pages if phase is Phase.OCR else _advance_steps,
            lost=lambda: RunCancelled(task_id=row.id, run=row.run),
            stalled=StageTimedOut,
            stall_seconds=deps.config.task_timeout,
        )
        return cls(deps, run, phase)

    @property
    def task(self) -> EtlTask:
        """The task as it is in run state, or will be with the next update."""
        return self._run.state.task

    @property
    def is_lost(self) -> bool:
        """Whether the lease was found lost: the run was cancelled, or another worker has taken over."""
        return self._run.is_lost

    @property
    def cached(self) -> JsonObject | None:
        """The cache metadata that an earlier attempt of this stage reported."""
        known: JsonObject | None = self.task.metadata.get(artifacts.CACHE, {}).get(self._phase)
        return known

    @property
    def folder(self) -> str:
        """The prefix, with its slash, of every key that the stage writes while it works."""
        return artifacts.work_folder(self.task, self._phase)

    @property
    def provider_task_id(self) -> str | None:
        """The remote task id that an earlier attempt stored."""
        known: str | None = self.task.metadata.get("provider_task_id")
        return known

    async def progress(self, done: int, of: int) -> None:
        """Report how many pages (or steps) are done. Raises `RunCancelled` after a cancel; do not catch it."""
        await self._run.progress(done, of)

    async def remember(self, provider_task_id: str) -> None:
        """Store a remote provider's task id before the first poll, so that the next attempt polls the same task."""
        metadata = {**self.task.metadata, "provider_task_id": provider_task_id}
        async with self._run.tx() as tx:
            await self._run.check_in(tx)
            await tasks.move_metadata(tx, self.task, metadata)
        await self._update(replace(self.task, metadata=metadata))

    def note_cache(self, phase: Phase, outcome: CacheOutcome) -> None:
        """Report the cache outcome with the next update."""
        metadata = {**self.task.metadata, **self._cache(phase, outcome)}
        self._run.note(replace(self._run.state, task=replace(self.task, metadata=metadata)))

    async def begin_postprocess(self, done: OcrCommit) -> None:
        """Report that OCR is done, and where its markdown is."""
        progress = max(self.task.progress, PERCENT[Phase.POSTPROCESS][0])
        metadata = {**self.task.metadata, **self._pointers(done)}
        read = replace(self.task, status=Status.LLM_PROCESSING, progress=progress, metadata=metadata)
        await self._update(read, phase=Phase.POSTPROCESS)

    def shows(self, done: OcrCommit) -> bool:
        """Whether that was reported already: by the OCR stage, unless this run started after OCR."""
        was_shown = self.task.progress >= PERCENT[Phase.POSTPROCESS][0]
        return was_shown and self.task.metadata.items() >= self._pointers(done).items()

    async def note_failure(self, failure: Failure) -> None:
        """Report why this attempt failed; another follows."""
        await self._update(self.task, error_code=failure.code, error_message=failure.message)

    async def check(self) -> None:
        """Raise `RunCancelled` if the lease is lost. Call it before writing artifacts."""
        await self._run.check()

    async def heartbeat(self) -> None:
        """Update run state if nothing did for a while: hashing a large document takes long and has no pages."""
        await self._run.heartbeat()

    def read(self) -> AbstractAsyncContextManager[Tx]:
        """A short read of the database."""
        return self._run.read()

    def seconds(self) -> float:
        """Seconds since the first worker started the run."""
        now = self._deps.db.clock.now()
        return round((now - (self._run.state.details.began_at or now)).total_seconds(), 3)

    async def watched(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work; `StageTimedOut` if it reports nothing for ETL_TASK_TIMEOUT."""
        return await self._run.watched(work)

    def _pointers(self, done: OcrCommit) -> JsonObject:
        reading = done.reading
        return {
            "artifact_mineru_markdown_key": reading.markdown_key,
            "provider_task_id": reading.provider_task_id,
            "pages_done": reading.page_count,
            "page_count": reading.page_count,
            "ocr": reading.metadata,
            **self._cache(Phase.OCR, done.cache),
        }

    def _cache(self, phase: Phase, outcome: CacheOutcome) -> JsonObject:
        return {artifacts.CACHE: {**self.task.metadata.get(artifacts.CACHE, {}), phase.value: outcome.shown}}

    async def _update(self, task: EtlTask, **details: Any) -> None:
        await self._run.update(TaskRun(task=task, details=replace(self._run.state.details, **details)))


def _advance_pages(run: TaskRun, done: int, of: int) -> TaskRun:
    """An attempt that resumes passes the existing pages again; the number of finished pages never decreases."""
    pages = {"pages_done": max(done, run.task.metadata.get("pages_done", 0)), "page_count": of}
    task = replace(run.task, metadata={**run.task.metadata, **pages})
    return replace(run, task=_with_progress(task, Phase.OCR, done, of))


def _advance_steps(run: TaskRun, done: int, of: int) -> TaskRun:
    return replace(run, task=_with_progress(run.task, Phase.POSTPROCESS, done, of))


def _with_progress(task: EtlTask, phase: Phase, done: int, of: int) -> EtlTask:
    first, last = PERCENT[phase]
    percent = first + (last - first) * min(done, of) // max(of, 1)
    return replace(task, progress=max(task.progress, percent))

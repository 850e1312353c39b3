"""Run state of tasks: the current progress of each, at `etl:task:{id}`.

The order of an entry has three parts: the rank of the status, the turn (one for each attempt), and the step within the
turn. So run state never moves back within a run, and a repeated update is harmless. A worker that lost its lease has an
earlier turn than its successor: its next update is refused, and it stops. A final entry comes after all of these; a
retry opens the next run.

`show` puts the state of a row, at the beginning and at the end of a run. In between, the worker that holds the turn
updates the entry through a `Trail`.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask, Phase, Status
from penstock.etl.errors import RunCancelled
from penstock.kernel.errors import PenstockError
from penstock.kernel.runstate import RunEntry, RunMovedOn

log = logging.getLogger(__name__)

RANKS = {Status.PENDING: 0, Status.MINERU_PARSING: 1, Status.LLM_PROCESSING: 2}
LAST_RANK = 3  # of every final status
RANK, TURN = 1 << 60, 1 << 32  # 28 bits of turns, 32 bits of steps in each: more than a run can have
REMOVED = "removed"  # status of an entry whose task was removed
TRIES = 5  # to start a turn against concurrent workers


@dataclass(frozen=True, kw_only=True)
class Course:
    """The part of a run that only run state holds."""

    phase: Phase
    turn: int = 0
    step: int = 0
    attempt_ocr: int = 0
    attempt_postprocess: int = 0
    began_at: datetime | None = None  # when the first worker started it
    error_code: str | None = None  # of the last attempt
    error_message: str | None = None


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The state of a run: the task as callers see it, and its course."""

    task: EtlTask
    course: Course

    @classmethod
    def of(cls, row: EtlTask, *, phase: Phase | None = None) -> "Standing":
        """The state of a run that no worker has started, or that has ended."""
        known = row.metadata
        course = Course(
            phase=Phase.FINALIZE if row.is_final else phase or row.first_phase,
            attempt_ocr=known.get("attempt_ocr", 0),
            attempt_postprocess=known.get("attempt_postprocess", 0),
            error_code=known.get("error_code"),
            error_message=row.error,
        )
        return cls(task=row, course=course)

    @property
    def order(self) -> int:
        """Its position within the run; a higher one wins."""
        return RANKS.get(self.task.status, LAST_RANK) * RANK + self.course.turn * TURN + self.course.step


def job_id(task: EtlTask, phase: Phase) -> str:
    """The id of the job of one phase of a run."""
    return f"etl:{task.id}:{task.run}:{phase}"


def key(deps: Deps, task_id: int) -> str:
    """The run state key of a task."""
    return f"{deps.config.key_prefix}task:{task_id}"


def entry_of(deps: Deps, standing: Standing) -> RunEntry:
    """The run state entry of a standing."""
    task, course = standing.task, standing.course
    pointers: dict[str, Any] = {
        "task_id": task.id,
        "arq_job_id_ocr": job_id(task, Phase.OCR) if task.first_phase is Phase.OCR else None,
        "arq_job_id_postprocess": None if course.phase is Phase.OCR else job_id(task, Phase.POSTPROCESS),
        "artifact_mineru_markdown_key": task.metadata.get("artifact_mineru_markdown_key"),
        "provider_task_id": task.metadata.get("provider_task_id"),
    }
    return RunEntry(
        key=key(deps, task.id),
        run=task.run,
        order=standing.order,
        status=task.status,
        final=task.is_final,
        fields={**msgspec.to_builtins(task), **msgspec.to_builtins(course), **pointers},
    )


def standing_of(entry: RunEntry) -> Standing | None:
    """The standing in an entry; None if its task was removed or the entry is unreadable."""
    if entry.status == REMOVED:
        return None
    try:
        return Standing(task=msgspec.convert(entry.fields, EtlTask), course=msgspec.convert(entry.fields, Course))
    except msgspec.MsgspecError as error:
        log.warning("cannot decode run state at %s: %s", entry.key, error)
        return None


async def find(deps: Deps, task_id: int) -> Standing | None:
    """The standing of a task, if run state has one."""
    entry = await deps.runs.get(key(deps, task_id))
    return None if entry is None else standing_of(entry)


async def look(deps: Deps, task_id: int) -> Standing | None:
    """The standing of a task; None also while run state is unavailable, so that callers use the row."""
    try:
        return await find(deps, task_id)
    except PenstockError as error:
        _pass_over(error)
        return None


async def list_these(deps: Deps, task_ids: Sequence[int]) -> Mapping[int, Standing]:
    """The standings of these tasks that run state has."""
    try:
        entries = await deps.runs.get_many([key(deps, task_id) for task_id in task_ids])
    except PenstockError as error:
        _pass_over(error)
        return {}
    found = map(standing_of, entries)
    return {standing.task.id: standing for standing in found if standing is not None}


def laid_over(row: EtlTask, standing: Standing | None) -> EtlTask:
    """A row with its run state applied, if the row is active."""
    if row.is_final or standing is None or standing.task.run < row.run or not standing.task.is_same_task(row):
        return row
    return standing.task


async def show(deps: Deps, row: EtlTask, *, phase: Phase | None = None) -> None:
    """Put the state of a row; a no-op if it is there already, or if a worker has progressed since."""
    with suppress(RunMovedOn):
        await deps.runs.put(entry_of(deps, Standing.of(row, phase=phase)))


async def show_removed(deps: Deps, task_id: int, *, run: int) -> None:
    """Mark a task as removed."""
    gone = RunEntry(key=key(deps, task_id), run=run + 1, order=0, status=REMOVED, final=True)
    with suppress(RunMovedOn):
        await deps.runs.put(gone)


async def show_soon(deps: Deps, row: EtlTask) -> None:
    """Put the state of a row now; if run state is unavailable, the outbox message does it later."""
    try:
        await show(deps, row)
    except PenstockError as error:
        _pass_over(error)


async def hide_soon(deps: Deps, row: EtlTask) -> None:
    """Mark a task as removed now; if run state is unavailable, the outbox message does it later."""
    try:
        await show_removed(deps, row.id, run=row.run)
    except PenstockError as error:
        _pass_over(error)


class Trail:
    """The run state of one run, written by the worker that holds the turn."""

    def __init__(self, deps: Deps, standing: Standing) -> None:
        self._deps = deps
        self._standing = standing

    @classmethod
    async def open(cls, deps: Deps, row: EtlTask, phase: Phase, *, attempt: int) -> "Trail":
        """Start this worker's turn. `RunCancelled` if the run has ended."""
        for _ in range(TRIES):
            found = await find(deps, row.id)
            mine = _taken_up(found, row, phase, attempt=attempt, now=deps.db.clock.now())
            with suppress(RunMovedOn):
                await deps.runs.put(entry_of(deps, mine))
                return cls(deps, mine)
        raise RunCancelled(task_id=row.id, run=row.run)

    @property
    def task(self) -> EtlTask:
        """The task as it is in run state, or will be with the next move."""
        return self._standing.task

    @property
    def course(self) -> Course:
        """The current course."""
        return self._standing.course

    def note(self, task: EtlTask) -> None:
        """Include this in the next move, without an update of its own."""
        self._standing = replace(self._standing, task=task)

    async def move(self, task: EtlTask, **course: Any) -> None:
        """Update run state, or raise `RunCancelled`. While run state is unavailable, the work continues without it."""
        task = replace(task, updated_at=self._deps.db.clock.now())
        later = replace(self.course, step=self.course.step + 1, **course)
        self._standing = Standing(task=task, course=later)
        try:
            await self._deps.runs.put(entry_of(self._deps, self._standing))
        except RunMovedOn as error:
            raise RunCancelled(task_id=task.id, run=task.run) from error
        except PenstockError as error:
            _pass_over(error)


def _pass_over(error: PenstockError) -> None:
    """Ignore that run state is unavailable; raise anything else."""
    if not error.internal_outage:
        raise error
    log.warning("continuing without run state: %s", error)


def _taken_up(found: Standing | None, row: EtlTask, phase: Phase, *, attempt: int, now: datetime) -> Standing:
    mine = found is not None and found.task.is_same_task(row) and found.task.run >= row.run
    before = found if found is not None and mine else Standing.of(row, phase=phase)
    if before.task.run > row.run or before.task.is_final:
        raise RunCancelled(task_id=row.id, run=row.run)
    status = Status.MINERU_PARSING if phase is Phase.OCR else Status.LLM_PROCESSING
    if RANKS[before.task.status] > RANKS[status]:
        status = before.task.status  # a worker was killed after OCR was done
    task = replace(
        row,
        status=status,
        progress=before.task.progress,
        updated_at=now,
        metadata={**before.task.metadata, **row.metadata, f"attempt_{phase}": attempt},
    )
    course = replace(
        before.course,
        phase=Phase.OCR if status is Status.MINERU_PARSING else Phase.POSTPROCESS,
        turn=before.course.turn + 1,
        step=0,
        began_at=before.course.began_at or now,
        attempt_ocr=task.metadata.get("attempt_ocr", 0),
        attempt_postprocess=task.metadata.get("attempt_postprocess", 0),
    )
    return Standing(task=task, course=course)

"""The run state of tasks: how far each is, for whoever asks, at `etl:task:{number}`.

An entry's order is made of three parts: how far the status is, which worker's turn it is, and that worker's step. So
within a run no status ever gives way to an earlier one, and once a worker has taken a run up, nobody can move it who
had it before. A final entry comes after all of these; a retry opens the next run.

`show` puts what a row says, at the beginning and at the end of a run. In between, the worker whose turn it is moves
the entry along a `Trail`.
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
from penstock.etl.errors import NotWanted
from penstock.kernel.errors import PenstockError
from penstock.kernel.runstate import RunEntry, RunMovedOn

log = logging.getLogger(__name__)

RANKS = {Status.PENDING: 0, Status.MINERU_PARSING: 1, Status.LLM_PROCESSING: 2}
LAST_RANK = 3  # of every final status
RANK, TURN = 1 << 60, 1 << 32  # 28 bits of turns, 32 bits of steps in each: more than a run can have
REMOVED = "removed"  # the status of an entry whose task is gone
TRIES = 5  # to take up a run that others take up too


@dataclass(frozen=True, kw_only=True)
class Course:
    """What only run state knows of a run."""

    phase: Phase
    turn: int = 0
    step: int = 0
    attempt_ocr: int = 0
    attempt_postprocess: int = 0
    began_at: datetime | None = None  # when the first worker took it up
    error_code: str | None = None  # of the last attempt
    error_message: str | None = None


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a run stands: the task as callers see it, and its course."""

    task: EtlTask
    course: Course

    @classmethod
    def of(cls, row: EtlTask, *, phase: Phase | None = None) -> "Standing":
        """Where a run stands that nobody has taken up, or that is over."""
        known = row.metadata
        course = Course(
            phase=Phase.FINALIZE if row.is_over else phase or row.begins_with,
            attempt_ocr=known.get("attempt_ocr", 0),
            attempt_postprocess=known.get("attempt_postprocess", 0),
            error_code=known.get("error_code"),
            error_message=row.error,
        )
        return cls(task=row, course=course)

    @property
    def order(self) -> int:
        """Its place within the run."""
        return RANKS.get(self.task.status, LAST_RANK) * RANK + self.course.turn * TURN + self.course.step


def job_id(task: EtlTask, phase: Phase) -> str:
    """The job that carries a run through a phase."""
    return f"etl:{task.id}:{task.run}:{phase}"


def key(tools: Deps, task_id: int) -> str:
    """Where a task's run state is."""
    return f"{tools.terms.key_prefix}task:{task_id}"


def entry_of(tools: Deps, standing: Standing) -> RunEntry:
    """A standing as it is put."""
    task, course = standing.task, standing.course
    pointers: dict[str, Any] = {
        "task_id": task.id,
        "arq_job_id_ocr": job_id(task, Phase.OCR) if task.begins_with is Phase.OCR else None,
        "arq_job_id_postprocess": None if course.phase is Phase.OCR else job_id(task, Phase.POSTPROCESS),
        "artifact_mineru_markdown_key": task.metadata.get("artifact_mineru_markdown_key"),
        "provider_task_id": task.metadata.get("provider_task_id"),
    }
    return RunEntry(
        key=key(tools, task.id),
        run=task.run,
        order=standing.order,
        status=task.status,
        final=task.is_over,
        fields={**msgspec.to_builtins(task), **msgspec.to_builtins(course), **pointers},
    )


def standing_of(entry: RunEntry) -> Standing | None:
    """What an entry says; none when its task is gone, or when it says nothing that can be understood."""
    if entry.status == REMOVED:
        return None
    try:
        return Standing(task=msgspec.convert(entry.fields, EtlTask), course=msgspec.convert(entry.fields, Course))
    except msgspec.MsgspecError as error:
        log.warning("run state at %s cannot be understood: %s", entry.key, error)
        return None


async def find(tools: Deps, task_id: int) -> Standing | None:
    """Where a task stands, when run state knows."""
    entry = await tools.runs.get(key(tools, task_id))
    return None if entry is None else standing_of(entry)


async def look(tools: Deps, task_id: int) -> Standing | None:
    """The same, and none while run state is away: then the row has to do."""
    try:
        return await find(tools, task_id)
    except PenstockError as error:
        _pass_over(error)
        return None


async def list_these(tools: Deps, task_ids: Sequence[int]) -> Mapping[int, Standing]:
    """Where these tasks stand, as far as run state knows."""
    try:
        entries = await tools.runs.get_many([key(tools, task_id) for task_id in task_ids])
    except PenstockError as error:
        _pass_over(error)
        return {}
    found = map(standing_of, entries)
    return {standing.task.id: standing for standing in found if standing is not None}


def laid_over(row: EtlTask, standing: Standing | None) -> EtlTask:
    """A row that is under way, as run state has it."""
    if row.is_over or standing is None or standing.task.run < row.run or not standing.task.is_same(row):
        return row
    return standing.task


async def show(tools: Deps, row: EtlTask, *, phase: Phase | None = None) -> None:
    """Put what a row says; harmless when it is there already, or when a worker has gone on since."""
    with suppress(RunMovedOn):
        await tools.runs.put(entry_of(tools, Standing.of(row, phase=phase)))


async def show_removed(tools: Deps, task_id: int, *, run: int) -> None:
    """Let nobody find a task any more that was removed in this run."""
    gone = RunEntry(key=key(tools, task_id), run=run + 1, order=0, status=REMOVED, final=True)
    with suppress(RunMovedOn):
        await tools.runs.put(gone)


async def show_soon(tools: Deps, row: EtlTask) -> None:
    """Put it now if that is possible; if not, the message that tells of the move will do it."""
    try:
        await show(tools, row)
    except PenstockError as error:
        _pass_over(error)


async def hide_soon(tools: Deps, row: EtlTask) -> None:
    """The same for a task that was removed."""
    try:
        await show_removed(tools, row.id, run=row.run)
    except PenstockError as error:
        _pass_over(error)


class Trail:
    """A run in the hand of one worker."""

    def __init__(self, tools: Deps, standing: Standing) -> None:
        self._tools = tools
        self._standing = standing

    @classmethod
    async def open(cls, tools: Deps, row: EtlTask, phase: Phase, *, attempt: int) -> "Trail":
        """Take a run up: it is this worker's turn from now on. `NotWanted` when the run is over."""
        for _ in range(TRIES):
            found = await find(tools, row.id)
            mine = _taken_up(found, row, phase, attempt=attempt, now=tools.db.clock.now())
            with suppress(RunMovedOn):
                await tools.runs.put(entry_of(tools, mine))
                return cls(tools, mine)
        raise NotWanted(task_id=row.id, run=row.run)

    @property
    def task(self) -> EtlTask:
        """The task as it is shown now, or will be by the next move."""
        return self._standing.task

    @property
    def course(self) -> Course:
        """The course as it is shown now."""
        return self._standing.course

    def note(self, task: EtlTask) -> None:
        """Show this with the next move. It is not worth one of its own."""
        self._standing = replace(self._standing, task=task)

    async def move(self, task: EtlTask, **course: Any) -> None:
        """Show a later standing, or raise `NotWanted`. While run state is away the work goes on without it."""
        task = replace(task, updated_at=self._tools.db.clock.now())
        later = replace(self.course, step=self.course.step + 1, **course)
        self._standing = Standing(task=task, course=later)
        try:
            await self._tools.runs.put(entry_of(self._tools, self._standing))
        except RunMovedOn as error:
            raise NotWanted(task_id=task.id, run=task.run) from error
        except PenstockError as error:
            _pass_over(error)


def _pass_over(error: PenstockError) -> None:
    """Run state that is away is done without for now; anything else that goes wrong with it is raised."""
    if not error.internal_outage:
        raise error
    log.warning("run state is done without for now: %s", error)


def _taken_up(found: Standing | None, row: EtlTask, phase: Phase, *, attempt: int, now: datetime) -> Standing:
    mine = found is not None and found.task.is_same(row) and found.task.run >= row.run
    before = found if found is not None and mine else Standing.of(row, phase=phase)
    if before.task.run > row.run or before.task.is_over:
        raise NotWanted(task_id=row.id, run=row.run)
    status = Status.MINERU_PARSING if phase is Phase.OCR else Status.LLM_PROCESSING
    if RANKS[before.task.status] > RANKS[status]:
        status = before.task.status  # a worker died after its OCR was done
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

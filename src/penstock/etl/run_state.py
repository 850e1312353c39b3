"""Run state of tasks: the current progress of each, at `etl:task:{id}`.

`show` puts the state of a row, at the beginning and at the end of a run. Progress in between is not written to the
database: clients poll it, and a status response reads run state and the row. In between, the worker that holds the
lease of the stage's job updates the snapshot (`kernel/stages`); the updates of a worker that lost its lease are
refused. A repeated put is harmless, since a snapshot must be later than the stored one; a final one comes after all
others of its run, and a retry opens the next run.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask, Phase, Stage, Status
from penstock.kernel.clock import Clock
from penstock.kernel.errors import PenstockError
from penstock.kernel.runstate import RunMovedOn, RunSnapshot
from penstock.kernel.stages.run_handle import FINAL_ORDER, skip_outage

log = logging.getLogger(__name__)

RANKS = {Status.PENDING: 0, Status.MINERU_PARSING: 1, Status.LLM_PROCESSING: 2}
REMOVED = "removed"  # status of a snapshot whose task was removed


@dataclass(frozen=True, kw_only=True)
class RunDetails:
    """The part of a run that only run state holds."""

    phase: Phase
    attempt_ocr: int = 0
    attempt_postprocess: int = 0
    began_at: datetime | None = None  # when the first worker started it
    error_code: str | None = None  # of the last attempt
    error_message: str | None = None
    error_stage: str | None = None  # of a failed run
    database: str | None = None  # of the row: two databases may share one Redis by mistake


@dataclass(frozen=True, kw_only=True)
class TaskRun:
    """A run as run state has it: the task as callers see it, and the details."""

    task: EtlTask
    details: RunDetails

    @classmethod
    def of(cls, row: EtlTask, *, phase: Phase | None = None) -> "TaskRun":
        """A run that no worker has started, or that has ended."""
        known = row.metadata
        details = RunDetails(
            phase=_last_phase(row) if row.is_final else phase or row.first_phase,
            attempt_ocr=known.get("attempt_ocr", 0),
            attempt_postprocess=known.get("attempt_postprocess", 0),
            error_code=known.get("error_code"),
            error_message=row.error,
            error_stage=known.get("error_stage"),
        )
        return cls(task=row, details=details)

    def is_same_run(self, row: EtlTask) -> bool:
        """Whether this is the run of a row. Snapshots of another database may share the Redis prefix by mistake."""
        return self.task.is_same_task(row) and self.task.run == row.run


def job_id(task: EtlTask, phase: Phase) -> str:
    """The id of the job of one phase of a run."""
    return f"etl:{task.id}:{task.run}:{phase}"


def key(deps: Deps, task_id: int) -> str:
    """The run state key of a task."""
    return f"{deps.config.key_prefix}task:{task_id}"


def encode(run_key: str, run: TaskRun, *, database: str) -> RunSnapshot:
    """The snapshot of a run, with the order of a row's own state: first, or last if the run has ended."""
    task, details = run.task, replace(run.details, database=database)
    pointers: dict[str, Any] = {
        "task_id": task.id,
        "arq_job_id_ocr": job_id(task, Phase.OCR) if task.first_phase is Phase.OCR else None,
        "arq_job_id_postprocess": None if details.phase is Phase.OCR else job_id(task, Phase.POSTPROCESS),
        "artifact_mineru_markdown_key": task.metadata.get("artifact_mineru_markdown_key"),
        "provider_task_id": task.metadata.get("provider_task_id"),
    }
    return RunSnapshot(
        key=run_key,
        run=task.run,
        order=FINAL_ORDER if task.is_final else 0,
        status=task.status,
        final=task.is_final,
        fields={**msgspec.to_builtins(task), **msgspec.to_builtins(details), **pointers},
    )


def decode(snapshot: RunSnapshot) -> TaskRun | None:
    """The run in a snapshot; None if its task was removed or the snapshot is unreadable."""
    if snapshot.status == REMOVED:
        return None
    try:
        details = msgspec.convert(snapshot.fields, RunDetails)
        return TaskRun(task=msgspec.convert(snapshot.fields, EtlTask), details=details)
    except msgspec.MsgspecError as error:
        log.warning("cannot decode run state at %s: %s", snapshot.key, error)
        return None


async def find(deps: Deps, task_id: int) -> TaskRun | None:
    """The run of a task, if run state has one; None also while run state is unavailable, so that the row is used."""
    snapshot = await find_snapshot(deps, task_id)
    return None if snapshot is None else decode(snapshot)


async def find_snapshot(deps: Deps, task_id: int) -> RunSnapshot | None:
    """The snapshot of a task, if run state has one; None also while run state is unavailable."""
    try:
        return await deps.runs.get(key(deps, task_id))
    except PenstockError as error:
        skip_outage(error)
        return None


async def list_by_ids(deps: Deps, task_ids: Sequence[int]) -> Mapping[int, TaskRun]:
    """The runs of these tasks that run state has; none while it is unavailable."""
    try:
        snapshots = await deps.runs.get_many([key(deps, task_id) for task_id in task_ids])
    except PenstockError as error:
        skip_outage(error)
        return {}
    return {run.task.id: run for run in map(decode, snapshots) if run is not None}


def apply(row: EtlTask, run: TaskRun | None) -> EtlTask:
    """A row with its run state applied, if the row is active."""
    if row.is_final or run is None or run.task.run < row.run or not run.task.is_same_task(row):
        return row
    return run.task


def find_answer(deps: Deps, snapshot: RunSnapshot) -> EtlTask | None:
    """The task in a snapshot that alone answers a status request.

    None where run state is a table beside the row, or was written for another database. After the end of a run only a
    review changes the row.
    """
    if deps.runs.in_rows or snapshot.fields.get("database") != deps.db.identity:
        return None
    try:
        task = msgspec.convert(snapshot.fields, EtlTask)
    except msgspec.MsgspecError:
        return None
    return None if task.is_final and task.review_status is not None else task


async def show(deps: Deps, row: EtlTask, *, phase: Phase | None = None) -> None:
    """Put the state of a row; a no-op if it is there already, or if a worker has progressed since."""
    with suppress(RunMovedOn):
        await deps.runs.put(encode(key(deps, row.id), TaskRun.of(row, phase=phase), database=deps.db.identity))


async def show_removed(deps: Deps, task_id: int, *, run: int) -> None:
    """Mark a task as removed."""
    gone = RunSnapshot(key=key(deps, task_id), run=run + 1, order=0, status=REMOVED, final=True)
    with suppress(RunMovedOn):
        await deps.runs.put(gone)


async def show_now(deps: Deps, row: EtlTask) -> None:
    """Put the state of a row after its commit; if run state is unavailable, the outbox message does it later."""
    try:
        await show(deps, row)
    except PenstockError as error:
        skip_outage(error)


async def show_removed_now(deps: Deps, row: EtlTask) -> None:
    """Mark a task as removed after the commit; if run state is unavailable, the outbox message does it later."""
    try:
        await show_removed(deps, row.id, run=row.run)
    except PenstockError as error:
        skip_outage(error)


@dataclass(frozen=True, kw_only=True)
class AttemptCodec:
    """How one attempt of a stage stores its run: the `RunCodec` of the stage runtime."""

    key: str
    row: EtlTask
    phase: Phase
    attempt: int
    clock: Clock
    database: str

    @property
    def run(self) -> int:
        """The run that the attempt belongs to."""
        return self.row.run

    def encode(self, state: TaskRun) -> RunSnapshot:
        """The snapshot of a state, updated now."""
        task = replace(state.task, updated_at=self.clock.now())
        return encode(self.key, replace(state, task=task), database=self.database)

    def resume(self, found: RunSnapshot | None) -> TaskRun:
        """The state at the start of the attempt: that of the attempt before, with the metadata of the row."""
        known = None if found is None else decode(found)
        mine = known is not None and known.is_same_run(self.row) and not known.task.is_final
        before = known if known is not None and mine else TaskRun.of(self.row, phase=self.phase)
        status = Status.MINERU_PARSING if self.phase is Phase.OCR else Status.LLM_PROCESSING
        if RANKS[before.task.status] > RANKS[status]:
            status = before.task.status  # a worker was killed after OCR was done
        now, attempts = self.clock.now(), {f"attempt_{self.phase}": self.attempt}
        metadata = {**before.task.metadata, **self.row.metadata, **attempts}
        task = replace(self.row, status=status, progress=before.task.progress, updated_at=now, metadata=metadata)
        details = replace(
            before.details,
            phase=_phase_of(status),
            began_at=before.details.began_at or now,
            attempt_ocr=metadata.get("attempt_ocr", 0),
            attempt_postprocess=metadata.get("attempt_postprocess", 0),
        )
        return TaskRun(task=task, details=details)

    def merge(self, state: TaskRun, found: RunSnapshot) -> TaskRun:
        """A state that is not behind what a worker wrote that has lost its lease."""
        other = decode(found)
        if other is None or not other.is_same_run(self.row):
            return state
        status = max(state.task.status, other.task.status, key=RANKS.__getitem__)
        pages = {"pages_done": max(one.task.metadata.get("pages_done", 0) for one in (state, other))}
        task = replace(
            state.task,
            status=status,
            progress=max(state.task.progress, other.task.progress),
            metadata={**state.task.metadata, **(pages if pages["pages_done"] else {})},
        )
        return TaskRun(task=task, details=replace(state.details, phase=_phase_of(status)))


def _last_phase(ended: EtlTask) -> Phase:
    """The phase that a run ended in: a failed one stays in the phase that failed."""
    if ended.status is not Status.FAILED:
        return Phase.FINALIZE
    failed_in = ended.metadata.get("error_stage")
    if failed_in not in set(Stage):  # its worker was lost, in the phase that its artifacts tell
        return Phase.POSTPROCESS if ended.metadata.get("artifact_mineru_markdown_key") else ended.first_phase
    return Phase.OCR if failed_in == Stage.OCR else Phase.POSTPROCESS


def _phase_of(status: Status) -> Phase:
    return Phase.OCR if status is Status.MINERU_PARSING else Phase.POSTPROCESS

"""Steer: take a task back, or try one again.

A pending task is cancelled together with its job, in one transaction, so a worker either has it or never gets it. An
abort ends the row of a running task under its worker's hands: whatever the worker still settles is refused.
"""

from dataclasses import dataclass, replace

from penstock.access.domain import Caller
from penstock.etl import moves, papers, runs
from penstock.etl.deps import Deps
from penstock.etl.domain import ETL_TASK, FROM_STAGE, IN_CHINESE, EtlTask, Phase, Stage, Status
from penstock.etl.errors import EtlTaskOver, EtlTaskRunning, NoReading
from penstock.etl.runs import Standing
from penstock.etl.store import tasks
from penstock.kernel.db import Tx
from penstock.kernel.json_object import JsonObject

# What a retry forgets: what went wrong, and when it begins with OCR also what OCR had made.
ABOUT_FAILURE = frozenset(
    {"error_stage", "error_code", "hint", IN_CHINESE, "attempt_ocr", "attempt_postprocess", moves.WAITS}
)
ABOUT_MEMORY = frozenset({papers.CACHE, papers.FORCE})
ABOUT_READING = frozenset({"artifact_mineru_markdown_key", "provider_task_id", "page_count", "pages_done", "ocr"})


@dataclass(frozen=True, kw_only=True)
class Again:
    """How a task is tried again. Without a stage: with whatever was made.

    `force` is for completed ones too, and asks nobody what was made of the same before.
    """

    from_stage: Stage | None = None
    force: bool = False


async def cancel(tools: Deps, caller: Caller, task_id: int) -> EtlTask:
    """Take back a task that no worker has taken up; `EtlTaskRunning` when one has."""
    shown = await runs.look(tools, task_id)  # a task between two attempts waits, but it was taken up
    async with tools.db.tx(actor=caller.name) as tx:
        row = await _get_running(tx, caller, task_id)
        begun = shown.task.status if shown is not None and _is_of(shown, row) else row.status
        if begun is not Status.PENDING:
            raise EtlTaskRunning(task_id=task_id, status=begun.value)
        if await moves.cancel_jobs(tools, tx, row):
            raise EtlTaskRunning(task_id=task_id, status=_taken(row).value)
        cancelled = await _end(tools, row, "cancel", tx)
    await runs.show_soon(tools, cancelled)
    return cancelled


async def abort(tools: Deps, caller: Caller, task_id: int) -> EtlTask:
    """Take back a task whatever it is doing; its worker stops at its next step and is refused whatever it settles."""
    shown = await runs.look(tools, task_id)
    async with tools.db.tx(actor=caller.name) as tx:
        row = await _get_running(tx, caller, task_id)
        await moves.cancel_jobs(tools, tx, row)
        if shown is not None and _is_of(shown, row):  # what OCR has made is kept, for a retry
            row = replace(row, progress=shown.task.progress, metadata={**row.metadata, **shown.task.metadata})
        aborted = await _end(tools, row, "abort", tx)
    await runs.show_soon(tools, aborted)
    return aborted


async def retry(tools: Deps, caller: Caller, task_id: int, again: Again) -> EtlTask:
    """Open the next run of a task that is over."""
    async with tools.db.read() as tx:
        over = await moves.get_own(tx, caller, task_id)
    verb = _check_over(over, again)
    phase = await _first_phase(tools, over, again.from_stage)
    async with tools.db.tx(actor=caller.name) as tx:
        await moves.check_room(tools, tx)
        opened = _opened(tx, over, phase, again)
        await tools.queue.enqueue(tx, moves.stage_job(tools, opened, phase))
        if not await tasks.move_task(tx, over, opened):
            raise EtlTaskRunning(task_id=task_id, status=Status.PENDING.value)
        await moves.say_begun(tx, opened, before=over.status, verb=verb)
    await runs.show_soon(tools, opened)
    return opened


async def _get_running(tx: Tx, caller: Caller, task_id: int) -> EtlTask:
    row = await moves.get_own(tx, caller, task_id)
    if row.is_over:
        raise EtlTaskOver(task_id=task_id, status=row.status.value)
    return row


async def _end(tools: Deps, row: EtlTask, verb: str, tx: Tx) -> EtlTask:
    ended = await moves.end(tools, row, verb, tx)
    if ended is None:  # a worker was first
        now = await tasks.find_task(tx, row.id)
        raise EtlTaskOver(task_id=row.id, status=now.status.value if now is not None else runs.REMOVED)
    return ended


def _is_of(shown: Standing, row: EtlTask) -> bool:
    return shown.task.is_same(row) and shown.task.run == row.run


def _taken(row: EtlTask) -> Status:
    """What a task is whose first job has just been taken up."""
    return Status.MINERU_PARSING if row.begins_with is Phase.OCR else Status.LLM_PROCESSING


def _check_over(row: EtlTask, again: Again) -> str:
    if not row.is_over:
        raise EtlTaskRunning(task_id=row.id, status=row.status.value)
    verb = "redo" if again.force else "retry"
    if not ETL_TASK.may(verb, row.status):
        raise EtlTaskOver(task_id=row.id, status=row.status.value)
    return verb


async def _first_phase(tools: Deps, over: EtlTask, stage: Stage | None) -> Phase:
    """Where the next run begins. What is paid for is used, unless the caller wants it otherwise."""
    if stage is not Stage.OCR and await papers.find_reading(tools.blobs, over) is not None:
        return Phase.POSTPROCESS
    if stage is Stage.POSTPROCESS:
        raise NoReading(task_id=over.id)
    await papers.get_source(tools.blobs, over.s3_key)
    return Phase.OCR


def _opened(tx: Tx, over: EtlTask, phase: Phase, again: Again) -> EtlTask:
    """The next run. Unless OCR is to start anew, it goes on with the pages that the run before has read."""
    run, anew = over.run + 1, again.from_stage is Stage.OCR
    forgotten = ABOUT_FAILURE | ABOUT_MEMORY | (ABOUT_READING if phase is Phase.OCR else frozenset())
    known = {**_without(over.metadata, forgotten), **_about_memory(over, again)}
    return replace(
        over,
        status=Status.PENDING,
        run=run,
        ocr_run=run if anew else over.ocr_run,
        progress=0,
        updated_at=tx.now,
        result=None,
        error=None,
        metadata={**known, FROM_STAGE: moves.STAGES[phase]},
    )


def _about_memory(over: EtlTask, again: Again) -> JsonObject:
    """What the next run has to know of the memory: what the pages were made of that it goes on with, and `force`."""
    read = over.metadata.get(papers.CACHE, {}).get(Phase.OCR)
    goes_on = read is not None and again.from_stage is not Stage.OCR
    return {
        **({papers.CACHE: {Phase.OCR.value: read}} if goes_on else {}),
        **({papers.FORCE: True} if again.force else {}),
    }


def _without(metadata: JsonObject, names: frozenset[str]) -> JsonObject:
    return {name: value for name, value in metadata.items() if name not in names}

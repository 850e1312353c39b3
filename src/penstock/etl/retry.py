"""Retry: open the next run of a task that has ended.

The run starts after OCR if that is done, else it continues OCR from the page checkpoints of the previous run. A retry
from `mineru` repeats OCR without them; a retry from `postprocess` makes no OCR call.
"""

from dataclasses import dataclass, replace

from penstock.access.domain import Caller
from penstock.etl import lifecycle, papers, runs
from penstock.etl.deps import Deps
from penstock.etl.domain import CHINESE_TEXTS, ETL_TASK, FROM_STAGE, EtlTask, Phase, Stage, Status
from penstock.etl.errors import EtlTaskAlreadyEnded, EtlTaskRunning, OcrResultMissing
from penstock.etl.store import tasks
from penstock.kernel.db import Tx
from penstock.kernel.json_object import JsonObject

# Metadata that a retry drops: the last error, cache outcomes, and, when OCR runs again, what OCR reported.
ERROR_METADATA = frozenset(
    {"error_stage", "error_code", "hint", CHINESE_TEXTS, "attempt_ocr", "attempt_postprocess", lifecycle.WAITS}
)
CACHE_METADATA = frozenset({papers.CACHE, papers.FORCE})
OCR_METADATA = frozenset({"artifact_mineru_markdown_key", "provider_task_id", "page_count", "pages_done", "ocr"})


@dataclass(frozen=True, kw_only=True)
class RetryOptions:
    """How to retry a task. Without `from_stage`, the run continues from the artifacts that exist.

    `force` also allows completed tasks, and bypasses the cache.
    """

    from_stage: Stage | None = None
    force: bool = False


async def retry_task(deps: Deps, caller: Caller, task_id: int, options: RetryOptions) -> EtlTask:
    """Open the next run of a task that has ended."""
    async with deps.db.read() as tx:
        ended = await lifecycle.get_owned_task(tx, caller, task_id)
    verb = _check_retryable(ended, options)
    phase = await _first_phase(deps, ended, options.from_stage)
    async with deps.db.tx(actor=caller.name) as tx:
        await lifecycle.check_queue_capacity(deps, tx)
        next_run = _next_run(tx, ended, phase, options)
        await deps.queue.enqueue(tx, lifecycle.stage_job(deps, next_run, phase))
        if not await tasks.move_task(tx, ended, next_run):
            raise EtlTaskRunning(task_id=task_id, status=Status.PENDING.value)
        await lifecycle.record_submitted(tx, next_run, before=ended.status, verb=verb)
    await runs.show_soon(deps, next_run)
    return next_run


def _check_retryable(row: EtlTask, options: RetryOptions) -> str:
    if not row.is_final:
        raise EtlTaskRunning(task_id=row.id, status=row.status.value)
    verb = "redo" if options.force else "retry"
    if not ETL_TASK.may(verb, row.status):
        raise EtlTaskAlreadyEnded(task_id=row.id, status=row.status.value)
    return verb


async def _first_phase(deps: Deps, ended: EtlTask, stage: Stage | None) -> Phase:
    """Where the next run starts: after OCR if its artifacts exist, unless the caller asks for OCR."""
    if stage is not Stage.OCR and await papers.find_reading(deps.blobs, ended) is not None:
        return Phase.POSTPROCESS
    if stage is Stage.POSTPROCESS:
        raise OcrResultMissing(task_id=ended.id)
    await papers.get_source(deps.blobs, ended.s3_key)
    return Phase.OCR


def _next_run(tx: Tx, ended: EtlTask, phase: Phase, options: RetryOptions) -> EtlTask:
    """The next run. Unless OCR restarts from scratch, it reuses the page checkpoints of the previous run."""
    run, restart = ended.run + 1, options.from_stage is Stage.OCR
    dropped = ERROR_METADATA | CACHE_METADATA | (OCR_METADATA if phase is Phase.OCR else frozenset())
    kept = {name: value for name, value in ended.metadata.items() if name not in dropped}
    return replace(
        ended,
        status=Status.PENDING,
        run=run,
        ocr_run=run if restart else ended.ocr_run,
        progress=0,
        updated_at=tx.now,
        result=None,
        error=None,
        metadata={**kept, **_cache_metadata(ended, options), FROM_STAGE: lifecycle.STAGES[phase]},
    )


def _cache_metadata(ended: EtlTask, options: RetryOptions) -> JsonObject:
    """Cache metadata of the next run: the cache key of the pages that it reuses, and `force`."""
    ocr = ended.metadata.get(papers.CACHE, {}).get(Phase.OCR)
    reuses_pages = ocr is not None and options.from_stage is not Stage.OCR
    return {
        **({papers.CACHE: {Phase.OCR.value: ocr}} if reuses_pages else {}),
        **({papers.FORCE: True} if options.force else {}),
    }

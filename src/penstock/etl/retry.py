"""Retry: open the next run of a task that has ended.

The run starts after OCR if that is done, else it continues OCR from the page checkpoints of the previous run. A retry
from `mineru` repeats OCR without them; a retry from `postprocess` makes no OCR call.
"""

from dataclasses import dataclass, replace

from penstock.access import audit
from penstock.access.domain import Caller
from penstock.etl import artifacts, lifecycle, review_requests
from penstock.etl.deps import Deps
from penstock.etl.domain import ETL_TASK, FROM_STAGE, REVIEW, EtlTask, Phase, Stage, Status
from penstock.etl.errors import EtlTaskAlreadyEnded, EtlTaskRunning, OcrResultMissing
from penstock.etl.store import tasks
from penstock.kernel.blobs import Blobs
from penstock.kernel.db import Tx
from penstock.kernel.json_object import JsonObject

# Metadata that a retry drops: the last error, its review, cache outcomes, and, when OCR runs again, what OCR reported.
ERROR_METADATA = lifecycle.ERROR_METADATA | {"attempt_ocr", "attempt_postprocess", lifecycle.WAITS, REVIEW}
CACHE_METADATA = frozenset({artifacts.CACHE, artifacts.FORCE})
OCR_METADATA = frozenset({"artifact_mineru_markdown_key", "provider_task_id", "page_count", "pages_done", "ocr"})


@dataclass(frozen=True, kw_only=True)
class RetryOptions:
    """How to retry a task. Without `from_stage`, the run continues from the artifacts that exist.

    `force` also allows completed tasks, and bypasses the cache.
    """

    from_stage: Stage | None = None
    force: bool = False


async def get_ended_task(tx: Tx, caller: Caller, task_id: int, options: RetryOptions) -> EtlTask:
    """The task to retry; raises if it is active, or is completed and `force` is not given."""
    row = await lifecycle.get_owned_task(tx, caller, task_id)
    _retry_verb(row, options)
    return row


async def find_first_phase(blobs: Blobs, ended: EtlTask, options: RetryOptions) -> Phase:
    """Where the next run starts: after OCR if its artifacts exist, unless the caller asks for OCR."""
    stage = options.from_stage
    if stage is not Stage.OCR and await artifacts.find_ocr(blobs, ended) is not None:
        return Phase.POSTPROCESS
    if stage is Stage.POSTPROCESS:
        raise OcrResultMissing(task_id=ended.id)
    await artifacts.get_source(blobs, ended.s3_key)
    return Phase.OCR


async def retry_task(
    tx: Tx, deps: Deps, caller: Caller, ended: EtlTask, phase: Phase, options: RetryOptions
) -> EtlTask:
    """Open the next run of a task that has ended, if it is still as it was read; it starts at `phase`."""
    verb = _retry_verb(ended, options)
    await lifecycle.check_queue_capacity(tx, deps, caller, owner=ended.user_id)
    next_run = _next_run(tx, ended, phase, options)
    await deps.queue.enqueue(tx, lifecycle.stage_job(deps, next_run, phase))
    if not await tasks.move_task(tx, ended, next_run):
        raise EtlTaskRunning(task_id=ended.id, status=Status.PENDING.value)
    review_requests.withdraw(tx, ended)
    await lifecycle.record_submitted(tx, next_run, before=ended.status, verb=verb)
    await audit.record(tx, caller, "etl.retry", f"etl:{ended.id}", run=next_run.run, stage=lifecycle.STAGES[phase])
    return next_run


def _retry_verb(row: EtlTask, options: RetryOptions) -> str:
    if not row.is_final:
        raise EtlTaskRunning(task_id=row.id, status=row.status.value)
    verb = "redo" if options.force else "retry"
    if not ETL_TASK.may(verb, row.status):
        raise EtlTaskAlreadyEnded(task_id=row.id, status=row.status.value)
    return verb


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
    ocr = ended.metadata.get(artifacts.CACHE, {}).get(Phase.OCR)
    reuses_pages = ocr is not None and options.from_stage is not Stage.OCR
    return {
        **({artifacts.CACHE: {Phase.OCR.value: ocr}} if reuses_pages else {}),
        **({artifacts.FORCE: True} if options.force else {}),
    }

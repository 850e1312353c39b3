"""The actions of the API and the command line: each opens its transactions and calls the verbs of the module.

What takes time happens between short transactions, never inside one: blobs, run state, the sandbox. `status.py` reads
the status of one task. Lists come from the rows, newest first, with the run state of active tasks applied. Rows do not
distinguish the running statuses, so a list filtered by one of them scans all active tasks, of which there are at most
ETL_QUEUE_SIZE.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from penstock.access.domain import Caller
from penstock.documents.postprocessor import ExtractionResult
from penstock.etl import (
    accuracy,
    artifacts,
    cancel,
    dry_run,
    lifecycle,
    remove,
    retry,
    review,
    rules,
    run_state,
    submit,
    upload,
)
from penstock.etl.accuracy import AccuracySums, CorrectionQuery
from penstock.etl.api import status
from penstock.etl.deps import Deps
from penstock.etl.domain import FINAL, EtlTask, Rule, RuleBody, Status
from penstock.etl.domain.review import Accuracy, Correction, ReviewBusy
from penstock.etl.dry_run import RuleSample
from penstock.etl.errors import ArtifactNotReady
from penstock.etl.retry import RetryOptions
from penstock.etl.review import ReviewInput, ReviewResult
from penstock.etl.rule_validation import validate_rule
from penstock.etl.store import tasks
from penstock.etl.store.tasks import OrphanedUpload, TaskFilter
from penstock.etl.submit import NewTask
from penstock.etl.upload import UploadedDocument
from penstock.kernel.idempotency import IdempotentRequest, claim_key, find_outcome, move_outcome

TASK_ID, RULE_ID = "task_id", "rule_id"  # in the outcome of a request with an Idempotency-Key
PAGE = 200  # rows per query of a scan
MAX_TOTAL = 100_000  # of a list
REVIEW_ATTEMPTS = 10  # to check and save a review without a concurrent change

ArtifactName = Literal["result", "markdown", "pages", "grounding"]


@dataclass(frozen=True, kw_only=True)
class TaskQuery:
    """Which tasks to list; None means any."""

    project_id: int | None = None
    status: Status | None = None
    limit: int = 100
    offset: int = 0


async def submit_task(deps: Deps, caller: Caller, new: NewTask, *, request: IdempotentRequest | None = None) -> EtlTask:
    """Create a task for a stored document, or return the one that an earlier request with the same key created."""
    if (known := await _find_created(deps, caller, request)) is not None:
        return known
    await submit.check_source(deps, caller, new)
    async with deps.db.tx(actor=caller.name) as tx:
        outcome = None if request is None else await claim_key(tx, request)
        if outcome is not None:  # of a concurrent request, which has just ended
            return await lifecycle.get_owned_task(tx, caller, outcome[TASK_ID])
        task = await submit.submit(tx, deps, caller, new)
        if request is not None:
            await move_outcome(tx, request, {TASK_ID: task.id})
    await run_state.show_now(deps, task)
    return task


async def upload_task(
    deps: Deps,
    caller: Caller,
    document: UploadedDocument,
    *,
    force: bool = False,
    request: IdempotentRequest | None = None,
) -> EtlTask:
    """Store a document and create its task. If the task is rejected, the document is deleted again."""
    if (known := await _find_created(deps, caller, request)) is not None:
        return known
    async with deps.db.read() as tx:
        await upload.check_acceptable(tx, deps, caller, document.rule_id)
    key = await upload.store_document(deps, caller, document, partial(_reserve, deps, caller))
    new = NewTask(
        project_id=document.project_id,
        filename=upload.task_name(document.filename),
        rule_id=document.rule_id,
        s3_key=key,
        force=force,
    )
    try:
        task = await submit_task(deps, caller, new, request=request)
    except upload.REJECTED:
        await _discard(deps, key)
        raise
    if task.s3_key != key:  # a concurrent request with the same key was first
        await _discard(deps, key)
    return task


async def _reserve(deps: Deps, caller: Caller, key: str) -> bool:
    async with deps.db.autocommit(actor=caller.name) as tx:
        return await tasks.insert_upload(tx, key, user_id=caller.user_id)


async def _discard(deps: Deps, key: str) -> None:
    """Delete a document for which no task was created."""
    await deps.blobs.delete(key)
    async with deps.db.autocommit() as tx:
        await tasks.delete_uploads(tx, [key])


async def list_orphans(deps: Deps, *, offset: int, limit: int) -> list[OrphanedUpload]:
    """Uploaded documents that have no task, oldest first."""
    async with deps.db.read() as tx:
        return await upload.list_orphans(tx, offset=offset, limit=limit)


async def _find_created(deps: Deps, caller: Caller, request: IdempotentRequest | None) -> EtlTask | None:
    """The task that an earlier request with the same key created."""
    if request is None:
        return None
    async with deps.db.read() as tx:
        outcome = await find_outcome(tx, request)
        return None if outcome is None else await lifecycle.get_owned_task(tx, caller, outcome[TASK_ID])


async def list_tasks(deps: Deps, caller: Caller, query: TaskQuery) -> tuple[list[EtlTask], int]:
    """A page of the caller's tasks, newest first, and how many match; an admin sees everyone's.

    One more than `MAX_TOTAL` means more than that: counting costs the same however many there are.
    """
    owner = None if caller.is_admin else caller.user_id
    if query.status is None or query.status in FINAL:
        chosen = TaskFilter(user_id=owner, project_id=query.project_id, status=query.status)
        async with deps.db.read() as tx:
            rows = await tasks.list_tasks(tx, chosen, offset=query.offset, limit=query.limit)
            total = await tasks.count_tasks(tx, chosen, limit=MAX_TOTAL + 1)
        return await _with_run_state(deps, rows), total
    active = TaskFilter(user_id=owner, project_id=query.project_id, status=Status.PENDING)
    found = [task async for page in _scan(deps, active) for task in page if task.status is query.status]
    return found[query.offset : query.offset + query.limit], len(found)


async def list_by_ids(deps: Deps, caller: Caller, ids: Sequence[int]) -> list[EtlTask]:
    """The tasks with these ids that exist and that the caller can access, newest first."""
    async with deps.db.read() as tx:
        rows = await tasks.list_by_ids(tx, ids)
    return await _with_run_state(deps, [row for row in rows if lifecycle.can_access(caller, row)])


async def artifact_key(deps: Deps, caller: Caller, task_id: int, what: ArtifactName) -> str:
    """The blob key of an artifact, or `ArtifactNotReady`. Markdown and pages exist as soon as OCR is done."""
    task = await status.get_task(deps, caller, task_id)
    if what in {"markdown", "pages"}:
        markdown_key: str | None = task.metadata.get("artifact_mineru_markdown_key")
        key = artifacts.pages_key(task) if markdown_key and what == "pages" else markdown_key
    elif task.status is Status.COMPLETED:
        key = artifacts.result_key(task) if what == "result" else artifacts.grounding_key(task)
    else:
        key = None
    if key is None:
        raise ArtifactNotReady(task_id=task_id, status=task.status.value, what=what)
    return key


async def cancel_task(deps: Deps, caller: Caller, task_id: int) -> EtlTask:
    """Cancel a pending task."""
    run = await run_state.find(deps, task_id)
    async with deps.db.tx(actor=caller.name) as tx:
        cancelled = await cancel.cancel_task(tx, deps, caller, task_id, run)
    await run_state.show_now(deps, cancelled)
    return cancelled


async def abort_task(deps: Deps, caller: Caller, task_id: int) -> EtlTask:
    """Cancel a pending or running task."""
    run = await run_state.find(deps, task_id)
    async with deps.db.tx(actor=caller.name) as tx:
        aborted = await cancel.abort_task(tx, deps, caller, task_id, run)
    await run_state.show_now(deps, aborted)
    return aborted


async def retry_task(deps: Deps, caller: Caller, task_id: int, options: RetryOptions) -> EtlTask:
    """Open the next run of a task that has ended."""
    async with deps.db.read() as tx:
        ended = await retry.get_ended_task(tx, caller, task_id, options)
    phase = await retry.find_first_phase(deps.blobs, ended, options)
    async with deps.db.tx(actor=caller.name) as tx:
        next_run = await retry.retry_task(tx, deps, caller, ended, phase, options)
    await run_state.show_now(deps, next_run)
    return next_run


async def delete_task(deps: Deps, caller: Caller, task_id: int) -> None:
    """Remove a task that has ended."""
    async with deps.db.tx(actor=caller.name) as tx:
        removed = await remove.delete_task(tx, deps, caller, task_id)
    await run_state.show_removed_now(deps, removed)


async def add_rule(deps: Deps, caller: Caller, body: RuleBody, *, request: IdempotentRequest | None = None) -> Rule:
    """Create a rule owned by the caller, or return the one that an earlier request with the same key created."""
    await validate_rule(body, deps.sandbox)
    async with deps.db.tx(actor=caller.name) as tx:
        outcome = None if request is None else await claim_key(tx, request)
        if outcome is not None:
            return await rules.get_rule(tx, deps, caller, outcome[RULE_ID])
        rule = await rules.add(tx, caller, body)
        if request is not None:
            await move_outcome(tx, request, {RULE_ID: rule.id})
    return rule


async def get_rule(deps: Deps, caller: Caller, rule_id: int) -> Rule:
    """A rule that the caller can use."""
    async with deps.db.read() as tx:
        return await rules.get_rule(tx, deps, caller, rule_id)


async def list_rules(deps: Deps, caller: Caller, *, limit: int, offset: int) -> list[Rule]:
    """The rules that the caller can use, by id; the built-in default comes first."""
    async with deps.db.read() as tx:
        return await rules.list_rules(tx, deps, caller, limit=limit, offset=offset)


async def count_rules(deps: Deps, caller: Caller) -> int:
    """How many rules the caller can use; one more than `MAX_TOTAL` means more than that."""
    async with deps.db.read() as tx:
        return await rules.count_rules(tx, deps, caller, limit=MAX_TOTAL + 1)


async def change_rule(deps: Deps, caller: Caller, rule_id: int, changes: dict[str, Any]) -> Rule:
    """Change these fields of a rule. Without an effective change there is no new version."""
    async with deps.db.read() as tx:
        before = await rules.get_changeable_rule(tx, deps, caller, rule_id)
    body = replace(before.body, **changes)
    if body == before.body:
        return before
    await validate_rule(body, deps.sandbox)
    async with deps.db.tx(actor=caller.name) as tx:
        return await rules.change(tx, caller, before, body)


async def remove_rule(deps: Deps, caller: Caller, rule_id: int) -> None:
    """Delete a rule."""
    async with deps.db.tx(actor=caller.name) as tx:
        await rules.remove(tx, deps, caller, rule_id)


async def try_rule(deps: Deps, caller: Caller, rule_id: int, sample: RuleSample) -> tuple[Rule, ExtractionResult]:
    """Apply a rule to a sample; returns the rule and its result."""
    async with deps.db.read() as tx:
        rule, task = await dry_run.get_rule_and_task(tx, deps, caller, rule_id, sample)
    return rule, await dry_run.try_rule(deps, rule, sample, task)


async def correct(deps: Deps, caller: Caller, task_id: int, given: ReviewInput) -> ReviewResult:
    """Store a review of the result of a completed task."""
    review.validate_input(given)
    for _ in range(REVIEW_ATTEMPTS):
        async with deps.db.read() as tx:
            state = await review.load(tx, caller, task_id)
        change = review.plan_change(caller, state, given)
        if change is None:
            return review.unchanged(state, given)
        checked = await review.check_change(deps, state, change)
        async with deps.db.tx(actor=caller.name) as tx:
            saved = await review.save(tx, caller, state, given, change, checked)
        if saved is not None:
            return saved
    raise ReviewBusy(task_id=task_id)


async def withdraw_correction(deps: Deps, caller: Caller, task_id: int, correction_id: int) -> None:
    """Withdraw a correction; the original, or an earlier correction of an enclosing value, applies again."""
    for _ in range(REVIEW_ATTEMPTS):
        async with deps.db.read() as tx:
            state = await review.load(tx, caller, task_id)
            found = await review.find_withdrawable(tx, state, correction_id)
        if found is None:
            return
        checked = await review.check_withdrawal(deps, state, found)
        async with deps.db.tx(actor=caller.name) as tx:
            saved = await review.save_withdrawal(tx, caller, state, found, checked)
        if saved:
            return
    raise ReviewBusy(task_id=task_id)


async def corrected_result(deps: Deps, caller: Caller, task_id: int) -> bytes | None:
    """The result with its active corrections applied; None if there are none."""
    async with deps.db.read() as tx:
        task, active = await review.get_corrected(tx, caller, task_id)
    return await review.apply_active(deps, task, active) if active else None


async def measure_accuracy(deps: Deps, caller: Caller, rule_id: int, *, version: int | None = None) -> Accuracy:
    """The accuracy of a rule over its latest reviews, read page by page."""
    async with deps.db.read() as tx:
        chosen = await accuracy.get_rule_filter(tx, deps, caller, rule_id, version)
    sums = AccuracySums(rule_id)
    while not sums.is_complete:
        async with deps.db.read() as tx:
            await accuracy.add_page(tx, chosen, sums)
    return sums.accuracy()


async def iter_corrections(deps: Deps, caller: Caller, query: CorrectionQuery) -> AsyncIterator[list[Correction]]:
    """Pages of a rule's active corrections, newest first; the first page may be empty."""
    async with deps.db.read() as tx:
        chosen = await accuracy.get_rule_filter(tx, deps, caller, query.rule_id, query.version)
    following: CorrectionQuery | None = query
    while following is not None:
        async with deps.db.read() as tx:
            page, following = await accuracy.list_corrections(tx, chosen, following)
        yield page


async def _scan(deps: Deps, chosen: TaskFilter) -> AsyncIterator[list[EtlTask]]:
    """Pages of the matching tasks, with their run state applied."""
    before: int | None = None
    while True:
        async with deps.db.read() as tx:
            rows = await tasks.list_before(tx, chosen, before=before, limit=PAGE)
        yield await _with_run_state(deps, rows)
        if len(rows) < PAGE:
            return
        before = rows[-1].id


async def _with_run_state(deps: Deps, rows: Sequence[EtlTask]) -> list[EtlTask]:
    active = [row.id for row in rows if not row.is_final]
    shown = await run_state.list_by_ids(deps, active) if active else {}
    return [run_state.apply(row, shown.get(row.id)) for row in rows]

"""Review: a person corrects values of a result, or confirms that the result is right.

A review belongs to the run whose result is current; a retry makes a new result without a review. The corrected result
is checked in the sandbox, so between two transactions: `load`, check, `save`. A concurrent change raises the review's
revision: then nothing is saved, and the caller repeats the check with the new state.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from penstock.access import audit
from penstock.access.domain import Caller
from penstock.etl import artifacts, correction_check, lifecycle
from penstock.etl.correction_check import CorrectionCheckResult, CorrectionPatch, apply_corrections, check_corrections
from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask, Mode, Rule, Status
from penstock.etl.domain.review import (
    MAX_CORRECTIONS_PER_CALL,
    MAX_CORRECTIONS_PER_TASK,
    MAX_NOTE_CHARS,
    MAX_RESULT_BYTES,
    MAX_VALUE_BYTES,
    BadCorrections,
    Correction,
    CorrectionNotActive,
    CorrectionNotFound,
    CorrectionProblem,
    CorrectionRequired,
    CorrectionsFull,
    NewCorrection,
    ResultNotReviewable,
    Review,
    ReviewBusy,
    ValueCounts,
)
from penstock.etl.errors import ArtifactNotReady
from penstock.etl.store import reviews, rules
from penstock.kernel.blobs import BlobTooLarge
from penstock.kernel.db import Tx
from penstock.kernel.errors import Invalid
from penstock.kernel.json_schema.pointers import (
    BadPointer,
    Tokens,
    find_overlap,
    format_pointer,
    parse_pointer,
    self_and_ancestors,
)
from penstock.kernel.private_folder import make_private_folder

AUDITED_POINTERS = 100  # pointers listed in an audit log entry


@dataclass(frozen=True, kw_only=True)
class ReviewInput:
    """Corrections, and `reviewed`: True marks all other values as right, False revokes that, None leaves it as is."""

    corrections: Sequence[NewCorrection] = ()
    reviewed: bool | None = None


@dataclass(frozen=True, kw_only=True)
class ReviewResult:
    """A task, the review of its result, and the requested corrections. `is_new`: at least one is newly stored."""

    task: EtlTask
    review: Review | None
    corrections: Sequence[Correction]
    is_new: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether every value of the result was reviewed."""
        return _is_whole(self.review)


@dataclass(frozen=True, kw_only=True)
class ReviewState:
    """What a review is based on."""

    task: EtlTask
    rule: Rule
    review: Review | None
    active: Sequence[Correction]


@dataclass(frozen=True, kw_only=True)
class ReviewChange:
    """New corrections, and the ids of those that they supersede."""

    new: Sequence[NewCorrection]
    superseded: set[int]


async def load(tx: Tx, caller: Caller, task_id: int) -> ReviewState:
    """What a review of a completed task is based on."""
    task = await _get_completed(tx, caller, task_id)
    rule = await rules.get_rule_version(tx, task.rule_id, task.rule_version)
    # The revision first, so that any later change shows as another revision when saving.
    review = await reviews.find_review(tx, task_id=task_id, run=task.run)
    active = await reviews.list_active_corrections(tx, task_id=task_id, run=task.run)
    return ReviewState(task=task, rule=rule, review=review, active=active)


def plan_change(caller: Caller, state: ReviewState, given: ReviewInput) -> ReviewChange | None:
    """What the input changes; None if nothing."""
    known = {(one.pointer, one.corrected, one.note, one.created_by) for one in _final_corrections(state.active)}
    new = [one for one in given.corrections if (one.pointer, one.value, one.note, caller.name) not in known]
    if not new and given.reviewed in {None, _is_whole(state.review)}:
        return None
    return ReviewChange(new=new, superseded=_find_superseded(state.active, new))


def unchanged(state: ReviewState, given: ReviewInput) -> ReviewResult:
    """The result of an input that changes nothing."""
    return _result(state, state.review, given, state.active)


async def check_change(deps: Deps, state: ReviewState, change: ReviewChange) -> CorrectionCheckResult:
    """Check the corrected result in the sandbox."""
    active = [one for one in state.active if one.id not in change.superseded]
    checked = await _check(deps, state, await _load_result(deps, state.task), active, change.new)
    if checked.problems:
        raise BadCorrections(problems=checked.problems)
    return checked


async def check_answer(deps: Deps, state: ReviewState, answer: NewCorrection) -> CorrectionCheckResult:
    """Check an answer that replaces the result of a failed task, which has none."""
    checked = await _check(deps, state, b"{}", [], [answer])
    if checked.problems:
        raise BadCorrections(problems=checked.problems)
    return checked


async def save(
    tx: Tx,
    caller: Caller,
    state: ReviewState,
    given: ReviewInput,
    change: ReviewChange,
    checked: CorrectionCheckResult,
) -> ReviewResult | None:
    """Store a checked change; None after a concurrent review, retry or removal."""
    task = state.task
    if not await _claim_unchanged(tx, state):
        return None
    if await reviews.count_of_task(tx, task.id) + len(change.new) > MAX_CORRECTIONS_PER_TASK:
        raise CorrectionsFull(task_id=task.id, most=MAX_CORRECTIONS_PER_TASK)
    await reviews.move_superseded(tx, change.superseded)
    made = _new_corrections(tx, task, change, checked)
    numbers = await reviews.insert_corrections(tx, made)
    made = [replace(one, id=number) for one, number in zip(made, numbers, strict=True)]
    review = await _save_review(tx, state, checked, given.reviewed)
    pointers = [one.pointer for one in made[:AUDITED_POINTERS]]
    detail = {"run": task.run, "corrections": len(made), "pointers": pointers, "reviewed": review.is_whole}
    await audit.record(tx, caller, "etl.correct", f"etl:{task.id}", **detail)
    return _result(state, review, given, [*state.active, *made], is_new=bool(made))


async def find_withdrawable(tx: Tx, state: ReviewState, correction_id: int) -> Correction | None:
    """The correction to withdraw; None if it is withdrawn already."""
    found = await reviews.find_correction(tx, state.task.id, correction_id)
    if found is None:
        raise CorrectionNotFound(task_id=state.task.id, correction_id=correction_id)
    if found.withdrawn_at is not None:
        return None
    if not found.is_active or found.run != state.task.run:
        raise CorrectionNotActive(correction_id=correction_id)
    return found


async def check_withdrawal(deps: Deps, state: ReviewState, one: Correction) -> CorrectionCheckResult:
    """Check the result without a correction in the sandbox."""
    left = [other for other in state.active if other.id != one.id]
    checked = await _check(deps, state, await _load_result(deps, state.task), left, [])
    if checked.problems:
        raise CorrectionRequired(correction_id=one.id, **checked.problems[0].message_values)
    return checked


async def save_withdrawal(
    tx: Tx, caller: Caller, state: ReviewState, one: Correction, checked: CorrectionCheckResult
) -> bool:
    """Store a checked withdrawal; False after a concurrent change."""
    if not await _claim_unchanged(tx, state):
        return False
    await reviews.move_withdrawn(tx, one.id)
    await _save_review(tx, state, checked, None)
    detail = {"run": one.run, "correction_id": one.id, "pointer": one.pointer}
    await audit.record(tx, caller, "etl.withdraw_correction", f"etl:{one.task_id}", **detail)
    return True


async def list_of_task(tx: Tx, caller: Caller, task_id: int, *, before: int | None, limit: int) -> ReviewResult:
    """All corrections of a task, newest first: of every run, including superseded and withdrawn ones."""
    task = await lifecycle.get_owned_task(tx, caller, task_id)
    review = await reviews.find_review(tx, task_id=task_id, run=task.run)
    found = await reviews.list_of_task(tx, task_id, before=before, limit=limit)
    return ReviewResult(task=task, review=review, corrections=found)


async def get_corrected(tx: Tx, caller: Caller, task_id: int) -> tuple[EtlTask, list[Correction]]:
    """A completed task and the active corrections of its result."""
    task = await _get_completed(tx, caller, task_id)
    return task, await reviews.list_active_corrections(tx, task_id=task_id, run=task.run)


async def apply_active(deps: Deps, task: EtlTask, active: Sequence[Correction]) -> bytes:
    """The result with these corrections applied."""
    return await asyncio.to_thread(_apply, await _load_result(deps, task), active)


def validate_input(given: ReviewInput) -> None:
    """Raise on errors that are visible without the result."""
    corrections = given.corrections
    if not corrections and given.reviewed is None:
        raise _bad_input("corrections", "Send corrections, or reviewed.", "请提供更正，或 reviewed。")
    if (limit := MAX_CORRECTIONS_PER_CALL) < len(corrections):
        raise _bad_input("corrections", f"At most {limit} per request.", f"一次最多 {limit} 项。")
    pointers: list[Tokens] = []
    for number, one in enumerate(corrections):
        try:
            pointers.append(parse_pointer(one.pointer))
        except BadPointer as bad:
            raise _bad_input(f"corrections.{number}.pointer", bad.reason, bad.reason_zh) from bad
        if len(one.value.encode()) > MAX_VALUE_BYTES:
            raise _bad_input(f"corrections.{number}.value", f"Longer than {MAX_VALUE_BYTES} bytes.", "值过长。")
        if len(one.note or "") > MAX_NOTE_CHARS:
            raise _bad_input(f"corrections.{number}.note", f"Longer than {MAX_NOTE_CHARS} characters.", "备注过长。")
    if (overlap := find_overlap(pointers)) is not None:
        outer, inner = map(format_pointer, overlap)
        message = f"{inner!r} is within {outer!r}, which is corrected in the same request."
        raise _bad_input("corrections", message, f"{inner!r} 位于同一次提交的 {outer!r} 之内。")


def _bad_input(place: str, reason: str, reason_zh: str) -> BadCorrections:
    return BadCorrections(problems=[CorrectionProblem(place=place, reason=reason, reason_zh=reason_zh)])


def _is_whole(review: Review | None) -> bool:
    return review is not None and review.is_whole


def _apply(result: bytes, active: Sequence[Correction]) -> bytes:
    patches = [CorrectionPatch(pointer=one.pointer, value=msgspec.json.decode(one.corrected)) for one in active]
    return apply_corrections(result, patches)


def _final_corrections(active: Sequence[Correction]) -> list[Correction]:
    """Those without a later correction of a value inside them."""
    ancestors = {
        outer for one in active for outer in self_and_ancestors(parse_pointer(one.pointer)[:-1]) if one.pointer
    }
    return [one for one in active if parse_pointer(one.pointer) not in ancestors]


def _find_superseded(active: Sequence[Correction], new: Sequence[NewCorrection]) -> set[int]:
    """The ids of active corrections at or inside the pointer of a new one."""
    replaced = {parse_pointer(one.pointer) for one in new}
    return {one.id for one in active if not replaced.isdisjoint(self_and_ancestors(parse_pointer(one.pointer)))}


async def _get_completed(tx: Tx, caller: Caller, task_id: int) -> EtlTask:
    task = await lifecycle.get_owned_task(tx, caller, task_id)
    if task.status is not Status.COMPLETED:
        raise ArtifactNotReady(task_id=task_id, status=task.status.value, what="result")
    return task


async def _load_result(deps: Deps, task: EtlTask) -> bytes:
    try:
        return await deps.blobs.get(artifacts.result_key(task), max_bytes=MAX_RESULT_BYTES)
    except BlobTooLarge as error:
        raise ResultNotReviewable(task_id=task.id, reason=f"it has {error.values['size_bytes']} bytes") from error


async def _check(
    deps: Deps, state: ReviewState, result: bytes, active: Sequence[Correction], new: Sequence[NewCorrection]
) -> CorrectionCheckResult:
    body = state.rule.body
    check_input = {
        "result": msgspec.Raw(result),
        "json_schema": None if body.postprocess_mode is Mode.SKIP else body.json_schema,  # skip rules do not validate
        "active": [{"pointer": one.pointer, "value": msgspec.Raw(one.corrected.encode())} for one in active],
        "new": [{"pointer": one.pointer, "value": msgspec.Raw(one.value.encode())} for one in new],
    }
    async with _temporary_file(deps.scratch, msgspec.json.encode(check_input)) as path:
        try:
            checked = await deps.sandbox.run(check_corrections, file=path, limits=correction_check.LIMITS)
        except Invalid as error:  # it exceeded its time or memory limit
            raise ResultNotReviewable(task_id=state.task.id, reason=str(error).rstrip(".")) from error
    if checked.failure is not None:
        raise ResultNotReviewable(task_id=state.task.id, reason=checked.failure)
    return checked


@asynccontextmanager
async def _temporary_file(folder: Path, content: bytes) -> AsyncIterator[Path]:
    """A file with this content, deleted at the end of the block."""
    await asyncio.to_thread(make_private_folder, folder)
    path = folder / f"{secrets.token_hex(8)}.part"
    try:
        await asyncio.to_thread(path.write_bytes, content)
        yield path
    finally:
        await asyncio.to_thread(path.unlink, missing_ok=True)


async def _claim_unchanged(tx: Tx, state: ReviewState) -> bool:
    """Lock the task; returns whether the task and its review are as they were loaded."""
    if not await reviews.claim_completed(tx, state.task):
        return False
    now = await reviews.find_review(tx, task_id=state.task.id, run=state.task.run)
    return (now and now.revision) == (state.review and state.review.revision)


def _new_corrections(tx: Tx, task: EtlTask, change: ReviewChange, checked: CorrectionCheckResult) -> list[Correction]:
    return [
        Correction(
            id=0,  # assigned by the database
            task_id=task.id,
            run=task.run,
            user_id=task.user_id,
            rule_id=task.rule_id,
            rule_version=task.rule_version,
            pointer=one.pointer,
            field=value.field,
            original=value.original,
            corrected=one.value,
            confirms=value.confirms,
            note=one.note,
            created_at=tx.now,
            created_by=tx.actor,
        )
        for one, value in zip(change.new, checked.values, strict=True)
    ]


async def _save_review(tx: Tx, state: ReviewState, checked: CorrectionCheckResult, reviewed: bool | None) -> Review:
    """Store the next revision of the review."""
    before, after = state.review, _next_review(tx, state, checked, reviewed)
    if before is None:
        await reviews.insert_review(tx, after)
    elif not await reviews.move_review(tx, before, after):
        raise ReviewBusy(task_id=after.task_id)
    return after


def _next_review(tx: Tx, state: ReviewState, checked: CorrectionCheckResult, reviewed: bool | None) -> Review:
    task = state.task
    before = state.review or Review(
        id=0,  # assigned by the database
        task_id=task.id,
        run=task.run,
        user_id=task.user_id,
        rule_id=task.rule_id,
        rule_version=task.rule_version,
        revision=0,
        reviewed_at=None,
        reviewed_by=None,
        counts=ValueCounts(),
    )
    after = replace(before, revision=before.revision + 1)
    if reviewed is not None:
        after = replace(after, reviewed_at=tx.now if reviewed else None, reviewed_by=tx.actor if reviewed else None)
    return replace(after, counts=checked.whole if after.is_whole else checked.part)


def _result(
    state: ReviewState, review: Review | None, given: ReviewInput, known: Sequence[Correction], *, is_new: bool = False
) -> ReviewResult:
    """The requested corrections as they are now."""
    latest = {one.pointer: one for one in known}
    requested = [latest[one.pointer] for one in given.corrections]
    return ReviewResult(task=state.task, review=review, corrections=requested, is_new=is_new)

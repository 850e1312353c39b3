"""Review: a person says what a value of a result should be, or that the result is right.

What is said belongs to the run whose result is shown now; a retry makes a new result, about which nothing was said yet.
The corrected whole is examined in the sandbox, so before any transaction. Whoever else spoke meanwhile has changed the
review's revision: then it is examined again, with what they said.
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
from penstock.etl import moves, overlay, papers
from penstock.etl.deps import Deps
from penstock.etl.domain import EtlTask, Mode, Rule, Status
from penstock.etl.domain.review import (
    MOST_AT_ONCE,
    MOST_NOTE,
    MOST_OF_TASK,
    MOST_RESULT_BYTES,
    MOST_VALUE_BYTES,
    BadCorrections,
    Correction,
    CorrectionNeeded,
    CorrectionNotFound,
    CorrectionOver,
    CorrectionsFull,
    NewCorrection,
    Problem,
    ResultNotReviewable,
    Review,
    ReviewBusy,
    Tally,
)
from penstock.etl.errors import NotThereYet
from penstock.etl.overlay import Examined, Patch
from penstock.etl.pointers import BadPointer, Tokens, around, find_overlap, pointer_of, tokens_of
from penstock.etl.store import reviews, rules
from penstock.kernel.blobs import BlobTooLarge
from penstock.kernel.db import Tx
from penstock.kernel.errors import Invalid

TRIES = 10  # to examine what nobody has changed meanwhile
NOTED = 100  # pointers that an audit line names


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a person says. `reviewed`: all other values are right, too; false takes that back, none leaves it."""

    corrections: Sequence[NewCorrection] = ()
    reviewed: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Reviewed:
    """A task, what is said of its result in all, and the corrections that were asked for. `is_new`: some were not
    there before."""

    task: EtlTask
    review: Review | None
    corrections: Sequence[Correction]
    is_new: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether somebody looked at every value of the result."""
        return _is_whole(self.review)


@dataclass(frozen=True, kw_only=True)
class _Scene:
    """What is there before somebody speaks."""

    task: EtlTask
    rule: Rule
    review: Review | None
    standing: Sequence[Correction]


@dataclass(frozen=True, kw_only=True)
class _Change:
    """New corrections, the numbers of those whose places they take, and what came of it all."""

    new: Sequence[NewCorrection]
    covered: set[int]
    examined: Examined


async def correct(tools: Deps, caller: Caller, task_id: int, said: Said) -> Reviewed:
    """Keep what a person says about the result of a completed task."""
    _check_said(said)
    for _ in range(TRIES):
        scene = await _look(tools, caller, task_id)
        known = {(one.pointer, one.corrected, one.note, one.created_by) for one in _last_words(scene.standing)}
        new = [one for one in said.corrections if (one.pointer, one.value, one.note, caller.name) not in known]
        if not new and said.reviewed in {None, _is_whole(scene.review)}:
            return _answer(scene, scene.review, said, scene.standing)
        covered = _covered(scene.standing, new)
        standing = [one for one in scene.standing if one.id not in covered]
        examined = await _examine(tools, scene, standing, new)
        if examined.problems:
            raise BadCorrections(problems=examined.problems)
        kept = await _keep(tools, caller, scene, said, _Change(new=new, covered=covered, examined=examined))
        if kept is not None:
            return kept
    raise ReviewBusy(task_id=task_id)


async def withdraw(tools: Deps, caller: Caller, task_id: int, correction_id: int) -> None:
    """Take a correction back; the original, or an earlier correction around it, shows again."""
    for _ in range(TRIES):
        scene = await _look(tools, caller, task_id)
        async with tools.db.read() as tx:
            found = await reviews.find_correction(tx, task_id, correction_id)
        if found is None:
            raise CorrectionNotFound(task_id=task_id, correction_id=correction_id)
        if found.withdrawn_at is not None:
            return
        if not found.stands or found.run != scene.task.run:
            raise CorrectionOver(correction_id=correction_id)
        left = [one for one in scene.standing if one.id != correction_id]
        examined = await _examine(tools, scene, left, [])
        if examined.problems:
            raise CorrectionNeeded(correction_id=correction_id, **examined.problems[0].told)
        if await _withdrawn(tools, caller, scene, found, examined):
            return
    raise ReviewBusy(task_id=task_id)


async def list_of_task(tools: Deps, caller: Caller, task_id: int, *, before: int | None, limit: int) -> Reviewed:
    """What was said about a task's results, newest first: of every run, and what stands no more, too."""
    async with tools.db.read() as tx:
        task = await moves.get_own(tx, caller, task_id)
        review = await reviews.find_review(tx, task_id=task_id, run=task.run)
        found = await reviews.list_of_task(tx, task_id, before=before, limit=limit)
    return Reviewed(task=task, review=review, corrections=found)


async def corrected_result(tools: Deps, caller: Caller, task_id: int) -> bytes | None:
    """The result with all corrections that stand; none where there is nothing to correct in it."""
    async with tools.db.read() as tx:
        task = await _get_completed(tx, caller, task_id)
        standing = await reviews.list_standing(tx, task_id=task_id, run=task.run)
    if not standing:
        return None
    return await asyncio.to_thread(_laid_over, await _result_of(tools, task), standing)


def _check_said(said: Said) -> None:
    """Refuse what can be seen to be wrong without the result."""
    given = said.corrections
    if not given and said.reviewed is None:
        raise _bad(
            "corrections", "Say what is wrong, or that all of it was reviewed.", "请给出更正，或说明已全部审阅。"
        )
    if len(given) > MOST_AT_ONCE:
        raise _bad("corrections", f"At most {MOST_AT_ONCE} come at once.", f"一次最多 {MOST_AT_ONCE} 项。")
    places: list[Tokens] = []
    for number, one in enumerate(given):
        try:
            places.append(tokens_of(one.pointer))
        except BadPointer as bad:
            raise _bad(f"corrections.{number}.pointer", bad.reason, bad.reason_zh) from bad
        if len(one.value.encode()) > MOST_VALUE_BYTES:
            raise _bad(f"corrections.{number}.value", f"It has more than {MOST_VALUE_BYTES} bytes.", "值过长。")
        if len(one.note or "") > MOST_NOTE:
            raise _bad(f"corrections.{number}.note", f"It has more than {MOST_NOTE} characters.", "备注过长。")
    if (overlap := find_overlap(places)) is not None:
        outer, inner = map(pointer_of, overlap)
        told = f"{inner!r} lies in {outer!r}, which is corrected in the same call."
        raise _bad("corrections", told, f"{inner!r} 位于同一次提交的 {outer!r} 之内。")


def _bad(place: str, reason: str, reason_zh: str) -> BadCorrections:
    return BadCorrections(problems=[Problem(place=place, reason=reason, reason_zh=reason_zh)])


def _is_whole(review: Review | None) -> bool:
    return review is not None and review.is_whole


def _laid_over(result: bytes, standing: Sequence[Correction]) -> bytes:
    patches = [Patch(pointer=one.pointer, value=msgspec.json.decode(one.corrected)) for one in standing]
    return overlay.laid_over(result, patches)


def _last_words(standing: Sequence[Correction]) -> list[Correction]:
    """Those inside of which nobody has corrected something since."""
    built_on = {outer for one in standing for outer in around(tokens_of(one.pointer)[:-1]) if one.pointer}
    return [one for one in standing if tokens_of(one.pointer) not in built_on]


def _covered(standing: Sequence[Correction], new: Sequence[NewCorrection]) -> set[int]:
    """The numbers of those that stand at a place that a new one is about, or inside of it."""
    places = {tokens_of(one.pointer) for one in new}
    return {one.id for one in standing if any(outer in places for outer in around(tokens_of(one.pointer)))}


async def _get_completed(tx: Tx, caller: Caller, task_id: int) -> EtlTask:
    task = await moves.get_own(tx, caller, task_id)
    if task.status is not Status.COMPLETED:
        raise NotThereYet(task_id=task_id, status=task.status.value, what="result")
    return task


async def _look(tools: Deps, caller: Caller, task_id: int) -> _Scene:
    async with tools.db.read() as tx:
        task = await _get_completed(tx, caller, task_id)
        rule = await rules.get_rule_version(tx, task.rule_id, task.rule_version)
        # The revision first: what comes after it shows as another one in the end.
        review = await reviews.find_review(tx, task_id=task_id, run=task.run)
        standing = await reviews.list_standing(tx, task_id=task_id, run=task.run)
    return _Scene(task=task, rule=rule, review=review, standing=standing)


async def _result_of(tools: Deps, task: EtlTask) -> bytes:
    try:
        return await tools.blobs.get(papers.result_key(task), most_bytes=MOST_RESULT_BYTES)
    except BlobTooLarge as error:
        raise ResultNotReviewable(task_id=task.id, reason=f"it has {error.values['size_bytes']} bytes") from error


async def _examine(
    tools: Deps, scene: _Scene, standing: Sequence[Correction], new: Sequence[NewCorrection]
) -> Examined:
    body = scene.rule.body
    sheet = {
        "result": msgspec.Raw(await _result_of(tools, scene.task)),
        "json_schema": None if body.postprocess_mode is Mode.SKIP else body.json_schema,  # nobody was asked to keep it
        "standing": [{"pointer": one.pointer, "value": msgspec.Raw(one.corrected.encode())} for one in standing],
        "new": [{"pointer": one.pointer, "value": msgspec.Raw(one.value.encode())} for one in new],
    }
    async with _lent(tools.scratch, msgspec.json.encode(sheet)) as path:
        try:
            examined = await tools.sandbox.run(overlay.examine, file=path, limits=overlay.LIMITS)
        except Invalid as error:  # it hung, or wanted too much
            raise ResultNotReviewable(task_id=scene.task.id, reason=str(error).rstrip(".")) from error
    if examined.flaw is not None:
        raise ResultNotReviewable(task_id=scene.task.id, reason=examined.flaw)
    return examined


@asynccontextmanager
async def _lent(folder: Path, content: bytes) -> AsyncIterator[Path]:
    """A file with this content, gone at the end of the block."""
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    path = folder / f"{secrets.token_hex(8)}.part"
    try:
        await asyncio.to_thread(path.write_bytes, content)
        yield path
    finally:
        await asyncio.to_thread(path.unlink, missing_ok=True)


async def _keep(tools: Deps, caller: Caller, scene: _Scene, said: Said, change: _Change) -> Reviewed | None:
    """Write it down; none when somebody else spoke meanwhile, or the task is not what it was."""
    task = scene.task
    async with tools.db.tx(actor=caller.name) as tx:
        if not await _is_unmoved(tx, scene):
            return None
        if await reviews.count_of_task(tx, task.id) + len(change.new) > MOST_OF_TASK:
            raise CorrectionsFull(task_id=task.id, most=MOST_OF_TASK)
        await reviews.move_superseded(tx, change.covered)
        made = _made(tx, task, change)
        numbers = await reviews.insert_corrections(tx, made)
        made = [replace(one, id=number) for one, number in zip(made, numbers, strict=True)]
        review = await _say(tx, scene, change.examined, said.reviewed)
        pointers = [one.pointer for one in made[:NOTED]]
        detail = {"run": task.run, "corrections": len(made), "pointers": pointers, "reviewed": review.is_whole}
        await audit.record(tx, caller, "etl.correct", f"etl:{task.id}", **detail)
    return _answer(scene, review, said, [*scene.standing, *made], is_new=bool(made))


async def _withdrawn(tools: Deps, caller: Caller, scene: _Scene, one: Correction, examined: Examined) -> bool:
    """Write down that a correction is taken back; returns whether nobody else spoke meanwhile."""
    async with tools.db.tx(actor=caller.name) as tx:
        if not await _is_unmoved(tx, scene):
            return False
        await reviews.move_withdrawn(tx, one.id)
        await _say(tx, scene, examined, None)
        detail = {"run": one.run, "correction_id": one.id, "pointer": one.pointer}
        await audit.record(tx, caller, "etl.withdraw_correction", f"etl:{one.task_id}", **detail)
    return True


async def _is_unmoved(tx: Tx, scene: _Scene) -> bool:
    """Whether all is as it was seen; if so, it stays until this transaction ends."""
    if not await reviews.claim_completed(tx, scene.task):
        return False
    now = await reviews.find_review(tx, task_id=scene.task.id, run=scene.task.run)
    return (now and now.revision) == (scene.review and scene.review.revision)


def _made(tx: Tx, task: EtlTask, change: _Change) -> list[Correction]:
    return [
        Correction(
            id=0,  # until the database has given it one
            task_id=task.id,
            run=task.run,
            user_id=task.user_id,
            rule_id=task.rule_id,
            rule_version=task.rule_version,
            pointer=one.pointer,
            field=met.field,
            original=met.original,
            corrected=one.value,
            confirms=met.confirms,
            note=one.note,
            created_at=tx.now,
            created_by=tx.actor,
        )
        for one, met in zip(change.new, change.examined.met, strict=True)
    ]


async def _say(tx: Tx, scene: _Scene, examined: Examined, reviewed: bool | None) -> Review:
    """Write the review as it is from now on."""
    before, after = scene.review, _reviewed(tx, scene, examined, reviewed)
    if before is None:
        await reviews.insert_review(tx, after)
    elif not await reviews.move_review(tx, before, after):
        raise ReviewBusy(task_id=after.task_id)
    return after


def _reviewed(tx: Tx, scene: _Scene, examined: Examined, reviewed: bool | None) -> Review:
    task = scene.task
    before = scene.review or Review(
        id=0,  # as above
        task_id=task.id,
        run=task.run,
        user_id=task.user_id,
        rule_id=task.rule_id,
        rule_version=task.rule_version,
        revision=0,
        reviewed_at=None,
        reviewed_by=None,
        tally=Tally(),
    )
    after = replace(before, revision=before.revision + 1)
    if reviewed is not None:
        after = replace(after, reviewed_at=tx.now if reviewed else None, reviewed_by=tx.actor if reviewed else None)
    return replace(after, tally=examined.whole if after.is_whole else examined.part)


def _answer(
    scene: _Scene, review: Review | None, said: Said, known: Sequence[Correction], *, is_new: bool = False
) -> Reviewed:
    """The corrections that a person spoke of, as they stand now."""
    latest = {one.pointer: one for one in known}
    told = [latest[one.pointer] for one in said.corrections]
    return Reviewed(task=scene.task, review=review, corrections=told, is_new=is_new)

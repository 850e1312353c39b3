"""Answers to review requests: validated, kept as corrections with who and when, or returned with their errors.

    ReviewAnswered → a job of this module, since the answer is checked in the sandbox
    the job → corrections of the result; the task says `review: answered`
            → or the result of a task that had failed, which becomes completed
            → or a new request that lists the errors, and the same task of the tasks module is offered again

An answer to a request that was withdrawn, or that has been answered, changes nothing.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from penstock.access.domain import Caller, Scope
from penstock.etl import lifecycle, review_requests
from penstock.etl.correction_check import is_same_json
from penstock.etl.deps import Deps
from penstock.etl.domain import ETL_TASK, REVIEW, EtlTask, ReviewStatus, Rule
from penstock.etl.domain.review import MAX_CORRECTIONS_PER_CALL, NewCorrection
from penstock.etl.store import rules, tasks
from penstock.kernel.db import Tx
from penstock.kernel.json_object import JsonObject
from penstock.kernel.json_schema.pointers import format_pointer
from penstock.kernel.queue import NewJob
from penstock.kernel.transitions import record
from penstock.messages import EtlTaskReviewed, ReviewAnswered

log = logging.getLogger(__name__)

ANSWER_JOB = "etl_review_job"


async def accept(tx: Tx, deps: Deps, answered: ReviewAnswered) -> None:
    """Enqueue the check of an answer; nothing if no task of this module waits for it."""
    kind, _, task_id = answered.origin.partition(":")
    if kind != lifecycle.MODULE or not task_id.isdecimal():
        return
    task = await tasks.find_task(tx, int(task_id))
    if task is None or not review_requests.is_waiting_for(task, answered.request):
        log.info("the answer to %s comes too late", answered.request)
        return
    payload = {"task_id": task.id, "request": answered.request, "by": answered.answered_by, "result": answered.result}
    job_id = f"{answered.request}:answer"
    await deps.queue.enqueue(tx, NewJob(kind=ANSWER_JOB, id=job_id, module=lifecycle.MODULE, payload=payload))


async def find_waiting(tx: Tx, task_id: int, request: str) -> tuple[EtlTask, Rule] | None:
    """The task that waits for this answer, and its rule; None if the answer comes too late."""
    task = await tasks.find_task(tx, task_id)
    if task is None or not review_requests.is_waiting_for(task, request):
        return None
    return task, await rules.get_rule_version(tx, task.rule_id, task.rule_version)


def reviewer(task: EtlTask, name: str) -> Caller:
    """Who answered, with access to this task."""
    return Caller(name=name, user_id=task.user_id, scope=Scope.WRITE)


def corrections_between(result: Any, answer: Any) -> list[NewCorrection]:
    """The corrections that turn a result into the answer: the smallest values that differ.

    A list of another length is corrected as a whole, and so is an object whose members differ. Too many differences
    are one correction of everything.
    """
    found = [
        NewCorrection(pointer=format_pointer(tokens), value=msgspec.json.encode(value).decode())
        for tokens, value in _differences((), result, answer)
    ]
    if len(found) <= MAX_CORRECTIONS_PER_CALL:
        return found
    return [NewCorrection(pointer="", value=msgspec.json.encode(answer).decode())]


def _differences(tokens: tuple[str, ...], result: Any, answer: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(result, dict) and isinstance(answer, dict) and result.keys() == answer.keys():
        for name in answer:
            yield from _differences((*tokens, name), result[name], answer[name])
    elif isinstance(result, list) and isinstance(answer, list) and len(result) == len(answer):
        for index, (one, other) in enumerate(zip(result, answer, strict=True)):
            yield from _differences((*tokens, str(index)), one, other)
    elif not is_same_json(result, answer):
        yield tokens, answer


async def claim_waiting(tx: Tx, task: EtlTask) -> EtlTask | None:
    """Lock the row before its answer is written: of an answer and a cancel one wins. None if nothing waits for it."""
    locked = await tasks.claim_task(tx, task.id)
    if locked is None or not review_requests.is_waiting_for(locked, task.metadata[REVIEW]["request"]):
        log.info("the answer about etl:%d comes too late", task.id)
        return None
    return locked


async def complete_failed(tx: Tx, deps: Deps, task: EtlTask, result: JsonObject) -> EtlTask:
    """Move a failed task to completed: the answer is its result."""
    known = {name: value for name, value in task.metadata.items() if name not in lifecycle.ERROR_METADATA}
    status = ETL_TASK.move("answer", task.status)
    done = replace(task, status=status, progress=100, result=result, error=None, metadata=known, updated_at=tx.now)
    await tasks.move_task(tx, task, done)
    await record(tx, ETL_TASK.name, [str(task.id)], task.status, status, "answer")
    tx.after_commit.append(partial(deps.metrics.count_ended, status))
    return done


async def finish(tx: Tx, task: EtlTask, *, by: str) -> None:
    """Mark the review as answered, and announce it."""
    review = {**task.metadata[REVIEW], "state": ReviewStatus.ANSWERED.value}
    review |= {"answered_by": by, "answered_at": tx.now.isoformat()}
    done = replace(task, metadata={**task.metadata, REVIEW: review}, updated_at=tx.now)
    await tasks.move_task(tx, task, done)
    tx.publish(lifecycle.reviewed_event(done))
    tx.send(
        EtlTaskReviewed(
            task_id=done.id,
            user_id=done.user_id,
            project_id=done.project_id,
            filename=done.filename,
            run=done.run,
            status=done.status,
            reviewed_by=by,
            output_path=(done.result or {}).get("output_path"),
        )
    )


async def refuse(tx: Tx, task: EtlTask, rule: Rule, errors: list[str]) -> None:
    """Ask again, with the errors of the answer."""
    locked = await claim_waiting(tx, task)
    if locked is None:
        return
    again, message = review_requests.request_again(locked, rule, errors)
    await tasks.move_task(tx, locked, replace(again, updated_at=tx.now))
    tx.send(message)

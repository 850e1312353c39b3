"""Reviews: a question of another module becomes a task, and the pushed result of that task becomes its answer.

    ReviewRequested → a task in the project and queue that the request names, with `result_schema`
    the task becomes done → ReviewAnswered (sent by the unit of work that writes the change)
    ReviewRequested with `replaces` → the answer was refused; the same task is offered again, with the errors
    ReviewWithdrawn → the task is deleted, so that a late push is refused with 410

The first `done` ends the request; a second push is an ordinary update of the task. Messages may arrive twice or out of
order: a request is a row, and a row that exists, or has ended, is left alone.
"""

import logging
from dataclasses import replace

import msgspec

from penstock.kernel.db import Tx
from penstock.kernel.json_object import JsonObject
from penstock.kernel.json_schema.cost import find_schema_problem
from penstock.messages import ReviewRequested, ReviewWithdrawn
from penstock.tasks.deps import Deps
from penstock.tasks.domain import ChangeKind, Side, Status, Task
from penstock.tasks.lifecycle import UnitOfWork, count_ended_pulls, open_or_create_project
from penstock.tasks.store import projects, reviews, task_messages, tasks
from penstock.tasks.store.task_messages import TaskMessage

log = logging.getLogger(__name__)

REVIEW_TAG = "review"
ANY_RESULT: JsonObject = {"type": "object"}
MAX_FIELDS_BYTES = 65_536  # of the fields in a prompt; larger ones are read from their origin
ERROR_ROLE = "system"  # of the message that lists why an answer was refused


async def request_review(tx: Tx, deps: Deps, asked: ReviewRequested) -> None:
    """Offer a task that asks for the answer, or the task of the refused answer again."""
    refused_pk = await reviews.find_task_pk(tx, asked.replaces) if asked.replaces is not None else None
    task_pk = refused_pk or tx.new_id("task")
    if not await reviews.insert_request(tx, request=asked.request, origin=asked.origin, task_pk=task_pk):
        return
    uow = await open_or_create_project(tx, asked.project_id, name=asked.project_id)
    found = await tasks.claim_by_pk(tx, [refused_pk]) if refused_pk is not None else []
    if found:
        await _offer_again(uow, found[0], asked)
    else:
        queue_pk, queue_id = await _queue_keys(uow, asked.queue_id)
        new = _new_task(uow, asked, task_pk)
        uow.record(None, replace(new, queue_pk=queue_pk, queue_id=queue_id), ChangeKind.CREATED)
    await _write(deps, uow, by=asked.origin)


async def withdraw_review(tx: Tx, deps: Deps, withdrawn: ReviewWithdrawn) -> None:
    """Delete the task of a request that is still open."""
    if await reviews.insert_withdrawn(tx, request=withdrawn.request, origin=withdrawn.origin):
        return  # the request itself is delivered later, and ignored
    task_pk = await reviews.find_task_pk(tx, withdrawn.request)
    project_pk = await tasks.find_project_pk(tx, task_pk) if task_pk is not None else None
    project = await projects.claim_project_by_pk(tx, project_pk) if project_pk is not None else None
    if await reviews.end_request(tx, withdrawn.request) is None or project is None:
        return
    uow = UnitOfWork(tx, project)
    for before in await tasks.claim_by_pk(tx, [task_pk or ""]):
        if before.deleted_at is None:
            released = before.returned("release", by=withdrawn.origin, now=tx.now) if before.is_held else before
            uow.record(before, released.deleted(by=withdrawn.origin, now=tx.now), ChangeKind.DELETED)
    if uow.changes:
        await _write(deps, uow, by=withdrawn.origin)


async def _offer_again(uow: UnitOfWork, before: Task, asked: ReviewRequested) -> None:
    """Offer the task of a refused answer again, with a message that lists the errors."""
    tx = uow.tx
    text = "The answer was refused:\n" + "\n".join(f"- {error}" for error in asked.errors)
    message = TaskMessage(
        number=before.message_count, role=ERROR_ROLE, content=text, session_id=None, created_at=tx.now
    )
    waiting = replace(
        before,
        result=None,
        message_count=before.message_count + 1,
        status_at_pull=None,
        deleted_at=None,
        archived_at=None,
        expires_at=None,
    )
    after = waiting.with_status(Status.PENDING, now=tx.now).pull_reset(by=asked.origin, now=tx.now)
    uow.record(before, after, ChangeKind.EDITED)
    await task_messages.insert_message(tx, before.id, message)


async def _queue_keys(uow: UnitOfWork, queue_id: str | None) -> tuple[str, str]:
    """The `queue_pk` and `queue_id` of the task; a missing queue is created."""
    if queue_id is None:
        return "", ""
    queue = await uow.find_queue(queue_id) or uow.add_queue(queue_id, queue_id)
    return queue.id, queue.queue_id


def _new_task(uow: UnitOfWork, asked: ReviewRequested, task_pk: str) -> Task:
    now, by = uow.tx.now, asked.origin
    schema = asked.result_schema or ANY_RESULT
    if (problem := find_schema_problem(schema)) is not None:
        log.warning("review %s: its schema is not used as result_schema: %s", asked.request, problem)
        schema = ANY_RESULT  # the origin validates the answer in any case
    new = Task(
        id=task_pk,
        partition_key=uow.project.id,
        task_id=task_pk,  # a client cannot have taken it
        name=asked.title,
        prompt=_prompt(asked),
        status=Status.PENDING,
        source=Side.SERVER,
        origin=Side.SERVER,
        tags=[REVIEW_TAG, asked.origin],
        result_schema=schema,
        scheduled_at=now,
        created_at=now,
        created_by=by,
        updated_at=now,
        updated_by=by,
        server_modified_at=now,
    )
    return new.reoffered(now=now)


def _prompt(asked: ReviewRequested) -> str:
    """What is asked, and the fields so far."""
    if asked.fields is None:
        return asked.prompt
    fields = msgspec.json.format(msgspec.json.encode(asked.fields)).decode()
    if len(fields.encode()) > MAX_FIELDS_BYTES:
        return f"{asked.prompt}\n\nThe fields so far are too large to be shown here; read them from {asked.origin}."
    return f"{asked.prompt}\n\nThe fields so far:\n\n```json\n{fields}\n```"


async def _write(deps: Deps, uow: UnitOfWork, *, by: str) -> None:
    uow.announce()
    count_ended_pulls(uow, deps.metrics)
    await uow.close(by=by)

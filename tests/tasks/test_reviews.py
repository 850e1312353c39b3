"""A question of another module becomes a task, and the result that is pushed to it becomes the answer."""

from typing import Any

import pytest
from sqlalchemy import select

from penstock.kernel.message import Message
from penstock.kernel.outbox import outbox
from penstock.messages import ReviewRequested, ReviewWithdrawn
from penstock.tasks import worker
from tests.asgi import Response
from tests.tasks.conftest import TasksApi, on_sqlite

SCHEMA = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}
CHECK = "/projects/checks/queues/invoices"
ASKED = ReviewRequested(
    request="etl:42:1:1",
    origin="etl:42",
    project_id="checks",
    queue_id="invoices",
    title="Review invoice.pdf",
    prompt="Is the total right?",
    fields={"total": 90},
    result_schema=SCHEMA,
)
WITHDRAWN = ReviewWithdrawn(request="etl:42:1:1", origin="etl:42")


async def deliver(api: TasksApi, message: Message) -> None:
    """Handle a message as the relay does."""
    for handler in worker.message_handlers(api.deps)[type(message)]:
        async with api.db.tx(actor="relay") as tx:
            await handler(tx, message)


async def pull(api: TasksApi, *, client: str = "clara") -> list[Any]:
    data = await api.data("GET", f"{CHECK}/tasks/pull", key="anna", x_client_id=client)
    tasks: list[Any] = data["tasks"]
    return tasks


async def push(api: TasksApi, task: Any, result: object, *, client: str = "clara", status: str = "done") -> Response:
    body = {"status": status, "result": result}
    path = f"/tasks/checks/invoices/{task['task_id']}/status"
    return await api.call("PATCH", path, body, key="anna", x_client_id=client)


async def answers(api: TasksApi) -> list[dict[str, Any]]:
    async with api.db.read() as tx:
        sent = select(outbox.c.payload).where(outbox.c.channel == "ReviewAnswered").order_by(outbox.c.id)
        return list((await tx.conn.scalars(sent)).all())


async def test_a_request_is_a_task_with_what_is_asked_the_fields_so_far_and_the_schema(api: TasksApi):
    await deliver(api, ASKED)
    [task] = await pull(api)
    assert (task["name"], task["tags"], task["result_schema"]) == ("Review invoice.pdf", ["review", "etl:42"], SCHEMA)
    assert task["prompt"].startswith("Is the total right?")
    assert '"total": 90' in task["prompt"]


async def test_a_request_that_is_delivered_twice_is_one_task(api: TasksApi):
    await deliver(api, ASKED)
    await deliver(api, ASKED)
    assert len(await pull(api)) == 1
    assert await pull(api, client="bert") == []


async def test_the_pushed_result_is_sent_as_the_answer_once(api: TasksApi):
    await deliver(api, ASKED)
    [task] = await pull(api)
    await push(api, task, {"total": 91.5})
    await push(api, task, {"total": 92})
    [answer] = await answers(api)
    assert answer == {
        "request": "etl:42:1:1",
        "origin": "etl:42",
        "result": {"total": 91.5},
        "answered_by": "clara",
    }


@on_sqlite
async def test_a_result_that_violates_the_schema_is_refused_at_the_push(api: TasksApi):
    await deliver(api, ASKED)
    [task] = await pull(api)
    refused = await push(api, task, {"total": "much"})
    assert (refused.status, refused.error["code"]) == (400, "VALIDATION_ERROR")
    assert await answers(api) == []


async def test_a_refused_answer_comes_back_to_the_same_task_with_its_errors(api: TasksApi):
    await deliver(api, ASKED)
    [first] = await pull(api)
    await push(api, first, {"total": 1})
    again = {"request": "etl:42:1:2", "replaces": "etl:42:1:1", "errors": ["/total: it is too small"]}
    await deliver(api, ReviewRequested(**{**vars(ASKED), **again}))
    [task] = await pull(api, client="bert")
    assert (task["task_id"], task["status"], task["result"]) == (first["task_id"], "pending", None)
    shown = await api.data("GET", f"{CHECK}/tasks/{task['task_id']}", key="anna")
    assert [message["content"] for message in shown["messages"]] == [
        "The answer was refused:\n- /total: it is too small"
    ]
    await push(api, task, {"total": 91.5}, client="bert")
    assert [(one["request"], one["answered_by"]) for one in await answers(api)] == [
        ("etl:42:1:1", "clara"),
        ("etl:42:1:2", "bert"),
    ]


async def test_a_withdrawn_request_takes_its_task_away_and_a_late_push_is_refused(api: TasksApi):
    await deliver(api, ASKED)
    [task] = await pull(api)
    await deliver(api, WITHDRAWN)
    late = await push(api, task, {"total": 91.5})
    assert (late.status, late.error["code"]) == (410, "GONE")
    assert await answers(api) == []


async def test_a_request_that_was_withdrawn_before_it_was_delivered_makes_no_task(api: TasksApi):
    await deliver(api, WITHDRAWN)
    await deliver(api, ASKED)
    status, _ = await api.error("GET", CHECK, key="root")
    assert status == 404


async def test_a_withdrawal_after_the_answer_leaves_the_task_alone(api: TasksApi):
    await deliver(api, ASKED)
    [task] = await pull(api)
    await push(api, task, {"total": 91.5})
    await deliver(api, WITHDRAWN)
    shown = await api.data("GET", f"{CHECK}/tasks/{task['task_id']}")
    assert shown["status"] == "done"


@on_sqlite
@pytest.mark.parametrize("status", ["error", "cancelled", "running"])
async def test_only_done_is_an_answer(api: TasksApi, status: str):
    await deliver(api, ASKED)
    [task] = await pull(api)
    await push(api, task, None, status=status)
    assert await answers(api) == []


async def test_ended_requests_are_deleted_after_their_retention(api: TasksApi):
    await deliver(api, ASKED)
    await deliver(api, WITHDRAWN)
    api.clock.advance(seconds=400 * 86_400)
    await api.run_periodic_tasks("forget-pulls")
    await deliver(api, ASKED)  # nothing is known of it any more
    assert len(await pull(api)) == 1

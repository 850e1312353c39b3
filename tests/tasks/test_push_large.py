"""Large pushes: ten thousand tasks at once, and a thousand in as many statements as ten."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event

from tests.tasks.conftest import TasksApi
from tests.tasks.stored_state import project_of, queue_of, task_of


@contextmanager
def statements() -> Iterator[list[str]]:
    """Every statement that is sent in the block. One call with many rows counts once."""
    sent: list[str] = []

    def note(_conn: Any, _cursor: Any, text: str, *_more: Any) -> None:
        sent.append(text)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def some(number: int, **fields: Any) -> list[dict[str, Any]]:
    """So many tasks; every tenth has a message and a log line."""
    texts = {"messages": [{"role": "user", "content": "Hello"}], "logs": [{"content": "began"}]}
    return [
        {"id": f"t-{one}", "tags": ["red", str(one % 7)], **({} if one % 10 else texts), **fields}
        for one in range(number)
    ]


async def test_ten_thousand_tasks_in_one_push_work(api: TasksApi) -> None:
    data = await api.submit(*some(10_000))
    assert (data["tasks_count"], data["created_tasks"], data["updated_tasks"]) == (10_000, 0, 10_000)
    assert (await queue_of(api)).counts.pending == 10_000
    version = (await project_of(api)).version
    data = await api.submit(*some(9_999), {"id": "t-new"})
    assert (data["created_tasks"], data["updated_tasks"]) == (0, 10_000)
    assert (await project_of(api)).version == version + 2
    assert (await task_of(api, "t-9990")).message_count == 1


async def test_a_thousand_tasks_cost_as_many_statements_as_ten(api: TasksApi) -> None:
    async def cost(number: int) -> list[int]:
        """Statements of creating, repeating, changing and dropping so many tasks."""
        costs = []
        for tasks in (some(number), some(number), some(number, status="done", report="Well."), [{"id": "other"}]):
            with statements() as sent:
                await api.submit(*tasks, queue=f"of-{number}")
            costs.append(len(sent))
        return costs

    assert await cost(1000) == await cost(10)


async def test_a_thousand_pulled_tasks_come_back_in_as_many_statements_as_ten(api: TasksApi) -> None:
    async def cost(number: int) -> int:
        planned = [{"taskId": f"t-{one}", "name": "n", "prompt": "p"} for one in range(number)]
        place = f"/projects/p1/queues/of-{number}/tasks"
        await api.submit(queue=f"of-{number}")
        await api.data("POST", f"{place}/batch", {"tasks": planned})
        held = await api.with_config(batch_size=1000).pull(f"limit={number}", queue=f"of-{number}")
        done = [{"id": one["id"], "status": "done", "lease_token": one["lease_token"]} for one in held]
        with statements() as sent:
            await api.submit(*done, queue=f"of-{number}")
        assert (await queue_of(api, f"of-{number}")).counts.done == number
        return len(sent)

    assert await cost(1000) == await cost(10)

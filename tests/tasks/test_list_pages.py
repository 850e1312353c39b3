"""Pages, totals and searches of task lists, which come from counters, indexes and a table of texts."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import case, func, select

from penstock.tasks.domain import StateCounts
from penstock.tasks.store.tables import IS_ACTIVE, task, task_search
from tests.tasks.conftest import PROJECT, TasksApi
from tests.tasks.stored_state import project_of, queue_of

t = task.c
PLACES = (f"{PROJECT}/queues/q1/tasks?", f"{PROJECT}/tasks?queue=any&", f"{PROJECT}/tasks?")
FILTERS = ("", "status=pending&", "pull_state=pulled&", "pull_state=pulled_not_pushed&", "pull_state=unpulled&")


async def counted(api: TasksApi, queue_pk: str | None = None) -> StateCounts:
    """The tasks by pull state, counted one by one."""
    project = await project_of(api)
    here = [t.partition_key == project.id, IS_ACTIVE, *([] if queue_pk is None else [t.queue_pk == queue_pk])]

    def sum_of(condition: Any) -> Any:
        return func.coalesce(func.sum(case((condition, 1), else_=0)), 0)

    sums = select(
        sum_of(t.state.in_(["offered", "held"])),
        sum_of(t.state == "closed"),
        sum_of((t.state == "idle") & (t.origin == "server")),
    )
    async with api.db.read() as tx:
        row = (await tx.conn.execute(sums.where(*here))).one()
    return StateCounts(open_tasks=row[0], closed_tasks=row[1], idle_tasks=row[2])


async def pages(api: TasksApi, path: str, size: int = 2) -> tuple[list[str], int]:
    """The ids of all pages, and the total that each of them tells."""
    ids: list[str] = []
    totals, number = set(), 1
    while True:
        data = await api.data("GET", f"{path}page={number}&pageSize={size}")
        totals.add(data["pagination"]["total"])
        if not data["items"]:
            [total] = totals
            return ids, total
        ids += [one["task_id"] for one in data["items"]]
        number += 1


async def fill(api: TasksApi) -> None:
    """Tasks in every pull state, in a queue and without one."""
    for queue in ("q1", None):
        names = [f"{queue or 'none'}-{number}" for number in range(7)]
        await api.plan(*names, queue=queue)
        await api.pull("limit=3", queue=queue or "")
    pulled = (await api.data("GET", f"{PROJECT}/queues/q1/tasks?pull_state=pulled_not_pushed"))["items"]
    await api.data("PATCH", f"/tasks/p1/q1/{pulled[0]['task_id']}/status", {"status": "done"}, x_client_id="worker-1")
    await api.submit({"id": "mine"}, {"id": "other", "status": "done"}, queue="q2")


@pytest.mark.parametrize("chosen", FILTERS)
async def test_the_pages_of_a_list_show_each_task_once_and_the_total(api: TasksApi, chosen: str) -> None:
    await fill(api)
    for place in PLACES:
        whole = [one["task_id"] for one in (await api.data("GET", f"{place}{chosen}pageSize=100"))["items"]]
        assert await pages(api, f"{place}{chosen}") == (whole, len(whole)), place
        assert await pages(api, f"{place}{chosen}", size=3) == (whole, len(whole)), place


async def test_a_search_has_pages_and_a_total_too(api: TasksApi) -> None:
    await fill(api)
    for place, found in zip(PLACES, (7, 14, 7), strict=True):
        ids, total = await pages(api, f"{place}search=TASK&")
        assert (len(ids), len(set(ids)), total) == (found, found, found), place
    assert await pages(api, f"{PLACES[0]}search=q1-3&") == (["q1-3"], 1)
    assert await pages(api, f"{PLACES[0]}search=nothing&") == ([], 0)
    ids, total = await pages(api, f"{PLACES[0]}search=q1&status=done&")
    assert (len(ids), total) == (1, 1)


async def test_a_search_follows_renames_moves_and_deletions(api: TasksApi) -> None:
    async def found(place: str, search: str) -> Sequence[str]:
        return (await pages(api, f"{place}search={quote(search)}&"))[0]

    await api.plan("t1", "t2", queue="q1")
    await api.submit(queue="q2")
    await api.data("PUT", f"{PROJECT}/queues/q1/tasks/t1", {"name": "Überprüfung"})
    assert (await found(PLACES[0], "ÜBERPRÜF"), await found(PLACES[0], "Task t1")) == (["t1"], [])
    await api.data("POST", f"{PROJECT}/queues/q1/tasks/t1/move", {"queueId": "q2"})
    assert (await found(PLACES[0], "prüf"), await found(PLACES[1], "prüf")) == ([], ["t1"])
    await api.data("DELETE", f"{PROJECT}/queues/q2/tasks/t1")
    assert await found(PLACES[1], "prüf") == []
    await api.data("POST", f"{PROJECT}/queues/q2/tasks/t1/restore")
    assert await found(PLACES[1], "prüf") == ["t1"]
    await api.data("DELETE", f"{PROJECT}/queues/q2")
    assert await found(PLACES[1], "prüf") == []
    await api.run_jobs()
    async with api.db.read() as tx:
        assert await tx.conn.scalar(select(func.count()).select_from(task_search)) == 1


async def test_the_counters_by_pull_state_are_exact(api: TasksApi) -> None:
    await fill(api)
    await api.data("DELETE", f"{PROJECT}/queues/q1/tasks/q1-6")
    await api.data("POST", f"{PROJECT}/tasks/none-5/move", {"queueId": "q1"})
    await api.data("POST", f"{PROJECT}/queues/q2/reset")
    [held, *_] = (await api.data("GET", f"{PROJECT}/tasks?queue=any&pull_state=pulled_not_pushed"))["items"]
    await api.data("POST", f"{PROJECT}/tasks/{held['task_id']}/pull/release", x_client_id="worker-1")
    for queue_id in ("q1", "q2"):
        queue = await queue_of(api, queue_id)
        assert queue.states == await counted(api, queue.id)
    assert (await project_of(api)).states == await counted(api)
    await api.data("DELETE", f"{PROJECT}/queues/q1")
    await api.run_jobs()
    assert (await project_of(api)).states == await counted(api)

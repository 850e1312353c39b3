"""Long polling of a pull: it returns when a task is offered, or when its time is over."""

import asyncio

from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite


async def settle() -> None:
    """Let everything that can run now run."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_pull_that_waits_gets_what_comes(api: TasksApi):
    waiting = asyncio.create_task(api.pull("wait=30"))
    await settle()
    assert not waiting.done()
    await api.plan("a")
    [task] = await asyncio.wait_for(waiting, timeout=20)
    assert task["task_id"] == "a"


async def test_many_that_wait_get_one_task_each(api: TasksApi):
    waiting = [asyncio.create_task(api.pull("wait=30&limit=1", client=f"c{number}")) for number in range(5)]
    await settle()
    new = [{"taskId": task_id, "name": "n", "prompt": "p"} for task_id in "abcde"]
    await api.data("POST", f"{PROJECT}/tasks/batch", {"tasks": new})
    got = await asyncio.wait_for(asyncio.gather(*waiting), timeout=20)
    assert sorted(task["task_id"] for tasks in got for task in tasks) == list("abcde")


async def test_nothing_comes_and_the_time_is_over(api: TasksApi):
    waiting = asyncio.create_task(api.pull("wait=5"))
    for _ in range(7):
        await asyncio.sleep(0.05)  # the database answers in its own time; the clock of the test does not move by itself
        api.clock.advance(seconds=1)
    assert await asyncio.wait_for(waiting, timeout=20) == []


@on_sqlite
async def test_nobody_waits_longer_than_the_setting_says(api: TasksApi):
    hasty = api.with_config(wait_seconds=0)
    assert await asyncio.wait_for(hasty.pull("wait=600"), timeout=20) == []


async def test_a_released_task_wakes_a_waiting_pull(api: TasksApi):
    await api.plan("a")
    await api.pull(client="one")
    waiting = asyncio.create_task(api.pull("wait=30", client="two"))
    await settle()
    await api.data("POST", f"{PROJECT}/tasks/a/pull/release", x_client_id="one")
    [task] = await asyncio.wait_for(waiting, timeout=20)
    assert task["pulled_by"] == "two"


async def test_a_waiting_pull_reserves_no_quota(api: TasksApi):
    with_limits = api.with_limits(quota=10)
    waiting = asyncio.create_task(with_limits.pull("wait=30&limit=10"))
    await settle()
    await api.plan("a")
    async with asyncio.timeout(20):
        got = [*await waiting, *await with_limits.pull("limit=10", client="two")]
    assert [task["task_id"] for task in got] == ["a"]

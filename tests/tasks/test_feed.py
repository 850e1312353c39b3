"""The change feed of a project: changes in commit order, and long polling."""

import asyncio
from datetime import timedelta
from typing import Any

from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite

FEED = f"{PROJECT}/changes"


async def feed(api: TasksApi, query: str = "", **said: str) -> dict[str, Any]:
    data: dict[str, Any] = await api.data("GET", f"{FEED}?{query}", **said)
    return data


async def wait_for_lines(api: TasksApi, query: str, **said: str) -> "asyncio.Task[dict[str, Any]]":
    """A request that waits for entries and has read the feed once."""
    waiting = asyncio.create_task(feed(api, query, **said))
    for _ in range(20):
        await asyncio.sleep(0.01)  # the database answers in its own time; the clock of the test does not move
    assert not waiting.done()
    return waiting


async def let_time_pass(api: TasksApi, waiting: "asyncio.Task[Any]") -> None:
    """Advance the clock until a waiting request is answered."""
    async with asyncio.timeout(20):
        while not waiting.done():
            await asyncio.sleep(0.02)
            api.clock.advance(seconds=1)


async def test_every_change_is_an_entry_in_order(api: TasksApi):
    await api.plan("a")
    await api.plan("b", queue="q1")
    await api.data("PUT", f"{PROJECT}/tasks/a", {"name": "Another"})
    said = await feed(api)
    assert said["changes"][1] == {
        "version": 2,
        "task_id": "b",
        "queue_id": "q1",
        "kind": "created",
        "status": "pending",
        "holder": None,
        "by": "root",
        "at": "2026-01-01T00:00:00.000Z",
    }
    told = [(line["version"], line["task_id"], line["queue_id"], line["kind"]) for line in said["changes"]]
    assert told == [(1, "a", None, "created"), (2, "b", "q1", "created"), (3, "a", None, "edited")]
    assert (said["next"], said["latest"], said["missed"]) == (3, 3, False)


async def test_a_page_goes_on_where_the_last_one_ended(api: TasksApi):
    await api.plan(*"abc")
    first = await feed(api, "limit=2")
    assert ([line["version"] for line in first["changes"]], first["next"], first["latest"]) == ([1, 2], 2, 3)
    second = await feed(api, f"limit=2&after={first['next']}")
    assert ([line["version"] for line in second["changes"]], second["next"]) == ([3], 3)
    third = await feed(api, f"after={second['next']}")
    assert third == {"changes": [], "next": 3, "latest": 3, "missed": False}


@on_sqlite
async def test_a_hundred_entries_are_returned_by_default(api: TasksApi):
    many = [{"taskId": f"t{number}", "name": "n", "prompt": "p"} for number in range(150)]
    await api.data("POST", f"{PROJECT}/tasks/batch", {"tasks": many})
    assert len((await feed(api))["changes"]) == 100
    assert len((await feed(api, "limit=1000"))["changes"]) == 150


@on_sqlite
async def test_bad_numbers_are_refused_by_name(api: TasksApi):
    bad = {"limit": ("0", "1001", "x"), "after": ("-1", "x", str(2**70)), "wait": ("-1", "nan", "inf", "x")}
    for field, values in bad.items():
        for value in values:
            status, error = await api.error("GET", f"{FEED}?{field}={value}")
            assert (status, error["details"]["field"]) == (400, field)
    assert (await api.error("GET", f"{FEED}?holder=you"))[0] == 400


@on_sqlite
async def test_responses_are_not_cached(api: TasksApi):
    answer = await api.call("GET", FEED)
    assert answer.headers["cache-control"] == "no-store"


async def test_an_edit_of_a_held_task_names_its_holder(api: TasksApi):
    await api.plan("a")
    await api.pull(client="one")
    await api.data("PUT", f"{PROJECT}/tasks/a", {"name": "Another"})
    line = (await feed(api))["changes"][-1]
    assert (line["kind"], line["holder"], line["by"]) == ("edited", "one", "root")


async def test_a_holder_sees_changes_of_its_tasks_only(api: TasksApi):
    await api.plan(*"abcd")
    await api.pull("limit=2", client="one")
    await api.pull("limit=2", client="two")
    for task_id in "abcd":
        await api.data("DELETE", f"{PROJECT}/tasks/{task_id}")
    said = await feed(api, "holder=me", key="anna", x_client_id="two")
    assert [(line["task_id"], line["kind"], line["holder"]) for line in said["changes"]] == [
        ("c", "deleted", "two"),
        ("d", "deleted", "two"),
    ]
    assert (said["next"], said["latest"]) == (8, 8)
    one = await feed(api, "holder=me&limit=1", x_client_id="one")
    assert ([line["task_id"] for line in one["changes"]], one["next"]) == (["a"], 5)
    nothing = await feed(api, "holder=me", key="bert")
    assert (nothing["changes"], nothing["next"]) == ([], 8)


class TestWaiting:
    async def test_a_waiting_request_returns_on_every_kind_of_change(self, api: TasksApi):
        after = 0
        await api.plan("a")
        for verb, path, body in (
            ("PUT", f"{PROJECT}/tasks/a", {"name": "Another"}),
            ("POST", f"{PROJECT}/tasks/a/pull/reset", None),
            ("DELETE", f"{PROJECT}/tasks/a", None),
        ):
            await api.pull(client="one")
            after = (await feed(api, f"after={after}"))["next"]
            waiting = await wait_for_lines(api, f"after={after}&wait=30")
            await api.data(verb, path, body)
            said = await asyncio.wait_for(waiting, timeout=20)
            assert [line["version"] for line in said["changes"]] == [after + 1]

    async def test_nothing_comes_and_the_time_is_over(self, api: TasksApi):
        start = api.clock.now()
        waiting = asyncio.create_task(feed(api, "wait=5"))
        await let_time_pass(api, waiting)
        assert api.clock.now() - start >= timedelta(seconds=5)
        said = await waiting
        assert (said["changes"], said["next"]) == ([], 0)

    @on_sqlite
    async def test_nobody_waits_longer_than_the_setting_says(self, api: TasksApi):
        said = await asyncio.wait_for(feed(api.with_config(wait_seconds=0), "wait=600"), timeout=20)
        assert said["changes"] == []

    async def test_a_holder_is_not_notified_of_tasks_of_others(self, api: TasksApi):
        await api.plan("a", "b")
        await api.pull("limit=1", client="one")
        await api.pull("limit=1", client="two")
        waiting = await wait_for_lines(api, "wait=30&holder=me", x_client_id="two")
        await api.data("DELETE", f"{PROJECT}/tasks/a")
        await asyncio.sleep(0.05)
        await api.data("DELETE", f"{PROJECT}/tasks/b")
        said = await asyncio.wait_for(waiting, timeout=20)
        assert [line["task_id"] for line in said["changes"]] == ["b"]

    async def test_a_waiting_request_holds_no_connection(self, api: TasksApi):
        waiting = [await wait_for_lines(api, "wait=30") for _ in range(3)]
        waiting += [asyncio.create_task(feed(api, "wait=30")) for _ in range(30)]
        await asyncio.sleep(0.05)
        await api.plan("a")
        said = await asyncio.wait_for(asyncio.gather(*waiting), timeout=20)
        assert {one["next"] for one in said} == {1}

    async def test_a_project_that_is_deleted_meanwhile_is_not_found(self, api: TasksApi):
        waiting = asyncio.create_task(api.error("GET", f"{FEED}?wait=60"))
        await asyncio.sleep(0.1)
        await api.data("DELETE", PROJECT)
        await let_time_pass(api, waiting)
        status, error = await waiting
        assert (status, error["details"]["code"]) == (404, "PROJECT_NOT_FOUND")


class TestMissing:
    async def test_deleted_entries_are_reported_as_missed(self, api: TasksApi):
        hasty = api.with_config(history_days=1)
        await hasty.plan("a", "b")
        hasty.clock.advance(seconds=86401)
        await hasty.plan("c")
        await hasty.run_periodic_tasks("forget-pulls")
        late = await feed(hasty)
        assert ([line["version"] for line in late["changes"]], late["missed"]) == ([3], True)
        assert (await feed(hasty, "after=2"))["missed"] is False
        hasty.clock.advance(seconds=86401)
        await hasty.run_periodic_tasks("forget-pulls")
        assert await feed(hasty, "after=2") == {"changes": [], "next": 3, "latest": 3, "missed": True}
        assert (await feed(hasty, "after=3"))["missed"] is False

    async def test_an_unknown_version_is_reported_as_missed(self, api: TasksApi):
        await api.plan("a")
        said = await asyncio.wait_for(feed(api, "after=99&wait=30"), timeout=20)
        assert said == {"changes": [], "next": 1, "latest": 1, "missed": True}


@on_sqlite
async def test_only_who_may_open_the_project_reads_its_feed(api: TasksApi):
    assert (await api.error("GET", FEED, key="elsewhere"))[0] == 403
    assert await api.data("GET", FEED, key="bound")
    status, error = await api.error("GET", "/projects/p9/changes")
    assert (status, error["details"]["code"]) == (404, "PROJECT_NOT_FOUND")

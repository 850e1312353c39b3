"""The feed of a project: what changed, in the order in which it happened, and waiting for what comes next."""

import asyncio
from datetime import timedelta
from typing import Any

from tests.tasks.conftest import PROJECT, Room

FEED = f"{PROJECT}/changes"


async def feed(room: Room, query: str = "", **said: str) -> dict[str, Any]:
    data: dict[str, Any] = await room.data("GET", f"{FEED}?{query}", **said)
    return data


async def wait_for_lines(room: Room, query: str, **said: str) -> "asyncio.Task[dict[str, Any]]":
    """Someone who waits for lines and has looked once already."""
    waiting = asyncio.create_task(feed(room, query, **said))
    for _ in range(20):
        await asyncio.sleep(0.01)  # the database answers in its own time; the clock of the test does not move
    assert not waiting.done()
    return waiting


async def let_time_pass(room: Room, waiting: "asyncio.Task[Any]") -> None:
    """Second after second, until someone who waits is answered."""
    async with asyncio.timeout(20):
        while not waiting.done():
            await asyncio.sleep(0.02)
            room.clock.advance(seconds=1)


async def test_every_change_is_a_line_in_order(room: Room):
    await room.plan("a")
    await room.plan("b", queue="q1")
    await room.data("PUT", f"{PROJECT}/tasks/a", {"name": "Another"})
    said = await feed(room)
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


async def test_a_page_goes_on_where_the_last_one_ended(room: Room):
    await room.plan(*"abc")
    first = await feed(room, "limit=2")
    assert ([line["version"] for line in first["changes"]], first["next"], first["latest"]) == ([1, 2], 2, 3)
    second = await feed(room, f"limit=2&after={first['next']}")
    assert ([line["version"] for line in second["changes"]], second["next"]) == ([3], 3)
    third = await feed(room, f"after={second['next']}")
    assert third == {"changes": [], "next": 3, "latest": 3, "missed": False}


async def test_a_hundred_lines_are_given_unless_asked_otherwise(room: Room):
    many = [{"taskId": f"t{number}", "name": "n", "prompt": "p"} for number in range(150)]
    await room.data("POST", f"{PROJECT}/tasks/batch", {"tasks": many})
    assert len((await feed(room))["changes"]) == 100
    assert len((await feed(room, "limit=1000"))["changes"]) == 150


async def test_bad_numbers_are_refused_by_name(room: Room):
    bad = {"limit": ("0", "1001", "x"), "after": ("-1", "x", str(2**70)), "wait": ("-1", "nan", "inf", "x")}
    for field, values in bad.items():
        for value in values:
            status, error = await room.error("GET", f"{FEED}?{field}={value}")
            assert (status, error["details"]["field"]) == (400, field)
    assert (await room.error("GET", f"{FEED}?holder=you"))[0] == 400


async def test_answers_are_not_stored_on_the_way(room: Room):
    answer = await room.call("GET", FEED)
    assert answer.headers["cache-control"] == "no-store"


async def test_an_edit_of_a_held_task_names_its_holder(room: Room):
    await room.plan("a")
    await room.pull(client="one")
    await room.data("PUT", f"{PROJECT}/tasks/a", {"name": "Another"})
    line = (await feed(room))["changes"][-1]
    assert (line["kind"], line["holder"], line["by"]) == ("edited", "one", "root")


async def test_a_holder_hears_of_what_is_in_its_hands_and_nothing_else(room: Room):
    await room.plan(*"abcd")
    await room.pull("limit=2", client="one")
    await room.pull("limit=2", client="two")
    for task_id in "abcd":
        await room.data("DELETE", f"{PROJECT}/tasks/{task_id}")
    said = await feed(room, "holder=me", key="anna", x_client_id="two")
    assert [(line["task_id"], line["kind"], line["holder"]) for line in said["changes"]] == [
        ("c", "deleted", "two"),
        ("d", "deleted", "two"),
    ]
    assert (said["next"], said["latest"]) == (8, 8)
    one = await feed(room, "holder=me&limit=1", x_client_id="one")
    assert ([line["task_id"] for line in one["changes"]], one["next"]) == (["a"], 5)
    nothing = await feed(room, "holder=me", key="bert")
    assert (nothing["changes"], nothing["next"]) == ([], 8)


class TestWaiting:
    async def test_who_waits_hears_of_every_kind_of_change(self, room: Room):
        after = 0
        await room.plan("a")
        for verb, path, body in (
            ("PUT", f"{PROJECT}/tasks/a", {"name": "Another"}),
            ("POST", f"{PROJECT}/tasks/a/pull/reset", None),
            ("DELETE", f"{PROJECT}/tasks/a", None),
        ):
            await room.pull(client="one")
            after = (await feed(room, f"after={after}"))["next"]
            waiting = await wait_for_lines(room, f"after={after}&wait=30")
            await room.data(verb, path, body)
            said = await asyncio.wait_for(waiting, timeout=20)
            assert [line["version"] for line in said["changes"]] == [after + 1]

    async def test_nothing_comes_and_the_time_is_over(self, room: Room):
        start = room.clock.now()
        waiting = asyncio.create_task(feed(room, "wait=5"))
        await let_time_pass(room, waiting)
        assert room.clock.now() - start >= timedelta(seconds=5)
        said = await waiting
        assert (said["changes"], said["next"]) == ([], 0)

    async def test_nobody_waits_longer_than_the_setting_says(self, room: Room):
        said = await asyncio.wait_for(feed(room.with_rules(wait_seconds=0), "wait=600"), timeout=20)
        assert said["changes"] == []

    async def test_a_holder_is_not_woken_by_what_others_hold(self, room: Room):
        await room.plan("a", "b")
        await room.pull("limit=1", client="one")
        await room.pull("limit=1", client="two")
        waiting = await wait_for_lines(room, "wait=30&holder=me", x_client_id="two")
        await room.data("DELETE", f"{PROJECT}/tasks/a")
        await asyncio.sleep(0.05)
        await room.data("DELETE", f"{PROJECT}/tasks/b")
        said = await asyncio.wait_for(waiting, timeout=20)
        assert [line["task_id"] for line in said["changes"]] == ["b"]

    async def test_who_waits_keeps_no_connection(self, room: Room):
        waiting = [await wait_for_lines(room, "wait=30") for _ in range(3)]
        waiting += [asyncio.create_task(feed(room, "wait=30")) for _ in range(30)]
        await asyncio.sleep(0.05)
        await room.plan("a")
        said = await asyncio.wait_for(asyncio.gather(*waiting), timeout=20)
        assert {one["next"] for one in said} == {1}

    async def test_a_project_that_is_deleted_meanwhile_is_not_found(self, room: Room):
        waiting = asyncio.create_task(room.error("GET", f"{FEED}?wait=60"))
        await asyncio.sleep(0.1)
        await room.data("DELETE", PROJECT)
        await let_time_pass(room, waiting)
        status, error = await waiting
        assert (status, error["details"]["code"]) == (404, "PROJECT_NOT_FOUND")


class TestMissing:
    async def test_who_comes_after_lines_were_forgotten_is_told(self, room: Room):
        hasty = room.with_rules(history_days=1)
        await hasty.plan("a", "b")
        hasty.clock.advance(seconds=86401)
        await hasty.plan("c")
        await hasty.tidy("forget-pulls")
        late = await feed(hasty)
        assert ([line["version"] for line in late["changes"]], late["missed"]) == ([3], True)
        assert (await feed(hasty, "after=2"))["missed"] is False
        hasty.clock.advance(seconds=86401)
        await hasty.tidy("forget-pulls")
        assert await feed(hasty, "after=2") == {"changes": [], "next": 3, "latest": 3, "missed": True}
        assert (await feed(hasty, "after=3"))["missed"] is False

    async def test_a_number_that_was_never_given_is_of_another_history(self, room: Room):
        await room.plan("a")
        said = await asyncio.wait_for(feed(room, "after=99&wait=30"), timeout=20)
        assert said == {"changes": [], "next": 1, "latest": 1, "missed": True}


async def test_only_who_may_open_the_project_reads_its_feed(room: Room):
    assert (await room.error("GET", FEED, key="elsewhere"))[0] == 403
    assert await room.data("GET", FEED, key="bound")
    status, error = await room.error("GET", "/projects/p9/changes")
    assert (status, error["details"]["code"]) == (404, "PROJECT_NOT_FOUND")

"""Checks for changes: what polling clients call instead of reading everything again."""

from urllib.parse import quote

from penstock.tasks.api.views import format_time
from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite

PLACES = ("/projects", f"{PROJECT}/queues", f"{PROJECT}/tasks", f"{PROJECT}/queues/q1/tasks")
SECOND = 1_767_225_600  # 2026-01-01T00:00:00Z, the start of the test clock


async def changed(api: TasksApi, since: object, key: str = "root") -> list[bool]:
    """The response of each of PLACES."""
    answers = []
    for place in PLACES:
        data = await api.data("GET", f"{place}/check?since={quote(str(since))}", key=key)
        assert data["has_changes"] is data["hasChanges"] is data["changed"]
        answers.append(data["changed"])
    return answers


async def test_a_check_tells_when_the_last_change_was(api: TasksApi):
    api.clock.advance(seconds=1)
    await api.submit({"id": "t1"})
    api.clock.advance(seconds=9)
    for place in PLACES:
        assert await api.data("GET", f"{place}/check?since={SECOND}") == {
            "has_changes": True,
            "hasChanges": True,
            "changed": True,
            "version": (SECOND + 1) * 1000,
            "count": 1,
            "last_updated_at": "2026-01-01T00:00:01.000Z",
            "checked_at": "2026-01-01T00:00:10.000Z",
        }


async def test_the_time_of_a_check_can_be_sent_back(api: TasksApi):
    api.clock.advance(seconds=1.234567)
    await api.submit({"id": "t1"})
    for place in PLACES:
        told = (await api.data("GET", f"{place}/check?since=0"))["last_updated_at"]
        assert (await api.data("GET", f"{place}/check?since={told}"))["changed"] is False, place
    api.clock.advance(seconds=0.001)
    await api.submit({"id": "t1", "status": "done"})
    assert await changed(api, "2026-01-01T00:00:01.234Z") == [True] * 4


@on_sqlite
async def test_a_time_has_several_formats(api: TasksApi):
    earlier = [SECOND - 1, (SECOND - 1) * 1000, "2025-12-31T23:59:59Z", "2026-01-01T07:59:59.999+08:00"]
    the_same = [SECOND, SECOND * 1000, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00", "2026-01-01T08:00:00+08:00"]
    for since in earlier:
        assert await changed(api, since) == [True] * 4, since
    for since in the_same:
        assert await changed(api, since) == [False] * 4, since


@on_sqlite
async def test_a_time_that_is_none_is_refused(api: TasksApi):
    for place in PLACES:
        for query in ("?since=", "?since=soon", "?since=2026-13-01", "?since=1e400", "?since=9" + "9" * 30):
            status, error = await api.error("GET", f"{place}/check{query}")
            assert (status, error["code"]) == (400, "VALIDATION_ERROR"), (place, query)
            assert error["details"]["field"] == "since"


async def test_each_check_covers_its_own_scope(api: TasksApi):
    async def after(method: str, path: str, body: object = None) -> list[bool]:
        before = api.clock.now().isoformat()
        api.clock.advance(seconds=1)
        await api.data(method, path, body)
        return await changed(api, before)

    everywhere = [True, True, True, True]
    task = {"taskId": "t1", "name": "n", "prompt": "p"}
    assert await after("POST", f"{PROJECT}/queues/q1/tasks", task) == everywhere
    assert await after("PUT", f"{PROJECT}/queues/q1/tasks/t1", {"name": "m"}) == everywhere
    assert await after("PATCH", "/tasks/p1/q1/t1/status", {"status": "running"}) == everywhere
    assert await after("POST", "/tasks/p1/q1/t1/message", {"role": "user", "content": "c"}) == everywhere
    assert await after("POST", "/tasks/p1/q1/t1/log", {"content": "c"}) == [False, True, False, True]
    assert await after("DELETE", f"{PROJECT}/queues/q1/tasks/t1") == everywhere
    assert await after("POST", f"{PROJECT}/tasks", {**task, "taskId": "t2"}) == [True, False, True, False]
    assert await after("POST", f"{PROJECT}/tasks/t2/move", {"queue_id": "q1"}) == everywhere
    assert await after("PUT", f"{PROJECT}/queues/q1", {"name": "n"}) == [False, True, False, True]
    assert await after("POST", f"{PROJECT}/queues", {"queue_id": "q2", "name": "n"}) == [True, True, False, False]
    assert await after("PUT", PROJECT, {"name": "n"}) == [True, False, False, False]
    assert await after("PUT", f"{PROJECT}/metadata", {"notes": "n"}) == [True, False, False, False]
    assert await after("GET", PROJECT) == [False] * 4
    assert await after("DELETE", f"{PROJECT}/queues/q2") == [True, True, True, False]
    await api.run_jobs()
    before = api.clock.now()
    assert await changed(api, before.timestamp() - 0.5) == [True, True, True, False]


async def test_a_push_that_drops_a_task_is_a_change(api: TasksApi):
    await api.submit({"id": "t1"}, {"id": "t2"})
    api.clock.advance(seconds=1)
    await api.submit({"id": "t1"})
    assert await changed(api, SECOND) == [True] * 4


async def test_a_bound_key_sees_its_own_project_only(api: TasksApi):
    await api.make_project("p2")
    api.clock.advance(seconds=1)
    await api.make_project("p3")
    path = f"/projects/check?since={SECOND}"
    assert (await api.data("GET", path))["changed"] is True
    assert (await api.data("GET", path, key="elsewhere"))["changed"] is False
    api.clock.advance(seconds=1)
    await api.data("DELETE", "/projects/p2")
    await api.run_jobs()
    told = await api.data("GET", path, key="elsewhere")
    assert (told["changed"], told["last_updated_at"]) == (True, "2026-01-01T00:00:02.000Z")


@on_sqlite
async def test_a_key_of_an_unknown_project_sees_no_change(api: TasksApi):
    told = await api.data("GET", "/projects/check?since=0", key="elsewhere")
    assert (told["changed"], told["version"], told["count"]) == (False, 0, 0)
    assert told["last_updated_at"] == told["checked_at"]


async def test_a_check_needs_no_parameters(api: TasksApi):
    await api.plan("a", queue="q1")
    versions = []
    for _ in range(2):
        api.clock.advance(seconds=1.5)
        await api.submit({"id": "b"})
        told = [await api.data("GET", f"{place}/check") for place in PLACES]
        assert [one["count"] for one in told] == [1, 1, 2, 2]
        assert "has_changes" not in told[0]
        assert {one["last_updated_at"] for one in told} == {format_time(api.clock.now())}
        versions.append({one["version"] for one in told})
    assert versions == [{1767225601500}, {1767225603000}]

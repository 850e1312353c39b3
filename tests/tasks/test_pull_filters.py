"""The filters of a pull, alone and combined; a bad value is named."""

from datetime import timedelta
from urllib.parse import quote

from penstock.kernel.clock import ManualClock
from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite


async def pulled(api: TasksApi, query: str) -> list[str]:
    """The ids that a pull finds, sorted; they are released at once."""
    data = await api.data("GET", f"{PROJECT}/tasks/pull?{query}&limit=100", x_client_id="w")
    return sorted(task["task_id"] for task in data["tasks"])


def moment(clock: ManualClock) -> str:
    return quote(clock.now().isoformat())


class TestStatus:
    async def test_any_status_unless_asked_otherwise_the_most_urgent_first(self, api: TasksApi):
        await api.plan("a")
        await api.plan("b", status="error")
        await api.plan("c", status="done", priority=3)
        await api.plan("d", priority=2)
        assert [task["task_id"] for task in await api.pull("limit=3")] == ["c", "d", "a"]
        assert await pulled(api, "") == ["b"]

    async def test_any_status_can_be_asked_for(self, api: TasksApi):
        for status in ("pending", "running", "done", "error", "cancelled"):
            await api.plan(status, status=status)
        assert await pulled(api, "status=error") == ["error"]
        assert await pulled(api, "status=done,CANCELLED") == ["cancelled", "done"]
        assert await pulled(api, "status=running") == ["running"]

    @on_sqlite
    async def test_a_status_that_is_none_is_named(self, api: TasksApi):
        status, error = await api.error("GET", f"{PROJECT}/tasks/pull?status=lost")
        assert (status, error["code"]) == (400, "VALIDATION_ERROR")
        assert error["details"]["field"].startswith("status")


class TestTags:
    async def test_any_of_the_tags_in_any_case_is_enough(self, api: TasksApi):
        await api.plan("ab", tags=["a", "B"])
        await api.plan("a", tags=[" A "])
        await api.plan("b", tags=["b"], status="error")
        await api.plan("c", tags=["c"], priority=1)
        await api.plan("none")
        assert await pulled(api, "tags=C") == ["c"]
        assert [task["task_id"] for task in await api.pull("tags=B,a&limit=2")] == ["ab", "a"]
        assert await pulled(api, "tags=a,b,c") == ["b"]

    async def test_by_tag_the_most_urgent_comes_first_too(self, api: TasksApi):
        await api.plan("low", tags=["t"], priority=1)
        await api.plan("high", tags=["t"], priority=10)
        data = await api.pull("tags=t&limit=1")
        assert [task["task_id"] for task in data] == ["high"]

    async def test_an_edit_of_tags_changes_what_is_found(self, api: TasksApi):
        await api.plan("a", tags=["old"])
        await api.data("PUT", f"{PROJECT}/tasks/a", {"tags": ["new", "نسخة", "标签"]})
        assert await pulled(api, "tags=old") == []
        assert await pulled(api, f"tags={quote('标签')},{quote('نسخة')}") == ["a"]


class TestTimes:
    async def test_created_from_then_on_and_before_then(self, api: TasksApi, clock: ManualClock):
        await api.plan("early")
        clock.advance(seconds=60)
        border = moment(clock)
        await api.plan("late")
        clock.advance(seconds=0.0005)
        await api.plan("in-the-same-millisecond")
        clock.advance(seconds=0.001)
        await api.plan("last")
        assert await pulled(api, f"created_before={border}") == ["early", "in-the-same-millisecond", "late"]
        assert await pulled(api, f"created_after={border}") == ["last"]

    async def test_modified_and_since_ask_when_the_server_wrote_last(self, api: TasksApi, clock: ManualClock):
        await api.plan("untouched", "edited")
        clock.advance(seconds=60)
        border = moment(clock)
        clock.advance(seconds=60)
        await api.data("PUT", f"{PROJECT}/tasks/edited", {"name": "new"})
        assert await pulled(api, f"modified_before={border}") == ["untouched"]
        assert await pulled(api, f"since={moment(clock)}") == ["edited"]

    @on_sqlite
    async def test_times_may_be_numbers(self, api: TasksApi, clock: ManualClock):
        await api.plan("a")
        later = int((clock.now() + timedelta(hours=1)).timestamp())
        assert await pulled(api, f"since={later}") == []
        assert await pulled(api, f"modified_before={later * 1000}") == ["a"]

    async def test_inside_a_range_the_most_urgent_comes_first(self, api: TasksApi, clock: ManualClock):
        await api.plan("low", priority=1)
        clock.advance(seconds=1)
        await api.plan("high", priority=10)
        start = quote("2025-12-31T00:00:00Z")
        tasks = await api.pull(f"created_after={start}&limit=2")
        assert [task["task_id"] for task in tasks] == ["high", "low"]

    async def test_a_version_asks_for_what_was_written_after_it(self, api: TasksApi):
        await api.plan("a", "b")
        version = (await api.data("PUT", f"{PROJECT}/tasks/a", {"name": "new"}))["version"]
        assert await pulled(api, f"version={version}") == []
        assert await pulled(api, f"version={version - 1}") == ["a"]

    async def test_what_a_queue_operation_changed_is_found_by_its_version(self, api: TasksApi):
        await api.submit({"id": "failed", "status": "error"})
        await api.plan("other", queue="q1")
        version = (await api.data("GET", PROJECT))["version"]
        await api.data("POST", f"{PROJECT}/queues/q1/reset-error")
        assert [task["task_id"] for task in await api.pull(f"version={version}")] == ["failed"]

    @on_sqlite
    async def test_a_time_that_is_none_is_named(self, api: TasksApi):
        for name in ("since", "created_after", "created_before", "modified_after", "modified_before"):
            for value in ("yesterday", "9" * 30, "0000-00-00"):
                status, error = await api.error("GET", f"{PROJECT}/tasks/pull?{name}={value}")
                assert (status, error["details"]["field"]) == (400, name), value


class TestPriority:
    async def test_a_number_is_exact_a_word_is_its_third_and_a_range_is_a_range(self, api: TasksApi):
        for priority in (1, 3, 4, 7, 8, 10):
            await api.plan(str(priority), priority=priority)
        assert await pulled(api, "priority=7") == ["7"]
        assert await pulled(api, "priority=high") == ["10", "8"]
        assert await pulled(api, "priority=3-5") == ["3", "4"]
        assert await pulled(api, "priority=low") == ["1"]

    @on_sqlite
    async def test_a_priority_that_is_none_is_named(self, api: TasksApi):
        for value in ("0", "11", "urgent", "8-5", "-", "5-", "٣"):
            status, error = await api.error("GET", f"{PROJECT}/tasks/pull?priority={quote(value)}")
            assert (status, error["details"]["field"]) == (400, "priority"), value


async def test_filters_work_together(api: TasksApi, clock: ManualClock):
    await api.plan("right", queue="q1", tags=["t"], priority="high")
    await api.plan("wrong-place", tags=["t"], priority="high")
    await api.plan("wrong-tag", queue="q1", tags=["u"], priority="high")
    await api.plan("wrong-priority", queue="q1", tags=["t"])
    border = moment(clock)
    clock.advance(seconds=1)
    last = moment(clock)
    clock.advance(seconds=1)
    await api.plan("too-late", queue="q1", tags=["t"], priority="high")
    query = f"queue=q1&tags=t&priority=high&status=pending&created_before={last}&since={border}"
    assert await pulled(api, query) == ["right"]


@on_sqlite
async def test_a_number_that_is_none_is_named(api: TasksApi):
    for query in ("limit=0", "limit=x", "limit=-1", "wait=-1", "wait=nan", "version=-1", "version=x"):
        status, error = await api.error("GET", f"{PROJECT}/tasks/pull?{query}")
        assert (status, error["details"]["field"]) == (400, query.partition("=")[0])
        assert error["details"]["all_errors"]


@on_sqlite
async def test_parsed_requests_are_cached_per_path(api: TasksApi) -> None:
    await api.make_project("p2")
    await api.plan("t1", "t2", "t3", queue="q1")
    for _ in range(2):
        assert len(await api.pull("limit=1")) == 1
        assert (await api.data("GET", "/projects/p2/tasks/pull?limit=1"))["tasks"] == []
        status, error = await api.error("GET", f"{PROJECT}/tasks/pull?limit=0")
        assert (status, error["details"]["field"]) == (400, "limit")
    assert [task["task_id"] for task in await api.pull("limit=1", queue="q1")] == ["t3"]

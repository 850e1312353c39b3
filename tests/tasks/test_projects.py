"""Projects: listing, creating and changing them."""

import asyncio
from urllib.parse import quote

from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite
from tests.tasks.records import audited


async def ids(api: TasksApi, query: str = "", key: str = "root") -> list[str]:
    data = await api.data("GET", f"/projects?{query}", key=key)
    return [item["project_id"] for item in data["items"]]


async def test_a_project_is_shown_with_all_its_fields(api: TasksApi):
    info = {"username": "anna", "hostname": "box", "project_path": "/src"}
    await api.submit(
        {"id": "t1"}, {"id": "t2", "status": "done"}, clientInfo=info, gitInfo={"repository": "r", "branch": "main"}
    )
    shown = await api.data("GET", PROJECT)
    assert shown == {
        "id": "p1",
        "project_id": "p1",
        "name": "P",
        "displayTitle": "P",
        "metadata": None,
        "clientInfo": info,
        "gitInfo": {"repository": "r", "branch": "main"},
        "conflict_policy": "overwrite",
        "merchant_id": None,
        "version": shown["version"],
        "queue_count": 1,
        "task_count": 2,
        "task_stats": {"total": 2, "pending": 1, "running": 0, "done": 1, "error": 0, "cancelled": 0},
        "unqueued_count": 0,
        "last_task_at": "2026-01-01T00:00:00.000Z",
        "created_at": "2026-01-01T00:00:00.000Z",
        "updated_at": "2026-01-01T00:00:00.000Z",
    }
    assert (await api.data("GET", "/projects"))["items"] == [shown]


async def test_the_project_with_the_newest_task_comes_first(api: TasksApi):
    for name in ("p2", "p3"):
        api.clock.advance(seconds=1)
        await api.make_project(name)
    assert await ids(api) == ["p3", "p2", "p1"]
    api.clock.advance(seconds=1)
    await api.submit({"id": "t1"})
    assert await ids(api) == ["p1", "p3", "p2"]


async def test_projects_come_in_pages(api: TasksApi):
    for number in range(2, 6):
        api.clock.advance(seconds=1)
        await api.make_project(f"p{number}")
    data = await api.data("GET", "/projects?page=2&pageSize=2")
    assert [item["id"] for item in data["items"]] == ["p3", "p2"]
    assert data["pagination"] == {"page": 2, "pageSize": 2, "total": 5, "totalPages": 3}
    assert (await api.data("GET", "/projects?page=9"))["items"] == []


@on_sqlite
async def test_a_page_out_of_range_is_refused_in_every_list(api: TasksApi):
    for path in ("/projects", f"{PROJECT}/queues", f"{PROJECT}/tasks", f"{PROJECT}/queues/q1/tasks"):
        for query in ("page=0", "page=-1", "page=x", "pageSize=0", "pageSize=-5"):
            status, error = await api.error("GET", f"{path}?{query}")
            assert (status, error["code"]) == (400, "VALIDATION_ERROR"), (path, query)
            assert error["details"]["field"] == query.partition("=")[0]
        assert (await api.data("GET", f"{path}?pageSize=101"))["pagination"]["pageSize"] == 100


async def test_a_search_is_for_any_case_and_has_no_wildcards(api: TasksApi):
    names = {"p2": "Alpha one", "p3": "über STRASSE", "p4": "Задача", "p5": r"100% a_b c\d"}
    for project_id, name in names.items():
        await api.make_project(project_id, name)
    wanted = {"alpha": "p2", "ALPHA": "p2", " alpha ": "p2", "ÜBER": "p3", "straße": "p3", "заДаЧа": "p4"}
    wanted |= {"%": "p5", "_": "p5", "\\": "p5", "nothing": ""}
    for search, found in wanted.items():
        data = await api.data("GET", f"/projects?search={quote(search)}")
        assert [item["id"] for item in data["items"]] == [found] * bool(found), search
        assert data["pagination"]["total"] == bool(found)


async def test_a_search_looks_at_the_custom_title_too(api: TasksApi):
    await api.make_project("p2", "Plain")
    await api.data("PUT", "/projects/p2/metadata", {"customTitle": "Grand Title"})
    assert await ids(api, "search=grand") == ["p2"]
    assert await ids(api, "search=plain") == ["p2"]


async def test_several_tags_must_all_be_there(api: TasksApi):
    for project_id, tags in (("p2", ["red", "big"]), ("p3", [" RED ", "red"]), ("p4", ["big", "Reddish"])):
        await api.make_project(project_id)
        await api.data("PUT", f"/projects/{project_id}/metadata", {"tags": tags})
    assert sorted(await ids(api, "tags=red")) == ["p2", "p3"]
    assert await ids(api, "tags=red,%20big,") == ["p2"]
    assert await ids(api, "tags=red&tags=big") == ["p2"]
    assert await ids(api, "tags=") == await ids(api)
    assert (await api.data("GET", "/projects?tags=red,big"))["pagination"]["total"] == 1


@on_sqlite
async def test_a_filter_out_of_bounds_is_refused(api: TasksApi):
    for query in (f"tags={'x' * 51}", "tags=" + ",".join(map(str, range(21))), f"search={'x' * 1001}"):
        status, error = await api.error("GET", f"/projects?{query}")
        assert (status, error["code"]) == (400, "VALIDATION_ERROR"), query


async def test_a_bound_key_sees_its_own_project_only(api: TasksApi):
    await api.make_project("p2")
    assert await ids(api, key="bound") == ["p1"]
    assert await ids(api, key="elsewhere") == ["p2"]
    assert (await api.data("GET", "/projects", key="bound"))["pagination"]["total"] == 1
    assert (await api.data("GET", PROJECT, key="bound"))["id"] == "p1"


ROUTES = [
    ("GET", "", None),
    ("PUT", "", {"name": "x"}),
    ("DELETE", "", None),
    ("GET", "/metadata", None),
    ("PUT", "/metadata", {"notes": "x"}),
    ("DELETE", "/metadata", None),
    ("GET", "/queues", None),
    ("POST", "/queues", {"queue_id": "q", "name": "x"}),
    ("GET", "/queues/q1", None),
    ("PUT", "/queues/q1", {"name": "x"}),
    ("DELETE", "/queues/q1", None),
    ("GET", "/tasks", None),
    ("GET", "/tasks/t1", None),
    ("GET", "/queues/q1/tasks", None),
    ("GET", "/queues/q1/tasks/t1", None),
    ("GET", "/queues/check?since=0", None),
    ("GET", "/tasks/check?since=0", None),
    ("GET", "/queues/q1/tasks/check?since=0", None),
]


@on_sqlite
async def test_a_foreign_project_is_refused(api: TasksApi):
    for method, path, body in ROUTES:
        status, error = await api.error(method, PROJECT + path, body, key="elsewhere")
        assert (status, error["code"], error["details"]["code"]) == (403, "FORBIDDEN", "OTHER_PROJECT"), path


@on_sqlite
async def test_an_unknown_project_is_not_found(api: TasksApi):
    for method, path, body in ROUTES:
        status, error = await api.error(method, f"/projects/nobody{path}", body)
        assert (status, error["code"], error["details"]["code"]) == (404, "RESOURCE_NOT_FOUND", "PROJECT_NOT_FOUND")
        assert error["details"]["project_id"] == "nobody", path


async def test_a_project_can_be_made_without_a_push(api: TasksApi):
    answer = await api.call("POST", "/projects", {"project_id": " p2 ", "name": " Two ", "conflict_policy": "reject"})
    assert answer.status == 201
    assert (answer.data["id"], answer.data["name"], answer.data["conflict_policy"]) == ("p2", "Two", "reject")
    assert await api.data("GET", "/projects/p2") == answer.data
    line, *_ = await audited(api, "tasks.create_project")
    assert (line.actor, line.target, line.detail["by"]) == ("key:k-root", "project:p2", "root")


async def test_a_project_cannot_be_made_twice(api: TasksApi):
    status, error = await api.error("POST", "/projects", {"project_id": "p1", "name": "x"})
    assert (status, error["code"], error["details"]["code"]) == (409, "DUPLICATE_KEY", "PROJECT_EXISTS")
    assert (await api.data("GET", PROJECT))["name"] == "P"


async def test_of_many_concurrent_creations_of_a_project_one_succeeds(api: TasksApi):
    asked = [api.call("POST", "/projects", {"project_id": "p2", "name": f"n{number}"}) for number in range(8)]
    statuses = sorted([answer.status for answer in await asyncio.gather(*asked)])
    assert statuses == [201] + [409] * 7


@on_sqlite
async def test_a_bound_key_makes_no_other_project(api: TasksApi):
    status, error = await api.error("POST", "/projects", {"project_id": "p3", "name": "x"}, key="elsewhere")
    assert (status, error["details"]["code"]) == (403, "OTHER_PROJECT")
    assert (await api.data("POST", "/projects", {"project_id": "p2", "name": "x"}, key="elsewhere"))["id"] == "p2"


BAD_PROJECTS = [
    ({"name": "x"}, "project_id"),
    ({"project_id": "p2"}, "name"),
    ({"project_id": "", "name": "x"}, "project_id"),
    ({"project_id": "p" * 256, "name": "x"}, "project_id"),
    ({"project_id": "a\nb", "name": "x"}, "project_id"),
    ({"project_id": "check", "name": "x"}, "project_id"),
    ({"project_id": "tags", "name": "x"}, "project_id"),
    ({"project_id": "p2", "name": "  "}, "name"),
    ({"project_id": "p2", "name": "x" * 1001}, "name"),
    ({"project_id": "p2", "name": "x", "conflict_policy": "merge"}, "conflict_policy"),
    ({"project_id": 7, "name": "x"}, "project_id"),
    ([], "body"),
]


@on_sqlite
async def test_a_project_that_does_not_fit_is_not_made(api: TasksApi):
    for body, field in BAD_PROJECTS:
        status, error = await api.error("POST", "/projects", body)
        assert (status, error["code"], error["details"]["field"]) == (400, "VALIDATION_ERROR", field), body
        assert error["details"]["all_errors"][0]["field"] == field
    assert await ids(api) == ["p1"]


async def test_a_name_in_any_script_survives(api: TasksApi):
    for number, name in enumerate(["🚀" * 255, "مشروع", "项" * 255, "e\u0301" * 100]):
        await api.make_project(f"name-{number}", name)
        assert (await api.data("GET", f"/projects/name-{number}"))["name"] == name


async def test_an_id_of_255_characters_can_be_opened(api: TasksApi):
    await api.make_project("项" * 255)
    assert (await api.data("GET", "/projects/" + "%E9%A1%B9" * 255))["id"] == "项" * 255


@on_sqlite
async def test_a_project_is_renamed_and_given_a_policy_each_alone(api: TasksApi):
    api.clock.advance(seconds=1)
    changed = await api.data("PUT", PROJECT, {"name": " New "})
    assert (changed["name"], changed["conflict_policy"]) == ("New", "overwrite")
    assert changed["updated_at"] == "2026-01-01T00:00:01.000Z"
    changed = await api.data("PUT", PROJECT, {"conflict_policy": "reject"})
    assert (changed["name"], changed["conflict_policy"]) == ("New", "reject")
    assert await api.data("GET", PROJECT) == changed
    assert await ids(api, "search=new") == ["p1"]
    assert [line.detail["changed"] for line in await audited(api, "tasks.change_project")] == [
        ["conflict_policy"],
        ["name"],
    ]


@on_sqlite
async def test_a_change_that_does_not_fit_changes_nothing(api: TasksApi):
    before = await api.data("GET", PROJECT)
    bad = [({}, "name"), ({"name": None}, "name"), ({"name": ""}, "name"), ({"name": "x" * 1001}, "name")]
    for body, field in [*bad, ({"conflict_policy": "merge"}, "conflict_policy")]:
        status, error = await api.error("PUT", PROJECT, body)
        assert (status, error["code"], error["details"]["field"]) == (400, "VALIDATION_ERROR", field), body
    assert await api.data("GET", PROJECT) == before

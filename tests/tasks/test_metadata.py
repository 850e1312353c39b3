"""Metadata of a project: title, notes, tags."""

from tests.tasks.conftest import PROJECT, TasksApi, on_sqlite
from tests.tasks.records import audited

METADATA = f"{PROJECT}/metadata"


async def test_metadata_is_kept_and_shown_in_camel_case(api: TasksApi):
    api.clock.advance(seconds=1)
    told = {"customTitle": "  My title ", "notes": " some\nlines ", "tags": [" a ", "b", "a"], "unknown": 1}
    shown = await api.data("PUT", METADATA, told)
    assert shown == {
        "projectId": "p1",
        "customTitle": "My title",
        "notes": "some\nlines",
        "tags": ["a", "b"],
        "createdAt": "2026-01-01T00:00:01.000Z",
        "updatedAt": "2026-01-01T00:00:01.000Z",
    }
    assert await api.data("GET", METADATA) == shown
    project = await api.data("GET", PROJECT)
    assert project["metadata"] == {"customTitle": "My title", "notes": "some\nlines", "tags": ["a", "b"]}
    assert (project["displayTitle"], project["name"]) == ("My title", "P")
    assert project["updated_at"] == "2026-01-01T00:00:01.000Z"


@on_sqlite
async def test_what_a_change_leaves_out_stays(api: TasksApi):
    await api.data("PUT", METADATA, {"customTitle": "T", "notes": "N", "tags": ["a"]})
    api.clock.advance(seconds=5)
    shown = await api.data("PUT", METADATA, {"notes": "other"})
    assert (shown["customTitle"], shown["notes"], shown["tags"]) == ("T", "other", ["a"])
    assert (shown["createdAt"], shown["updatedAt"]) == ("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:05.000Z")


async def test_null_and_blank_clear_a_field(api: TasksApi):
    await api.data("PUT", METADATA, {"customTitle": "T", "notes": "N", "tags": ["a"]})
    shown = await api.data("PUT", METADATA, {"customTitle": "  ", "notes": None, "tags": None})
    assert (shown["customTitle"], shown["notes"], shown["tags"]) == (None, None, [])
    assert (await api.data("GET", PROJECT))["displayTitle"] == "P"
    assert (await api.data("GET", "/projects?tags=a"))["items"] == []


@on_sqlite
async def test_without_metadata_every_field_is_null(api: TasksApi):
    answer = await api.call("GET", METADATA)
    nothing: object = {
        "projectId": "p1",
        "customTitle": None,
        "notes": None,
        "tags": [],
    }
    assert answer.data == nothing
    assert answer.json["message"] == "This project has no metadata."
    assert (await api.data("GET", PROJECT))["metadata"] is None


async def test_metadata_can_be_deleted_again_and_again(api: TasksApi):
    await api.data("PUT", METADATA, {"customTitle": "T", "tags": ["a"]})
    for _ in range(2):
        assert await api.data("DELETE", METADATA) is None
    assert "createdAt" not in await api.data("GET", METADATA)
    assert (await api.data("GET", PROJECT))["metadata"] is None
    assert (await api.data("GET", "/projects/tags"))["tags"] == []
    assert len(await audited(api, "tasks.delete_metadata")) == 1
    assert [line.detail["changed"] for line in await audited(api, "tasks.put_metadata")] == [["custom_title", "tags"]]


async def test_metadata_at_its_bounds_is_accepted(api: TasksApi):
    told = {"customTitle": "标" * 200, "notes": "📝" * 5000, "tags": [f"{number:🏷>50}" for number in range(20)]}
    shown = await api.data("PUT", METADATA, told)
    assert {name: shown[name] for name in told} == told


@on_sqlite
async def test_metadata_out_of_bounds_is_refused_by_field(api: TasksApi):
    await api.data("PUT", METADATA, {"notes": "kept"})
    bad: dict[str, list[object]] = {
        "customTitle": ["x" * 201, 7],
        "notes": ["x" * 5001, []],
        "tags": [["x"] * 21, "a,b", {}],
        "tags[0]": [["x" * 51], [" " * 51], [7]],
    }
    for field, values in bad.items():
        for value in values:
            status, error = await api.error("PUT", METADATA, {field.partition("[")[0]: value})
            assert (status, error["code"], error["details"]["field"]) == (400, "VALIDATION_ERROR", field), value
    status, error = await api.error("PUT", METADATA, {"customTitle": "x" * 201, "notes": "x" * 5001})
    assert [wrong["field"] for wrong in error["details"]["all_errors"]] == ["customTitle", "notes"]
    assert (await api.data("GET", METADATA))["notes"] == "kept"


async def test_tags_are_listed_most_used_first(api: TasksApi):
    for project_id, tags in (("p2", ["red", "big"]), ("p3", ["red", "old"]), ("p4", ["red", "old"])):
        await api.make_project(project_id)
        await api.data("PUT", f"/projects/{project_id}/metadata", {"tags": tags})
    assert await api.data("GET", "/projects/tags") == {"tags": ["red", "old", "big"], "count": 3}
    assert await api.data("GET", "/projects/tags?limit=1") == {"tags": ["red"], "count": 1}
    assert await api.data("GET", "/projects/tags", key="elsewhere") == {"tags": ["big", "red"], "count": 2}
    assert await api.data("GET", "/projects/tags", key="bound") == {"tags": [], "count": 0}


@on_sqlite
async def test_fifty_tags_are_listed_by_default(api: TasksApi):
    for number in range(6):
        await api.make_project(f"many-{number}")
        tags = [f"tag-{number}-{each}" for each in range(20)]
        await api.data("PUT", f"/projects/many-{number}/metadata", {"tags": tags})
    assert (await api.data("GET", "/projects/tags"))["count"] == 50
    assert (await api.data("GET", "/projects/tags?limit=100"))["count"] == 100
    assert (await api.data("GET", "/projects/tags?limit=101"))["count"] == 100
    for limit in ("0", "x"):
        status, error = await api.error("GET", f"/projects/tags?limit={limit}")
        assert (status, error["details"]["field"]) == (400, "limit")

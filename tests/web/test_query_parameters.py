"""Query strings of the whole app: raw UTF-8, and parameters that a route does not know."""

import pytest

from penstock.access.domain import Caller, Scope
from penstock.web.app import App, build_app
from penstock.wiring import Runtime
from tests.asgi import Response, call
from tests.fakes.authenticators import FixedCallers

TASK = {"taskId": "t1", "name": "搜索文献", "prompt": "p", "tags": ["fr"]}


@pytest.fixture
def app(runtime: Runtime) -> App:
    made = build_app(runtime)
    made.state.access = FixedCallers(root=Caller(name="root", user_id=1, scope=Scope.ADMIN, key_id="k-root"))
    return made


async def get(app: App, target: str, *, key: str = "root") -> Response:
    return await call(app, "GET", target, headers=[("x-api-key", key)])


async def make_task(app: App) -> None:
    headers = [("x-api-key", "root")]
    await call(app, "POST", "/api/v1/projects", {"project_id": "p1", "name": "项目"}, headers=headers)
    await call(app, "POST", "/api/v1/projects/p1/tasks", TASK, headers=headers)


@pytest.mark.parametrize("search", ["搜索", "%E6%90%9C%E7%B4%A2"])
async def test_a_search_for_chinese_text_finds_it_raw_or_encoded(app: App, search: str):
    await make_task(app)
    found = await get(app, f"/api/v1/projects/p1/tasks?search={search}")
    assert [task["task_id"] for task in found.data["items"]] == ["t1"]
    projects = await get(app, "/api/v1/projects?search=项目")
    assert projects.data["pagination"]["total"] == 1


@pytest.mark.parametrize(
    ("target", "meant"),
    [
        ("/api/v1/etl/tasks?project=1", "project_id"),
        ("/api/v1/webhooks?limits=5", "limit"),
        ("/api/v1/events/log?lmit=5", "limit"),
        ("/api/v1/audit?pagesize=5", "pageSize"),
        ("/api/v1/api-keys?pagesize=5", "pageSize"),
        ("/api/v1/projects/p1/changes?afer=5", "after"),
    ],
)
async def test_routes_of_ours_refuse_a_mistyped_parameter(app: App, target: str, meant: str):
    answer = await get(app, target)
    assert answer.status == 400
    assert f"did you mean {meant}?" in answer.body.decode()


async def test_routes_that_existing_clients_call_warn_and_answer(app: App):
    await make_task(app)
    answer = await get(app, "/api/v1/projects/p1/tasks?stauts=done&_=1")
    assert len(answer.data["items"]) == 1
    assert "Unknown query parameter ignored" in answer.headers["warning"]
    assert "warning" not in (await get(app, "/api/v1/projects/p1/tasks?status=pending")).headers


async def test_a_submit_ignores_fields_of_earlier_clients_and_warns_of_them(app: App, runtime: Runtime):
    await runtime.blobs.put("users/1/raw/3/a.md", b"text")
    body = {"project_id": 3, "filename": "a.md", "callback_url": "https://example.org"}
    answer = await call(app, "POST", "/api/v1/etl/submit", body, headers=[("x-api-key", "root")])
    assert answer.status == 202
    assert answer.json["status"] == "pending"
    assert answer.headers["warning"] == '299 - "Unknown field ignored: callback_url"'


async def test_a_pull_with_a_mistyped_filter_hands_out_nothing(app: App):
    await make_task(app)
    refused = await get(app, "/api/v1/projects/p1/tasks/pull?tag=fr")
    assert (refused.status, refused.error["code"]) == (400, "VALIDATION_ERROR")
    assert refused.error["details"]["field"] == "tag"
    assert "did you mean tags?" in refused.error["details"]["reason"]
    pulled = await get(app, "/api/v1/projects/p1/tasks/pull?tags=fr&client=anna")
    assert [task["task_id"] for task in pulled.data["tasks"]] == ["t1"]
    assert "client" in pulled.headers["warning"]


async def test_who_has_no_key_learns_that_first(app: App):
    assert (await get(app, "/api/v1/etl/tasks?project=1", key="nobody")).status == 401


async def test_probes_may_carry_any_parameter(app: App):
    assert (await get(app, "/livez?_=1")).status == 200

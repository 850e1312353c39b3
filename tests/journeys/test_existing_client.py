"""A client that was written for the existing push API works unchanged, over the wire, on both profiles.

The calls are those of that API: a push, messages, log lines and statuses in both forms, a pull, a push back in the
client's own queue and in that of the task, checks, statistics, metadata and tags.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from yarl import URL

from tests.journeys.command import Serving, run
from tests.journeys.profiles import ADMIN_KEY, Profile
from tests.tasks import older_store

TASK_FILE = ".flow/tasks.json"  # ids of that client are paths
QUEUE = quote(TASK_FILE, safe="")
IDS = {"project_id": "shop", "queue_id": TASK_FILE}
T = {
    "id", "name", "prompt", "spec_file", "status", "report", "tags", "source", "created_at", "updated_at",
    "server_modified_at", "pulled_at", "pulled_by", "priority",
}  # fmt: skip
STATS = {"total", "pending", "done", "error"}
E = {"total", "success", "failure"}
S = {"total_execution", "total_success", "total_failure", "success_rate"}


class ExistingClient:
    """Sends the requests of that client and reads its envelope."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def call(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, dict[str, Any]]:
        """Status and body of a response."""
        url = URL(f"{self._url}/api/v1{path}", encoded=True)
        sent = {"X-API-Key": ADMIN_KEY, **headers}
        async with self._session.request(method, url, json=body, headers=sent) as answer:
            return answer.status, await answer.json()

    async def data(self, method: str, path: str, body: object = None, *, status: int = 200) -> Any:
        """The data of a response with this status."""
        told, answer = await self.call(method, path, body)
        assert (told, answer["success"]) == (status, True), answer
        assert {"data", "message", "timestamp"} <= answer.keys()
        return answer["data"]

    async def error(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str, Any]:
        """Status, code and details of a refusal."""
        status, answer = await self.call(method, path, body, **headers)
        assert answer["success"] is False, answer
        return status, answer["error"]["code"], answer["error"].get("details", {})

    async def push(self, *tasks: dict[str, Any], **more: Any) -> Any:
        """Push the client's queue."""
        full = [{"name": f"Task {task['id']}", "prompt": "Do it.", "status": "pending", **task} for task in tasks]
        names = {"project_name": "Shop", "queue_name": "Tasks"}
        return await self.data("POST", "/submit", {**IDS, **names, "tasks": full, **more})

    async def task(self, task_id: str, *, place: str = f"/queues/{QUEUE}") -> Any:
        """One task in detail."""
        return await self.data("GET", f"/projects/shop{place}/tasks/{task_id}")


@pytest.fixture
async def client(profile: Profile, session: aiohttp.ClientSession) -> AsyncIterator[ExistingClient]:
    serving = Serving(**profile.settings, PULL_STATS_SECONDS="0")
    try:
        await serving.ready(session)
        yield ExistingClient(session, serving.url)
    finally:
        serving.kill()


async def test_its_stored_documents_and_keys_are_imported(client: ExistingClient, profile: Profile, tmp_path: Path):
    older_store.write(tmp_path, older_store.EXPORT)
    command = ("tasks", "import", str(tmp_path))
    done = run(*command, cwd=tmp_path, ENCRYPTION_KEY=older_store.ENCRYPTION_KEY, **profile.settings)
    assert done.returncode == 0, done.stderr
    assert "tasks                     7        7        0        0        0" in done.stdout
    key = older_store.SECRETS["of anna"]
    status, answer = await client.call("GET", f"{older_store.PROJECT}/queues/q%2F1/tasks?tags=FR", **{"X-API-Key": key})
    assert (status, [item["id"] for item in answer["data"]["items"]]) == (200, ["pushed"])
    again = run(*command, cwd=tmp_path, **profile.settings)
    assert "7 of tasks skipped: exists already" in again.stdout


async def test_an_existing_client_works_unchanged(client: ExistingClient):
    await pushes_its_queue(client)
    await reports_in_both_forms(client)
    await pulls_and_pushes_back(client)
    await pulls_in_batches(client)
    await checks_and_counts(client)
    await edits_on_the_server(client)
    await refusals_have_the_codes_it_knows(client)


async def pushes_its_queue(client: ExistingClient) -> None:
    said = [{"role": "USER", "content": "Hello", "createdAt": "2025-05-01T10:00:00.000Z", "session_id": "s1"}]
    logs = [{"content": "began"}, {"content": "ended"}]
    done = {"id": "a", "status": "Done", "spec_file": "docs/a.md", "messages": said, "logs": logs, "tags": ["Red"]}
    about = {"clientInfo": {"username": "ann", "hostname": "box", "project_path": "/shop"}, "meta": ["any"]}
    git = {"repository": " git@host:shop.git ", "branch": ""}
    told = await client.push(done, {"id": "b"}, {"id": "c"}, **about, gitInfo=git)
    assert {name: told[name] for name in ("tasks_count", "created_tasks", "updated_tasks")} == {
        "tasks_count": 3, "created_tasks": 3, "updated_tasks": 0,
    }  # fmt: skip
    told = await client.push({**done, "messages": [], "logs": []}, {"id": "c"}, {"id": "b"}, {"id": "d"}, **about)
    assert (told["created_tasks"], told["updated_tasks"]) == (0, 4)
    listed = await client.data("GET", f"/projects/shop/queues/{QUEUE}/tasks?pageSize=500")
    assert [item["id"] for item in listed["items"]] == ["a", "c", "b", "d"]
    assert listed["pagination"] == {"page": 1, "pageSize": 100, "total": 4, "totalPages": 1}
    task = await client.task("a")
    assert T | {"expires_at", "pull_history", "messages", "logs"} <= task.keys()
    assert (task["status"], task["spec_file"], task["tags"], task["source"]) == (
        "done",
        ["docs/a.md"],
        ["Red"],
        "client",
    )
    assert (task["priority"], task["pulled_at"], task["pull_history"]) == (None, None, [])
    [message] = task["messages"]
    assert (message["role"], message["created_at"]) == ("user", "2025-05-01T10:00:00.000Z")
    assert [line["content"] for line in task["logs"]] == ["ended", "began"]
    project = await client.data("GET", "/projects/shop")
    assert (project["displayTitle"], project["queue_count"], project["task_count"]) == ("Shop", 1, 4)
    assert project["gitInfo"]["repository"] == "git@host:shop.git"
    assert project["task_stats"].keys() >= STATS
    assert (await client.data("GET", "/projects"))["pagination"]["pageSize"] == 100


async def reports_in_both_forms(client: ExistingClient) -> None:
    path, ids = f"/tasks/shop/{QUEUE}/b", {**IDS, "task_id": "b"}
    for number, (place, more) in enumerate((("/tasks", ids), (path, {}))):
        said = await client.data("POST", f"{place}/message", {**more, "role": "User", "content": " Go. "})
        assert said.keys() >= {"message_id", "role", "content", "session_id", "created_at"}
        assert (said["message_id"], said["role"], said["content"], said["session_id"]) == (number, "USER", "Go.", None)
        line = await client.data("POST", f"{place}/log", {**more, "content": "A line."})
        assert (line["log_id"], line["content"]) == (number, "A line.")
        told = await client.data("PATCH", f"{place}/status", {**more, "status": "error"})
        assert (told["task_id"], told["status"]) == ("b", "ERROR")
        assert told["previous_status"] == ("PENDING", "ERROR")[number]
    assert [one["content"] for one in (await client.task("b"))["messages"]] == ["Go.", "Go."]
    assert (await client.error("PATCH", "/tasks/status", {**ids, "task_id": "x", "status": "done"}))[0] == 404


async def pulls_and_pushes_back(client: ExistingClient) -> None:
    """A task without a queue comes back in the client's queue, one of another queue too, and one of its own queue."""
    await client.data("POST", "/projects/shop/queues", {"queue_id": "other", "name": "Other"}, status=201)
    for place, task_id in (("", "loose"), ("/queues/other", "elsewhere"), (f"/queues/{QUEUE}", "own")):
        body = {"taskId": task_id, "name": task_id, "prompt": "Do it.", "priority": "high"}
        made = await client.data("POST", f"/projects/shop{place}/tasks", body, status=201)
        assert made.keys() >= {"task_id", "name", "status", "source", "created_at"}
        status, code, details = await client.error("POST", f"/projects/shop{place}/tasks", body)
        assert (status, code, details["task_id"]) == (409, "DUPLICATE_KEY", task_id)
    pulled = await client.data("GET", "/projects/shop/tasks/pull")
    assert (pulled["count"], pulled["pulled_count"]) == (3, 3)
    assert pulled["pulled_at"]
    assert all(T | {"task_id", "expires_at"} <= task.keys() for task in pulled["tasks"])
    assert (await client.data("GET", "/projects/shop/tasks/pull"))["tasks"] == []
    kept = [{"id": name} for name in ("a", "c", "d")]
    back = [{"id": name, "status": "done", "report": "r.md"} for name in ("loose", "elsewhere", "own")]
    await client.push({**kept[0], "status": "done"}, {"id": "b", "status": "error"}, *kept[1:], *back)
    for place, task_id in (("", "loose"), ("/queues/other", "elsewhere"), (f"/queues/{QUEUE}", "own")):
        task = await client.task(task_id, place=place)
        assert (task["status"], task["report"], task["pulled_status"]) == ("done", "r.md", "pulled")
        assert task["pulled_at"]
        history = await client.data("GET", f"/projects/shop{place}/tasks/{task_id}/pull/history")
        assert (history["total_pulls"], history["current_pull"]["pulled_by"]) == (1, task["pulled_by"])
        [line] = history["pull_history"]
        assert (line["released_at"], line["outcome"], line["pushed_by"]) == (None, "pushed", task["pulled_by"])
    stats = await client.data("GET", "/projects/shop/tasks/pull/stats")
    assert (stats["pulled"], stats["pulled_not_pushed"], stats["pull_success_rate"]) == (3, 0, 100.0)


async def pulls_in_batches(client: ExistingClient) -> None:
    for task_id in ("x", "y"):
        body = {"taskId": task_id, "name": task_id, "prompt": "Do it.", "tags": ["Urgent"]}
        await client.data("POST", "/projects/shop/tasks", body, status=201)
    batch = await client.data("POST", "/projects/shop/tasks/pull/batch", {"taskIds": ["x", "never"]})
    assert (batch["count"], batch["failed_count"], batch["failed"]) == (1, 1, batch["failed_tasks"])
    by_tag = await client.data("POST", "/projects/shop/tasks/pull/batch", {"filters": {"tags": ["urgent", "z"]}})
    assert [task["task_id"] for task in by_tag["tasks"]] == ["y"]
    pending = await client.data("GET", "/projects/shop/tasks/pull/pending?timeout=0")
    assert (pending["count"], pending["total"], pending["timeout_seconds"]) == (2, 2, 0)
    assert {task["type"] for task in pending["tasks"]} == {"project"}
    released = await client.data("POST", "/projects/shop/tasks/x/pull/release")
    assert (released["task_id"], released["released"]) == ("x", True)
    status, code, _ = await client.error("POST", "/projects/shop/tasks/x/pull/release")
    assert (status, code) == (400, "VALIDATION_ERROR")
    many = await client.data("POST", "/projects/shop/tasks/pull/release/batch", {"taskIds": ["y", "x"]})
    assert ([one["task_id"] for one in many["released"]], many["released_count"], many["failed_count"]) == (["y"], 1, 1)
    reset = await client.data("POST", "/projects/shop/tasks/y/pull/reset")
    assert (reset["task_id"], reset["pulled_at"]) == ("y", None)
    assert reset["reset_at"]
    for filters, ids in (("pulled_status=not_pulled", ["y", "x"]), ("pulled_status=pulled", ["loose"])):
        items = (await client.data("GET", f"/projects/shop/tasks?{filters}"))["items"]
        assert [item["task_id"] for item in items] == ids


async def checks_and_counts(client: ExistingClient) -> None:
    for place, count in (("/projects", 1), ("/projects/shop/queues", 2), (f"/projects/shop/queues/{QUEUE}/tasks", 7)):
        first = await client.data("GET", f"{place}/check")
        assert first["count"] == count
        at = datetime.fromisoformat(first["last_updated_at"])
        assert first["version"] == round((at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
    metadata = {"customTitle": " My shop ", "tags": [" Red ", "red", "BLUE", " "]}
    shown = await client.data("PUT", "/projects/shop/metadata", metadata)
    assert (shown["customTitle"], shown["tags"]) == ("My shop", ["red", "blue"])
    tags = await client.data("GET", "/projects/tags?limit=500")
    assert (sorted(tags["tags"]), tags["count"]) == (["blue", "red"], 2)
    assert len((await client.data("GET", "/projects?tags=RED,Blue&search=my%20SHOP"))["items"]) == 1
    assert await client.data("DELETE", "/projects/shop/metadata") is None
    assert (await client.data("GET", "/projects/shop/metadata")).keys() == {"projectId", "customTitle", "notes", "tags"}
    totals = await client.data("GET", "/stats")
    assert (totals["project_count"], totals["queue_count"], totals["task_count"]) == (1, 2, 8)
    system = await client.data("GET", "/stats/system")
    assert system["summary"].keys() == S
    assert (system["summary"]["total_execution"], system["summary"]["total_failure"]) == (4, 1)
    [day, *_] = system["daily_stats"]
    assert (day["execution"].keys(), day["task_status"].keys()) == (E, STATS)
    one = await client.data("GET", "/stats/project/shop")
    assert (one["project_name"], one["summary"]) == ("Shop", system["summary"])
    assert (await client.data("GET", "/stats/projects"))["projects"][0]["project_id"] == "shop"
    by_queue = await client.data("GET", "/stats/by-queue?projectId=shop")
    assert {one["queue_id"] for one in by_queue["queues"]} <= {TASK_FILE, "other"}
    assert (await client.data("GET", "/stats/by-client"))["clients"][0]["hostname"] == "box"
    assert len((await client.data("GET", "/stats/by-hour"))["hourly_stats"]) == 24
    assert (await client.data("GET", "/stats/error-types"))["error_types"][0].keys() == {
        "type", "count", "percentage", "label",
    }  # fmt: skip
    took = await client.data("GET", "/stats/execution-duration")
    assert took["summary"]["total_count"] == 4
    assert sum(one["count"] for one in took["distribution"]) == 4


async def edits_on_the_server(client: ExistingClient) -> None:
    edited = await client.data(
        "PUT", f"/projects/shop/queues/{QUEUE}/tasks/own", {"prompt": "Better.", "priority": None}
    )
    assert (edited["source"], edited["status"], edited["pulled_at"]) == ("server", "done", None)
    pulled = await client.data("GET", f"/projects/shop/queues/{QUEUE}/tasks/pull")
    assert [(task["task_id"], task["prompt"]) for task in pulled["tasks"]] == [("own", "Better.")]
    moved = await client.data("POST", "/projects/shop/tasks/x/move", {"queue_id": "other"})
    assert (moved["from"], moved["to"]) == ("project", "queue:other")
    assert (await client.error("POST", "/projects/shop/tasks/x/move", {"queue_id": "other"}))[:2] == (
        400, "VALIDATION_ERROR",
    )  # fmt: skip
    for operation, count in (("reset-error", "reset_tasks_count"), ("re-run", "rerun_tasks_count")):
        told = await client.data("POST", f"/projects/shop/queues/{QUEUE}/{operation}")
        assert told[count] > 0
    queue = await client.data("GET", f"/projects/shop/queues/{QUEUE}")
    assert (queue["last_operation"], queue["task_stats"]["pending"]) == ("re-run", 7)
    assert (await client.data("POST", f"/projects/shop/queues/{QUEUE}/tasks/a/re-run"))["rerun_at"]
    gone = await client.data("DELETE", f"/projects/shop/queues/{QUEUE}/tasks/a")
    assert (gone["task_id"], bool(gone["deleted_at"])) == ("a", True)
    for method in ("GET", "DELETE"):
        assert (await client.error(method, f"/projects/shop/queues/{QUEUE}/tasks/a"))[0] == 404
    renamed = await client.data("PUT", "/projects/shop", {"name": "New"})
    assert (renamed["id"], renamed["project_id"], renamed["name"]) == ("shop", "shop", "New")
    assert (await client.data("DELETE", f"/projects/shop/queues/{QUEUE}"))["queue_id"] == TASK_FILE
    assert (await client.data("DELETE", "/projects/shop"))["project_id"] == "shop"


async def refusals_have_the_codes_it_knows(client: ExistingClient) -> None:
    assert (await client.error("GET", "/projects", **{"X-API-Key": ""}))[:2] == (401, "INVALID_API_KEY")
    assert (await client.error("GET", "/projects", **{"X-API-Key": "sk-wrong"}))[:2] == (401, "INVALID_API_KEY")
    status, code, details = await client.error("POST", "/submit", {"tasks": []})
    assert (status, code) == (400, "VALIDATION_ERROR")
    assert {"project_id", "queue_id", "tasks"} <= {one["field"] for one in details["all_errors"]}
    status, code, details = await client.error("GET", "/projects/nowhere/queues/q/tasks/t")
    assert (status, code, details["project_id"]) == (404, "RESOURCE_NOT_FOUND", "nowhere")
    assert (await client.error("GET", "/projects?page=abc"))[:2] == (400, "VALIDATION_ERROR")
    assert (await client.error("GET", "/projects?pageSize=0"))[:2] == (400, "VALIDATION_ERROR")

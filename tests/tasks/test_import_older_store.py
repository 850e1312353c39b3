"""Importing the documents of the older store: what becomes of them, and what is reported."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.access import store as access_store
from penstock.access.credentials import hash_secret
from penstock.access.domain import Key, KeyState, Scope
from penstock.cli.tasks import app as command
from penstock.kernel.db import Db
from penstock.tasks.api import import_file
from penstock.tasks.api.import_file import ImportOptions, ImportReport, import_items, read_files
from penstock.tasks.import_tasks import Importer
from tests.tasks.conftest import TasksApi, on_sqlite
from tests.tasks.older_store import (
    BORN,
    ENCRYPTION_KEY,
    EXPORT,
    KEYS,
    PROJECT,
    PROJECT_OID,
    PROJECTS,
    QUEUE_TASKS,
    QUEUES,
    SECRETS,
    SPARE,
    as_array,
    as_lines,
    as_pretty_array,
    at,
    canonical,
    encrypted,
    write,
)


async def take_in(db: Db, paths: Sequence[Path], **options: Any) -> ImportReport:
    given = ImportOptions(**options)
    importer = Importer(by="cli:me", lease_seconds=3600)
    return await import_items(db, read_files(paths, given), given, importer)


def counts(report: ImportReport) -> dict[str, tuple[int, int, int, int, int]]:
    return {
        name: (one.read, one.created, one.updated, one.skipped.total(), one.bad) for name, one in sorted(report.items())
    }


ALL = {
    "apikeys": (2, 2, 0, 0, 0),
    "projectmetadatas": (2, 1, 0, 1, 0),
    "projects": (2, 2, 0, 0, 0),
    "queues": (1, 1, 0, 0, 0),
    "statisticslogs": (1, 0, 0, 1, 0),
    "tasks": (7, 7, 0, 0, 0),
    "users": (1, 0, 0, 1, 0),
}
AGAIN = {name: (read, 0, 0, read, 0) for name, (read, *_) in ALL.items()}


class TestWhatIsTaken:
    @pytest.mark.parametrize("form", [as_lines, as_array, as_pretty_array])
    @pytest.mark.parametrize("spelling", [lambda value: value, canonical], ids=["relaxed", "canonical"])
    async def test_every_collection_in_every_form_and_nothing_twice(
        self, db: Db, tmp_path: Path, form: Callable[[Sequence[Any]], str], spelling: Callable[[Any], Any]
    ):
        paths = write(tmp_path, {name: spelling(documents) for name, documents in EXPORT.items()}, form)
        first = await take_in(db, paths, encryption_key=ENCRYPTION_KEY)
        assert counts(first) == ALL
        assert first["projectmetadatas"].skipped == {"its project does not exist": 1}
        assert counts(await take_in(db, paths, encryption_key=ENCRYPTION_KEY)) == AGAIN

    async def test_a_project_keeps_its_names_times_and_metadata(self, api: TasksApi, tmp_path: Path):
        await take_in(api.db, write(tmp_path, EXPORT))
        project = await api.data("GET", PROJECT)
        assert (project["project_id"], project["name"], project["displayTitle"]) == ("docs/抓取", "抓取", "Title")
        assert project["metadata"]["tags"] == ["x"]
        assert project["clientInfo"]["username"] == "anna"
        assert project["gitInfo"] == {"repository": "r", "branch": "main"}
        assert (project["created_at"], project["last_task_at"]) == (BORN, "2024-02-03T04:05:06.000Z")
        assert (project["task_count"], project["unqueued_count"]) == (5, 1)  # the deleted one does not count
        queue = await api.data("GET", f"{PROJECT}/queues/q%2F1")
        assert (queue["name"], queue["last_operation"], queue["last_task_at"]) == (
            "First",
            "reset",
            "2024-02-03T04:05:06.000Z",
        )
        assert queue["meta"]["retries"] == 3

    async def test_a_pushed_task_keeps_its_messages_logs_and_times(self, api: TasksApi, tmp_path: Path):
        await take_in(api.db, write(tmp_path, EXPORT))
        task = await api.data("GET", f"{PROJECT}/queues/q%2F1/tasks/pushed")
        assert (task["name"], task["status"], task["report"], task["spec_file"]) == ("完成", "done", "r.md", ["a.md"])
        assert (task["source"], task["created_at"]) == ("client", BORN)
        [message] = task["messages"]
        assert (message["role"].upper(), message["session_id"], message["created_at"]) == ("USER", "s1", BORN)
        assert [line["created_at"] for line in task["logs"]] == [BORN]
        older = await api.data("GET", f"{PROJECT}/queues/q%2F1/tasks/older")
        assert (older["source"], older["created_at"]) == ("client", BORN)  # the queue's
        assert (await api.data("GET", f"{PROJECT}/tasks/alone"))["queue_id"] is None

    async def test_the_order_of_a_queue_is_kept(self, api: TasksApi, tmp_path: Path):
        await take_in(api.db, write(tmp_path, EXPORT))
        listed = await api.data("GET", f"{PROJECT}/queues/q%2F1/tasks")
        assert [one["id"] for one in listed["items"]] == ["pushed", "older", "planned", "held", "returned"]

    async def test_pulls_go_on_where_they_were(self, api: TasksApi, tmp_path: Path):
        await take_in(api.db, write(tmp_path, EXPORT))
        assert (await api.data("GET", f"{PROJECT}/tasks/returned"))["pull_state"] == "pulled"
        assert (await api.error("GET", f"{PROJECT}/queues/q%2F1/tasks/gone"))[0] in (404, 410)
        held = await api.data("GET", f"{PROJECT}/tasks/held")
        assert (held["pull_state"], held["pulled_by"]) == ("pulled_not_pushed", "bert")
        history = await api.data("GET", f"{PROJECT}/tasks/held/pull/history")
        assert len(history["pull_history"]) == 2
        offered = await api.data("GET", f"{PROJECT}/tasks/pull?limit=10")
        assert [task["task_id"] for task in offered["tasks"]] == ["planned"]
        assert offered["tasks"][0]["priority"] == 8
        pushed = await api.call("PATCH", "/tasks/docs%2F抓取/q%2F1/held/status", {"status": "done"}, key="bert")
        assert pushed.status == 200
        assert (await api.data("GET", f"{PROJECT}/tasks/held"))["pull_state"] == "pulled"

    async def test_what_changed_in_the_older_store_since_is_taken_too(self, api: TasksApi, tmp_path: Path):
        await take_in(api.db, write(tmp_path, {"p.json": PROJECTS, "q.json": QUEUES}))
        await api.submit({"id": "mine", "name": "n"}, project_id="docs/抓取", queue_id="q2")
        later = at("2099-01-01T00:00:00Z")
        changed = [
            {**one, "status": "error", "logs": [], "updated_at": later} if one["id"] in ("pushed", "held") else one
            for one in QUEUE_TASKS
        ]
        queues = [{**QUEUES[0], "name": "Renamed", "tasks": changed, "updatedAt": later}]
        report = await take_in(api.db, write(tmp_path, {"p.json": PROJECTS, "q.json": queues}))
        assert counts(report)["queues"] == (1, 0, 1, 0, 0)
        assert counts(report)["tasks"] == (6, 0, 2, 4, 0)  # the one without times of its own has the queue's
        assert report["tasks"].skipped["exists already and is kept: it was pulled, or changed here"] == 2
        task = await api.data("GET", f"{PROJECT}/queues/q%2F1/tasks/pushed")
        assert (task["status"], task["logs"], len(task["messages"])) == ("error", [], 1)
        assert (await api.data("GET", f"{PROJECT}/queues/q%2F1"))["name"] == "Renamed"


class TestKeys:
    async def stored(self, db: Db, name: str) -> Key | None:
        async with db.read() as tx:
            return await access_store.find_key(tx, hash_secret(SECRETS[name]))

    async def test_clients_keep_their_keys(self, db: Db, tmp_path: Path):
        await take_in(db, write(tmp_path, {"k.json": KEYS}), encryption_key=ENCRYPTION_KEY)
        key = await self.stored(db, "of anna")
        assert key is not None
        assert (key.name, key.project, key.scope) == ("of anna", "docs/抓取", Scope.WRITE)
        off = await self.stored(db, "off")
        assert off is not None
        assert off.state(off.created_at) is KeyState.REVOKED

    @on_sqlite
    async def test_any_text_may_be_the_encryption_key(self, db: Db, tmp_path: Path):
        text = encrypted(SECRETS["of anna"], hashlib.sha256(b"a passphrase").digest())
        report = await take_in(
            db, write(tmp_path, {"k.json": [{**KEYS[0], "key": text}]}), encryption_key="a passphrase"
        )
        assert counts(report)["apikeys"] == (1, 1, 0, 0, 0)

    @on_sqlite
    async def test_without_the_encryption_key_they_are_skipped_and_with_a_wrong_one_they_are_bad(
        self, db: Db, tmp_path: Path
    ):
        paths = write(tmp_path, {"k.json": KEYS})
        assert list((await take_in(db, paths))["apikeys"].skipped) == [
            "encrypted: set ENCRYPTION_KEY to the older store's"
        ]
        given = ImportOptions(encryption_key="wrong")
        problems = [item.problem for item in read_files(paths, given)]
        assert all("cannot be decrypted" in problem for problem in problems)
        assert not any(secret in problem for problem in problems for secret in SECRETS.values())


@on_sqlite
class TestProblems:
    async def test_a_task_of_a_queue_is_named_by_file_line_and_position(self, db: Db, tmp_path: Path):
        broken = [{**QUEUES[0], "tasks": [*QUEUE_TASKS[:2], {**SPARE, "id": "bad", "status": "lost"}]}]
        paths = write(tmp_path, {"projects.json": PROJECTS, "queues.json": broken})
        [problem] = [item for item in read_files(paths, ImportOptions()) if item.problem]
        assert (Path(problem.file).name, problem.line) == ("queues.json", 1)
        assert problem.problem.startswith("tasks[2]: status: ")
        assert counts(await take_in(db, paths))["tasks"] == (3, 2, 0, 0, 1)

    async def test_a_queue_whose_project_is_missing_says_what_to_do(self, db: Db, tmp_path: Path):
        [item] = read_files(write(tmp_path, {"queues.json": QUEUES}), ImportOptions())
        assert PROJECT_OID in item.problem
        assert "import `projects` too" in item.problem

    async def test_one_project_of_an_export(self, db: Db, tmp_path: Path):
        report = await take_in(db, write(tmp_path, EXPORT), project="empty", encryption_key=ENCRYPTION_KEY)
        assert counts(report)["projects"] == (2, 1, 0, 1, 0)
        assert counts(report)["tasks"] == (7, 0, 0, 7, 0)

    async def test_a_dry_run_reports_the_same_and_writes_nothing(
        self, api: TasksApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(import_file, "BATCH_ITEMS", 1)
        report = await take_in(api.db, write(tmp_path, EXPORT), encryption_key=ENCRYPTION_KEY, dry_run=True)
        assert counts(report) == ALL
        assert [one["id"] for one in (await api.data("GET", "/projects"))["items"]] == ["p1"]  # the fixture's


def test_the_command_takes_a_folder_and_reports_by_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PENSTOCK_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("ENCRYPTION_KEY", ENCRYPTION_KEY)
    monkeypatch.setattr(import_file, "BATCH_ITEMS", 2)
    export = tmp_path / "export"
    export.mkdir()
    write(export, EXPORT)
    done = CliRunner().invoke(command, ["import", str(export), "--json"])
    assert done.exit_code == 0, done.stderr
    collections = json.loads(done.stdout)["collections"]
    assert {name: one["created"] for name, one in collections.items()} == {
        name: created for name, (_, created, *_) in ALL.items()
    }
    again = CliRunner().invoke(command, ["import", str(export)])
    assert "7 of tasks skipped: exists already" in again.stdout
    assert ENCRYPTION_KEY not in done.stdout + done.stderr + again.stdout

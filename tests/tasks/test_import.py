"""Importing tasks in the plain form: one task per line, with the ids of its project and queue."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli.tasks import app as command
from penstock.kernel.clock import ManualClock
from penstock.kernel.db import Db
from penstock.tasks.api import import_documents, import_file
from penstock.tasks.api.import_file import ImportItem, ImportOptions, ImportReport, import_items, read_files
from penstock.tasks.domain import PullState, Side, Status, Task
from penstock.tasks.domain.imported import ImportedTask
from penstock.tasks.import_tasks import Importer
from penstock.tasks.store import projects, queues, task_lists, tasks
from tests.tasks.conftest import TasksApi, on_sqlite
from tests.tasks.records import audited, changes

LEAST = {"project_id": "p1", "task_id": "t1", "name": "One", "prompt": "Do it.", "status": "pending"}
FULL = {
    "_id": {"$oid": "65a000000000000000000001"},
    "project_id": "old",
    "project_name": "The old one",
    "queue_id": "q1",
    "queue_name": "First queue",
    "id": "t1",
    "name": "Grüße 👩‍🚀",
    "prompt": "世界",
    "status": "DONE",
    "report": "It went well.",
    "tags": ["a", "b"],
    "priority": {"$numberInt": "9"},
    "spec_file": "spec.md",
    "messages": [
        {"role": "user", "content": "Go on.", "session_id": "s1", "createdAt": {"$date": "2024-01-02T03:04:05.678Z"}},
        {"role": "ASSISTANT", "content": "I did."},
    ],
    "logs": [{"content": "started"}, "ended"],
    "created_at": {"$date": {"$numberLong": "1704164645000"}},
    "updated_at": "2024-01-03T00:00:00+08:00",
    "clientInfo": {"username": "anna", "hostname": "box", "project_path": "/x"},
    "gitInfo": {"repository": "r", "branch": ""},
    "something": {"else": 1},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "export.jsonl"


def export(file: Path, *lines: Mapping[str, Any] | str) -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    file.write_text("\n".join(texts), encoding="utf-8")
    return file


def read(file: Path, *lines: Mapping[str, Any] | str, project: str | None = None) -> list[ImportItem]:
    return list(read_files([export(file, *lines)], ImportOptions(project=project)))


def task_of(item: ImportItem) -> ImportedTask:
    assert isinstance(item.value, ImportedTask), item.problem
    return item.value


class Import:
    """Imports lines into a database; returns how many tasks were created, skipped and bad."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.told: list[int] = []

    async def __call__(self, db: Db, *lines: Mapping[str, Any] | str, dry_run: bool = False) -> tuple[int, int, int]:
        def tell(report: ImportReport) -> None:
            self.told.append(report.of("tasks").created)

        options, importer = ImportOptions(dry_run=dry_run), Importer(by="cli:me", lease_seconds=60)
        items = read_files([export(self.file, *lines)], options)
        report = (await import_items(db, items, options, importer, tell)).of("tasks")
        assert report.read == report.created + report.skipped.total() + report.bad
        return report.created, report.skipped.total(), report.bad


@pytest.fixture
def take_in(file: Path) -> Import:
    return Import(file)


async def stored(db: Db, project_id: str) -> list[Task]:
    async with db.read() as tx:
        project = await projects.get_project(tx, project_id)
        listing = task_lists.TaskListFilter(where=tasks.QueueScope(project_pk=project.id))
        return await task_lists.list_tasks(tx, listing, total=None, offset=0, limit=5000)


class TestReading:
    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            ({"project_id": ""}, "project_id"),
            ({"task_id": "x" * 256}, "task_id"),
            ({"task_id": "pull"}, "task_id"),
            ({"task_id": "a\x01b"}, "task_id"),
            ({"name": "n" * 1001}, "name"),
            ({"prompt": 5}, "prompt"),
            ({"status": "lost"}, "status"),
            ({"priority": {"$numberInt": "many"}}, "invalid literal"),
            ({"tags": ["x"] * 101}, "tags"),
            ({"created_at": {"$date": "yesterday"}}, "created_at"),
            ({"created_at": {"$date": {"$numberLong": "9" * 18}}}, "time out of range"),
            ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
            ({"logs": [{"content": "x" * 100_001}]}, "logs.0.content"),
            ({"prompt": "a\0b"}, "NUL"),
        ],
    )
    def test_a_bad_field_is_named(self, file: Path, change: Mapping[str, Any], problem: str):
        [item] = read(file, {**LEAST, **change})
        assert item.value is None
        assert problem in item.problem

    @pytest.mark.parametrize("text", ["{", '"text"', "7", '{"project_id": "\\ud800"}', '{"a":' * 9999])
    def test_what_is_no_object_is_a_bad_line(self, file: Path, text: str):
        [item] = read(file, text)
        assert "JSON" in item.problem

    def test_a_line_that_is_no_text_is_bad_and_the_next_is_read(self, file: Path):
        file.write_bytes(b'{"name": "\xff"}\n' + json.dumps(LEAST).encode())
        first, second = read_files([file], ImportOptions())
        assert first.problem
        assert second.value is not None

    @pytest.mark.parametrize("missing", ["project_id", "task_id", "name", "prompt", "status"])
    def test_what_every_task_has_must_be_there(self, file: Path, missing: str):
        [item] = read(file, {name: value for name, value in LEAST.items() if name != missing})
        assert missing in item.problem

    def test_lines_are_numbered_as_an_editor_does(self, file: Path):
        items = read(file, "", LEAST, "  ", "{", LEAST)
        assert [(item.line, bool(item.problem)) for item in items] == [(2, False), (4, True), (5, False)]

    def test_a_document_that_is_too_long_is_skipped(self, file: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(import_documents, "MAX_DOCUMENT_BYTES", 200)
        items = read(file, {**LEAST, "prompt": "x" * 1000}, LEAST)
        assert "longer than 200 bytes" in items[0].problem
        assert [item.line for item in items] == [1, 2]
        assert items[1].value is not None

    def test_one_project_of_many_can_be_read(self, file: Path):
        nameless = {name: value for name, value in LEAST.items() if name != "project_id"}
        mine, other, unnamed = read(file, LEAST, {**LEAST, "project_id": "p2"}, nameless, project="p1")
        assert mine.value is not None
        assert (other.value, other.problem, other.skipped) == (None, "", "belongs to another project")
        assert task_of(unnamed).project_id == "p1"

    def test_numbers_may_be_names(self, file: Path):
        [item] = read(file, {**LEAST, "task_id": 7, "project_id": 12})
        assert (task_of(item).project_id, task_of(item).task_id) == ("12", "7")

    def test_what_a_push_does_not_check_is_not_checked_either(self, file: Path):
        [item] = read(file, {**LEAST, "priority": "urgent", "tags": "fr", "expires_at": "never"})
        assert task_of(item).fields["tags"] == ["fr"]
        assert task_of(item).fields["expires_at"] is None

    def test_a_backslash_before_a_u_is_no_nul(self, file: Path):
        [item] = read(file, {**LEAST, "prompt": "\\u0000"})
        assert task_of(item).fields["prompt"] == "\\u0000"


class TestImport:
    async def test_every_field_of_a_task_is_imported(self, db: Db, take_in: Import):
        assert await take_in(db, FULL) == (1, 0, 0)
        [task] = await stored(db, "old")
        assert (task.task_id, task.queue_id, task.name, task.prompt) == ("t1", "q1", "Grüße 👩‍🚀", "世界")
        assert (task.status, task.report, task.tags, task.shown_priority) == (
            Status.DONE,
            "It went well.",
            ["a", "b"],
            9,
        )
        assert task.spec_file == ["spec.md"]
        assert task.created_at == datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
        assert task.updated_at == task.finished_at == datetime(2024, 1, 2, 16, tzinfo=UTC)

    async def test_it_is_client_owned_and_not_offered(self, db: Db, take_in: Import):
        await take_in(db, LEAST)
        [task] = await stored(db, "p1")
        assert (task.source, task.origin, task.state) == (Side.CLIENT, Side.CLIENT, PullState.IDLE)
        assert (task.pulled_at, task.lease_owner) == (None, None)

    async def test_its_project_and_queue_are_made(self, db: Db, take_in: Import):
        await take_in(db, FULL)
        async with db.read() as tx:
            project = await projects.get_project(tx, "old")
            queue = await queues.get_queue(tx, project.id, "q1", project_id="old")
        assert (project.name, project.username, project.repository) == ("The old one", "anna", "r")
        assert (project.hostname, project.project_path, project.branch) == ("box", "/x", None)
        assert (project.queue_count, project.counts.done, queue.counts.done) == (1, 1, 1)
        assert queue.name == "First queue"

    @on_sqlite
    async def test_what_is_missing_has_a_default(self, db: Db, take_in: Import, clock: ManualClock):
        await take_in(db, LEAST)
        [task] = await stored(db, "p1")
        assert (task.queue_id, task.shown_priority, task.tags, task.spec_file) == ("", None, [], [])
        assert task.created_at == task.updated_at == clock.now()

    async def test_it_is_seen_over_http_with_its_messages_and_logs(self, api: TasksApi, take_in: Import):
        await take_in(api.db, FULL)
        task = await api.data("GET", "/projects/old/queues/q1/tasks/t1")
        assert (task["source"], task["pull_state"], task["status"]) == ("client", "unpulled", "done")
        assert [(one["role"], one["content"]) for one in task["messages"]] == [
            ("user", "Go on."),
            ("assistant", "I did."),
        ]
        assert task["messages"][0]["created_at"] == "2024-01-02T03:04:05.678Z"
        assert [one["content"] for one in task["logs"]] == ["ended", "started"]
        assert (await api.data("GET", "/projects/old/tasks/pull"))["tasks"] == []

    async def test_a_second_import_changes_nothing(self, api: TasksApi, take_in: Import):
        lines = [LEAST, {**LEAST, "task_id": "t2", "queue_id": "q1"}]
        assert await take_in(api.db, *lines) == (2, 0, 0)
        before = await api.data("GET", "/projects/p1"), await changes(api), await audited(api, "tasks.import")
        api.clock.advance(seconds=60)
        assert await take_in(api.db, *lines) == (0, 2, 0)
        after = await api.data("GET", "/projects/p1"), await changes(api), await audited(api, "tasks.import")
        assert after == before

    async def test_an_existing_task_is_skipped_whoever_created_it(self, api: TasksApi, take_in: Import):
        await api.plan("t1", name="Planned here")
        await api.submit({"id": "t1", "name": "Pushed"})
        await api.plan("gone")
        await api.data("DELETE", "/projects/p1/tasks/gone")
        lines = [LEAST, {**LEAST, "queue_id": "q1"}, {**LEAST, "task_id": "gone"}]
        assert await take_in(api.db, *lines) == (0, 3, 0)
        assert {task.name for task in await stored(api.db, "p1")} == {"Planned here", "Pushed"}

    async def test_a_task_is_known_by_its_id_inside_its_queue(self, db: Db, take_in: Import):
        lines = [LEAST, {**LEAST, "queue_id": "q1"}, {**LEAST, "queue_id": "q2"}, {**LEAST, "project_id": "p2"}]
        assert await take_in(db, *lines) == (4, 0, 0)
        assert len(await stored(db, "p1")) == 3

    async def test_a_task_that_is_in_the_file_twice_is_imported_once(self, db: Db, take_in: Import):
        assert await take_in(db, LEAST, {**LEAST, "name": "Again"}) == (1, 1, 0)
        assert [task.name for task in await stored(db, "p1")] == ["One"]

    @on_sqlite
    async def test_bad_lines_do_not_stop_the_others(self, db: Db, take_in: Import):
        assert await take_in(db, "{", LEAST, {**LEAST, "status": "lost"}) == (1, 0, 2)

    @on_sqlite
    async def test_a_dry_run_writes_nothing(self, api: TasksApi, take_in: Import):
        await api.plan("t1")
        lines = [LEAST, {**LEAST, "task_id": "t2"}, {**LEAST, "project_id": "new"}]
        assert await take_in(api.db, "{", *lines, dry_run=True) == (2, 1, 1)
        assert [task.task_id for task in await stored(api.db, "p1")] == ["t1"]
        assert (await api.error("GET", "/projects/new"))[0] == 404

    @on_sqlite
    async def test_many_lines_are_imported_in_batches_with_progress(
        self, db: Db, take_in: Import, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(import_file, "BATCH_ITEMS", 10)
        lines = [{**LEAST, "task_id": f"t{n}", "project_id": f"p{n % 3}"} for n in range(25)]
        assert await take_in(db, *lines) == (25, 0, 0)
        assert take_in.told == [10, 20, 25]

    @on_sqlite
    async def test_large_lines_make_small_batches(self, db: Db, take_in: Import, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(import_file, "BATCH_BYTES", 1)
        await take_in(db, LEAST, {**LEAST, "task_id": "t2"})
        assert take_in.told == [1, 2]

    @on_sqlite
    async def test_an_import_is_audited(self, api: TasksApi, take_in: Import):
        await take_in(api.db, LEAST)
        [line] = await audited(api, "tasks.import")
        assert (line.actor, line.target) == ("cli:me", "project:p1")
        assert line.detail == {"count": 1, "tasks": ["t1"]}


class TestCommand:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("PENSTOCK_DATA_DIR", str(tmp_path / "data"))
        return tmp_path

    def test_a_file_is_imported_past_a_bad_line(self, folder: Path, file: Path):
        export(file, LEAST, {**LEAST, "status": "lost"}, {**LEAST, "task_id": "t2"})
        first = CliRunner().invoke(command, ["import", str(file), "--json"])
        assert first.exit_code == 1
        counts = {"read": 3, "created": 2, "updated": 0, "skipped": {}, "bad": 1}
        assert json.loads(first.stdout) == {"dry_run": False, "collections": {"tasks": counts}}
        assert f"{file} line 2: status" in first.stderr
        again = CliRunner().invoke(command, ["import", str(file), "--project", "p1"])
        assert "2 of tasks skipped: exists already" in again.stdout

    def test_a_good_file_ends_with_status_zero(self, folder: Path, file: Path):
        export(file, LEAST, {**LEAST, "project_id": "p2"})
        tried = CliRunner().invoke(command, ["import", str(file), "--dry-run"])
        assert tried.exit_code == 0
        assert tried.stdout.splitlines()[1].split() == ["tasks", "2", "2", "0", "0", "0"]
        assert tried.stdout.endswith("Dry run: nothing was written.\n")
        done = CliRunner().invoke(command, ["import", str(file), "--project", "p2"])
        assert done.stdout.splitlines()[1].split() == ["tasks", "2", "1", "0", "1", "0"]
        assert done.stdout.splitlines()[2] == "1 of tasks skipped: belongs to another project"

    @pytest.mark.parametrize("name", ["nothing.jsonl", "empty"])
    def test_what_is_no_export_is_refused(self, folder: Path, name: str):
        (folder / "empty").mkdir()
        refused = CliRunner().invoke(command, ["import", str(folder / name)])
        assert refused.exit_code == 2

"""Importing an export of the older store."""

import io
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
from penstock.tasks import import_tasks as loading
from penstock.tasks.api import import_format
from penstock.tasks.api.import_format import read_lines
from penstock.tasks.domain import PullState, Side, Status, Task
from penstock.tasks.import_tasks import ImportCounts, ImportLine, import_lines
from penstock.tasks.store import projects, queues, tasks
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


def export(*lines: Mapping[str, Any] | str) -> io.BytesIO:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return io.BytesIO("\n".join(texts).encode())


def read(*lines: Mapping[str, Any] | str, project: str | None = None) -> list[ImportLine]:
    return list(read_lines(export(*lines), project=project))


async def take_in(db: Db, *lines: Mapping[str, Any] | str, dry_run: bool = False) -> ImportCounts:
    return await import_lines(db, read_lines(export(*lines)), by="cli:me", dry_run=dry_run)


async def stored(db: Db, project_id: str) -> list[Task]:
    async with db.read() as tx:
        project = await projects.get_project(tx, project_id)
        listing = tasks.TaskListFilter(where=tasks.QueueScope(project_pk=project.id))
        return await tasks.list_tasks(tx, listing, offset=0, limit=5000)


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
            ({"priority": 11}, "priority"),
            ({"priority": {"$numberInt": "many"}}, "invalid literal"),
            ({"tags": ["x"] * 21}, "tags"),
            ({"created_at": {"$date": "yesterday"}}, "created_at"),
            ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
            ({"logs": [{"content": "x" * 100_001}]}, "logs.0.content"),
            ({"prompt": "a\0b"}, "NUL"),
        ],
    )
    def test_a_bad_field_is_named(self, change: Mapping[str, Any], problem: str):
        [line] = read({**LEAST, **change})
        assert line.task is None
        assert problem in line.problem

    @pytest.mark.parametrize("text", ["{", "[]", '"text"', "7", '{"project_id": "\\ud800"}', "[" * 9999 + "]" * 9999])
    def test_what_is_no_object_is_a_bad_line(self, text: str):
        [line] = read(text)
        assert "JSON" in line.problem

    def test_a_line_that_is_no_text_is_bad_and_the_next_is_read(self):
        first, second = read_lines(io.BytesIO(b'{"name": "\xff"}\n' + json.dumps(LEAST).encode()))
        assert first.problem
        assert second.task is not None

    @pytest.mark.parametrize("missing", ["project_id", "task_id", "name", "prompt", "status"])
    def test_what_every_task_has_must_be_there(self, missing: str):
        [line] = read({name: value for name, value in LEAST.items() if name != missing})
        assert missing in line.problem

    def test_lines_are_numbered_as_an_editor_does(self):
        lines = read("", LEAST, "  ", "{", LEAST)
        assert [(line.number, bool(line.problem)) for line in lines] == [(2, False), (4, True), (5, False)]

    def test_a_line_that_is_too_long_is_skipped(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(import_format, "MAX_LINE_LENGTH", 200)
        lines = read({**LEAST, "prompt": "x" * 1000}, LEAST)
        assert "longer than 200 bytes" in lines[0].problem
        assert [line.number for line in lines] == [1, 2]
        assert lines[1].task is not None

    def test_one_project_of_many_can_be_read(self):
        nameless = {name: value for name, value in LEAST.items() if name != "project_id"}
        mine, other, unnamed = read(LEAST, {**LEAST, "project_id": "p2"}, nameless, project="p1")
        assert mine.task is not None
        assert (other.task, other.problem) == (None, "")
        assert unnamed.task is not None
        assert unnamed.task.project_id == "p1"

    def test_numbers_may_be_names(self):
        [line] = read({**LEAST, "task_id": 7, "project_id": 12})
        assert line.task is not None
        assert (line.task.project_id, line.task.task_id) == ("12", "7")

    def test_a_backslash_before_a_u_is_no_nul(self):
        [line] = read({**LEAST, "prompt": "\\u0000"})
        assert line.task is not None
        assert line.task.fields["prompt"] == "\\u0000"


class TestImport:
    async def test_every_field_of_a_task_is_imported(self, db: Db):
        assert await take_in(db, FULL) == ImportCounts(created=1)
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

    async def test_it_is_client_owned_and_not_offered(self, db: Db):
        await take_in(db, LEAST)
        [task] = await stored(db, "p1")
        assert (task.source, task.origin, task.state) == (Side.CLIENT, Side.CLIENT, PullState.IDLE)
        assert (task.pulled_at, task.lease_owner) == (None, None)

    async def test_its_project_and_queue_are_made(self, db: Db):
        await take_in(db, FULL)
        async with db.read() as tx:
            project = await projects.get_project(tx, "old")
            queue = await queues.get_queue(tx, project.id, "q1", project_id="old")
        assert (project.name, project.username, project.repository) == ("The old one", "anna", "r")
        assert (project.hostname, project.project_path, project.branch) == ("box", "/x", None)
        assert (project.queue_count, project.counts.done, queue.counts.done) == (1, 1, 1)
        assert queue.name == "First queue"

    @on_sqlite
    async def test_what_is_missing_has_a_default(self, db: Db, clock: ManualClock):
        await take_in(db, LEAST)
        [task] = await stored(db, "p1")
        assert (task.queue_id, task.shown_priority, task.tags, task.spec_file) == ("", 5, [], [])
        assert task.created_at == task.updated_at == clock.now()

    async def test_it_is_seen_over_http_with_its_messages_and_logs(self, api: TasksApi):
        await take_in(api.db, FULL)
        task = await api.data("GET", "/projects/old/queues/q1/tasks/t1")
        assert (task["source"], task["pull_state"], task["status"]) == ("client", "unpulled", "done")
        assert [(one["role"], one["content"]) for one in task["messages"]] == [
            ("USER", "Go on."),
            ("ASSISTANT", "I did."),
        ]
        assert task["messages"][0]["created_at"] == "2024-01-02T03:04:05.678Z"
        assert [one["content"] for one in task["logs"]] == ["started", "ended"]
        assert (await api.data("GET", "/projects/old/tasks/pull"))["tasks"] == []

    async def test_a_second_import_changes_nothing(self, api: TasksApi):
        lines = [LEAST, {**LEAST, "task_id": "t2", "queue_id": "q1"}]
        assert await take_in(api.db, *lines) == ImportCounts(created=2)
        before = await api.data("GET", "/projects/p1"), await changes(api), await audited(api, "tasks.import")
        api.clock.advance(seconds=60)
        assert await take_in(api.db, *lines) == ImportCounts(skipped=2)
        after = await api.data("GET", "/projects/p1"), await changes(api), await audited(api, "tasks.import")
        assert after == before

    async def test_an_existing_task_is_skipped_whoever_created_it(self, api: TasksApi):
        await api.plan("t1", name="Planned here")
        await api.submit({"id": "t1", "name": "Pushed"})
        await api.plan("gone")
        await api.data("DELETE", "/projects/p1/tasks/gone")
        lines = [LEAST, {**LEAST, "queue_id": "q1"}, {**LEAST, "task_id": "gone"}]
        assert await take_in(api.db, *lines) == ImportCounts(skipped=3)
        assert {task.name for task in await stored(api.db, "p1")} == {"Planned here", "Pushed"}

    async def test_a_task_is_known_by_its_id_inside_its_queue(self, db: Db):
        lines = [LEAST, {**LEAST, "queue_id": "q1"}, {**LEAST, "queue_id": "q2"}, {**LEAST, "project_id": "p2"}]
        assert await take_in(db, *lines) == ImportCounts(created=4)
        assert len(await stored(db, "p1")) == 3

    async def test_a_task_that_is_in_the_file_twice_is_imported_once(self, db: Db):
        assert await take_in(db, LEAST, {**LEAST, "name": "Again"}) == ImportCounts(created=1, skipped=1)
        assert [task.name for task in await stored(db, "p1")] == ["One"]

    @on_sqlite
    async def test_bad_lines_do_not_stop_the_others(self, db: Db):
        assert await take_in(db, "{", LEAST, {**LEAST, "status": "lost"}) == ImportCounts(created=1, bad=2)

    @on_sqlite
    async def test_a_dry_run_writes_nothing(self, api: TasksApi):
        await api.plan("t1")
        lines = [LEAST, {**LEAST, "task_id": "t2"}, {**LEAST, "project_id": "new"}]
        assert await take_in(api.db, "{", *lines, dry_run=True) == ImportCounts(created=2, skipped=1, bad=1)
        assert [task.task_id for task in await stored(api.db, "p1")] == ["t1"]
        assert (await api.error("GET", "/projects/new"))[0] == 404

    @on_sqlite
    async def test_many_lines_are_imported_in_batches_with_progress(self, db: Db, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(loading, "BATCH_LINES", 10)
        lines = [{**LEAST, "task_id": f"t{n}", "project_id": f"p{n % 3}"} for n in range(25)]
        told: list[int] = []
        loaded = await import_lines(
            db, read_lines(export(*lines)), by="me", on_progress=lambda so_far: told.append(so_far.created)
        )
        assert (loaded.created, told) == (25, [10, 20, 25])

    @on_sqlite
    async def test_large_lines_make_small_batches(self, db: Db, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(loading, "BATCH_BYTES", 1)
        told: list[ImportCounts] = []
        await import_lines(db, read_lines(export(LEAST, {**LEAST, "task_id": "t2"})), by="me", on_progress=told.append)
        assert told == [ImportCounts(created=1), ImportCounts(created=2)]

    @on_sqlite
    async def test_an_import_is_audited(self, api: TasksApi):
        await take_in(api.db, LEAST)
        [line] = await audited(api, "tasks.import")
        assert (line.actor, line.target) == ("cli:me", "project:p1")
        assert line.detail == {"count": 1, "tasks": ["t1"]}


class TestCommand:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("PENSTOCK_DATA_DIR", str(tmp_path / "data"))
        return tmp_path

    def test_a_file_is_imported_past_a_bad_line(self, folder: Path):
        file = folder / "export.jsonl"
        file.write_bytes(export(LEAST, {**LEAST, "status": "lost"}, {**LEAST, "task_id": "t2"}).read())
        first = CliRunner().invoke(command, ["import", str(file)])
        assert (first.exit_code, first.stdout) == (1, "2 imported, 0 already present, 1 bad lines\n")
        assert "line 2: status" in first.stderr
        again = CliRunner().invoke(command, ["import", str(file), "--project", "p1"])
        assert again.stdout == "0 imported, 2 already present, 1 bad lines, 0 of other projects\n"

    def test_a_good_file_ends_with_status_zero(self, folder: Path):
        file = folder / "export.jsonl"
        file.write_bytes(export(LEAST, {**LEAST, "project_id": "p2"}).read())
        tried = CliRunner().invoke(command, ["import", str(file), "--dry-run"])
        assert (tried.exit_code, tried.stdout) == (0, "2 would be imported, 0 already present, 0 bad lines\n")
        done = CliRunner().invoke(command, ["import", str(file), "--project", "p2"])
        assert (done.exit_code, done.stdout) == (0, "1 imported, 0 already present, 0 bad lines, 1 of other projects\n")

    @pytest.mark.parametrize("name", ["nothing.jsonl", "."])
    def test_what_is_no_file_is_refused(self, folder: Path, name: str):
        refused = CliRunner().invoke(command, ["import", str(folder / name)])
        assert refused.exit_code == 2

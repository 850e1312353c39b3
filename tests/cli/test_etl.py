"""`penstock etl`: alone, beside a worker, and when something fails."""

import asyncio
import csv
import signal
import subprocess
import sys
from contextlib import chdir
from importlib.resources import files
from pathlib import Path

import pytest
from msgspec import json
from sqlalchemy import select
from typer.testing import CliRunner, Result

from penstock import settings as all_settings
from penstock.access.domain import Caller, Scope
from penstock.cli.database import NoDatabase
from penstock.cli.etl import app
from penstock.cli.etl.files import InputFile
from penstock.cli.etl.submission import Submission, SubmitOptions
from penstock.etl.errors import EtlTaskAlreadyEnded, EtlTaskNotFound, EtlTaskRunning
from penstock.etl.store.tables import etl_task
from penstock.kernel.db import Db
from penstock.kernel.migrations import migrate
from penstock.kernel.processes import list_processes
from penstock.kernel.queue import JobState, get_job, list_jobs
from penstock.kernel.transitions import list_transitions
from tests.conftest import open_db
from tests.fakes.blocking_handler import wait_until
from tests.journeys.command import environment, run
from tests.servers.children import kill_child, start_child

SAMPLES = Path(str(files("penstock.cli") / "samples"))
SOON = 90  # seconds; on a busy machine a process takes long to start

pytestmark = pytest.mark.timeout(240)


class Terminal:
    """A terminal, with a data folder and some documents."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.documents = folder / "documents"
        self.documents.mkdir()
        self.settings = {"PENSTOCK_DATA_DIR": str(self.data), "ETL_OCR_PROFILE": "fast"}

    def etl(self, *arguments: object, **settings: str) -> Result:
        """`penstock etl …`, to its end, in this process: to start one takes longer than most of these commands."""
        with chdir(self.documents):
            return CliRunner().invoke(app, [str(one) for one in arguments], env=self.settings | settings)

    def start(self, *arguments: object) -> subprocess.Popen[bytes]:
        """`penstock …`, going on."""
        command = [sys.executable, "-m", "penstock", *map(str, arguments)]
        return start_child(command, env=environment(**self.settings))

    def write(self, name: str, text: str = "# A note\n\nAll is well.\n") -> Path:
        """A document."""
        path = self.documents / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def take_rule(self) -> None:
        """The sample rule, in the folder of rules."""
        folder = self.data / ".etl_rules"
        folder.mkdir(parents=True)
        (folder / "invoice.json").write_bytes((SAMPLES / "invoice.rule.json").read_bytes())

    async def open_db(self) -> Db:
        """The database, migrated."""
        self.data.mkdir(exist_ok=True)
        db = open_db(f"sqlite:///{self.data / 'penstock.db'}")
        await migrate(db)
        return db


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def test_without_a_worker_an_invoice_is_read_into_a_file_of_fields_and_can_be_shown(terminal: Terminal):
    terminal.take_rule()
    ended = terminal.etl("submit", SAMPLES / "invoice.pdf", "--rule", "invoice", "--out", "out")
    assert ended.exit_code == 0, ended.stderr
    assert ended.stdout.split() == ["1", "completed", "invoice.pdf"]
    result = json.decode((terminal.documents / "out" / "invoice.pdf.json").read_bytes())
    assert (result["number"], result["total"], len(result["lines"])) == ("MS-2026-0117", 387.2, 3)
    assert "| Cover board | 40 |" in (terminal.documents / "out" / "invoice.pdf.md").read_text()
    shown = terminal.etl("show", 1).stdout
    assert "completed, 100 %" in shown
    [line] = [line for line in shown.splitlines() if line.startswith("seller")]
    assert "Mill Street Paper Works" in line
    assert "page 1, top left (" in line
    assert json.decode(terminal.etl("show", 1, "--print", "result").stdout) == result
    assert "\tsystem\tinvoice\t" in terminal.etl("rules").stdout


def test_force_does_not_use_cached_results(terminal: Terminal):
    terminal.write("note.md")
    for arguments in ((), (), ("--force",)):
        assert terminal.etl("submit", "note.md", "--wait", *arguments).exit_code == 0
    assert asyncio.run(hits(terminal)) == [False, True, False]


async def hits(terminal: Terminal) -> list[bool]:
    """Whether each task has a copy of what was read before."""
    db = await terminal.open_db()
    async with db.read() as tx:
        known = await tx.conn.scalars(select(etl_task.c.metadata).order_by(etl_task.c.id))
        found = [metadata["cache"]["ocr"]["hit"] for metadata in known]
    await db.close()
    return found


def test_a_folder_becomes_a_table_and_failures_are_listed_with_their_reason(terminal: Terminal):
    terminal.write("good.md")
    terminal.write("deep/notes.txt")
    terminal.write("empty.pdf", "")
    terminal.write("tool.exe")
    ended = terminal.etl("submit", ".", "--out", "../all.csv")
    assert ended.exit_code == 1
    assert "skipped, not a readable type: tool.exe" in ended.stderr
    assert "DOCUMENT_EMPTY" in ended.stderr
    assert "empty.pdf is empty." in ended.stderr
    assert "Check that the upload is complete." in ended.stderr
    with (terminal.documents.parent / "all.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = {row["file"]: row for row in csv.DictReader(file)}
    assert {name: row["status"] for name, row in rows.items()} == {
        "good.md": "completed",
        "deep_notes.txt": "completed",
        "empty.pdf": "failed",
    }
    assert rows["good.md"]["page_count"] == "1"
    assert rows["empty.pdf"]["error"] == "empty.pdf is empty."


def test_without_wait_a_task_stays_in_the_queue_and_can_be_cancelled_and_retried(terminal: Terminal):
    submitted = terminal.etl("submit", terminal.write("a.md"))
    assert (submitted.exit_code, submitted.stdout) == (0, "1\tpending\ta.md\n")
    assert "pending, 0 %" in terminal.etl("show", 1).stdout
    assert isinstance(terminal.etl("retry", 1).exception, EtlTaskRunning)
    assert terminal.etl("cancel", 1).stdout == "1\tcancelled\ta.md\n"
    assert isinstance(terminal.etl("cancel", 1).exception, EtlTaskAlreadyEnded)
    assert terminal.etl("retry", 1, "--from", "mineru").stdout == "1\tpending\ta.md\n"
    assert terminal.etl("cancel", 1, "--force").stdout == "1\tcancelled\ta.md\n"
    assert isinstance(terminal.etl("show", 2).exception, EtlTaskNotFound)


def test_looking_at_a_task_creates_no_database(terminal: Terminal):
    assert isinstance(terminal.etl("show", 1).exception, NoDatabase)
    assert isinstance(terminal.etl("retry", "--status", "failed").exception, NoDatabase)
    assert not terminal.data.exists()


def test_many_tasks_are_retried_by_filter(terminal: Terminal):
    for name in ("a.md", "b.md", "c.md"):
        terminal.etl("submit", terminal.write(name))
    for number in (1, 2, 3):
        terminal.etl("cancel", number)
    assert terminal.etl("retry", "--status", "failed").stdout == "0 tasks will be retried\n"
    assert terminal.etl("retry", "--status", "cancelled", "--until", "1h").stdout == "0 tasks will be retried\n"
    assert terminal.etl("retry", "--status", "cancelled", "--since", "1h").stdout == "3 tasks will be retried\n"
    assert "pending, 0 %" in terminal.etl("show", 3).stdout
    for wrong in ((), (1, "--status", "failed"), ("--since", "1h"), ("--status", "failed", "--since", "yesterday")):
        assert terminal.etl("retry", *wrong).exit_code == 2


def test_files_with_names_that_no_store_accepts_are_submitted_like_any_other(terminal: Terminal):
    names = ("Cafe\u0301.md", "back\\slash.md", "x" * 195 + ".md")
    for name in names:
        ended = terminal.etl("submit", terminal.write(name))
        assert (ended.exit_code, ended.stdout.split("\t")[1]) == (0, "pending"), ended.stderr


def test_a_file_that_vanished_does_not_stop_the_others(terminal: Terminal, capsys: pytest.CaptureFixture[str]):
    paths = (terminal.documents / "gone.md", terminal.write("here.md"))
    documents = [InputFile(path=path, name=path.name) for path in paths]
    options = SubmitOptions(rule=None, project_id=1, out=None, wait=False)
    submission = Submission(documents, options, Caller(name="ann", user_id=1, scope=Scope.ADMIN))
    asyncio.run(submission.run(all_settings.load(terminal.settings)))
    assert submission.report() == 1
    told = capsys.readouterr()
    assert told.out == "1\tpending\there.md\n"
    assert "FILE_NOT_READABLE" in told.err
    assert "gone.md cannot be opened: No such file or directory." in told.err


def test_every_command_has_help(terminal: Terminal):
    for command in ("submit", "show", "retry", "cancel", "rules"):
        shown = terminal.etl(command, "--help")
        assert (shown.exit_code, "--help" in shown.stdout) == (0, True), command


def test_an_unknown_rule_and_an_empty_folder_are_reported(terminal: Terminal):
    refused = run("etl", "submit", str(terminal.write("a.md")), "--rule", "nonsense", cwd=None, **terminal.settings)
    assert refused.returncode == 1
    assert "Rule nonsense not found." in refused.stderr
    assert "Traceback" not in refused.stderr
    taken = terminal.etl("submit", "a.md", "--out", "a.md")
    assert taken.exit_code == 2
    assert "--out" in taken.stderr
    (terminal.documents / "bare").mkdir()
    nothing = terminal.etl("submit", "bare")
    assert (nothing.exit_code, nothing.stdout) == (1, "")
    assert "No readable documents found" in nothing.stderr


def test_a_full_queue_is_waited_for_with_wait_and_reported_without(terminal: Terminal):
    for name in ("a.md", "b.md", "c.md"):
        terminal.write(name)
    full = terminal.etl("submit", ".", ETL_QUEUE_SIZE="1")
    assert (full.exit_code, full.stdout) == (1, "1\tpending\ta.md\n")
    assert "1 tasks are active" in full.stderr
    assert "2 documents were not submitted." in full.stderr
    waited = terminal.etl("submit", "b.md", "c.md", "--wait", ETL_QUEUE_SIZE="1")
    assert waited.exit_code == 0, waited.stderr
    assert [line.split("\t")[1:] for line in waited.stdout.splitlines()] == [
        ["completed", "b.md"],
        ["completed", "c.md"],
    ]


async def test_with_a_running_worker_the_command_only_watches(terminal: Terminal):
    db = await terminal.open_db()
    worker = terminal.start("work", "--modules", "etl")
    try:
        owner = await _first_worker(db)
        submit = ("etl", "submit", str(terminal.write("a.md")), "--wait")
        ended = await asyncio.to_thread(run, *submit, cwd=None, **terminal.settings)
        assert (ended.returncode, ended.stdout) == (0, "1\tcompleted\ta.md\n"), ended.stderr
        async with db.read() as tx:
            moves = await list_transitions(tx, "job", "etl:1:1:ocr")
        assert [(move.trigger, move.actor) for move in moves] == [("claim", owner), ("finish", owner)]
        await db.close()
    finally:
        kill_child(worker)


async def _first_worker(db: Db) -> str:
    found: list[str] = []

    async def is_there() -> bool:
        async with db.read() as tx:
            found.extend(process.id for process in await list_processes(tx))
        return bool(found)

    await wait_until(is_there, seconds=SOON, every_seconds=0.05)
    return found[0]


async def test_ctrl_c_leaves_the_task_in_the_queue_and_reports_it(terminal: Terminal, tmp_path: Path):
    db = await terminal.open_db()
    command = [sys.executable, "-m", "penstock", "etl", "submit", str(SAMPLES / "scan.pdf"), "--wait"]
    log = tmp_path / "stopped.log"
    slow = terminal.settings | {"ETL_OCR_PROFILE": "accurate", "PENSTOCK_GRACE_SECONDS": "0"}
    with log.open("wb") as file:
        going = subprocess.Popen(command, env=environment(**slow), stdout=file, stderr=file)
        try:
            await _until_read(db)
            going.send_signal(signal.SIGINT)
            assert await asyncio.to_thread(going.wait, SOON) == 130
        finally:
            going.kill()
    assert "still in the queue: 1; `penstock serve` or `penstock work` continues them." in log.read_text()
    async with db.read() as tx:
        assert (await get_job(tx, "etl:1:1:ocr")).state is JobState.WAITING
        assert await list_processes(tx) == []
    await db.close()


async def _until_read(db: Db) -> None:
    """Return when the document is being read."""

    async def is_running() -> bool:
        async with db.read() as tx:
            return [job.state for job in await list_jobs(tx, ["etl:1:1:ocr"])] == [JobState.RUNNING]

    await wait_until(is_running, seconds=SOON, every_seconds=0.02)

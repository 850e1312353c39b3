"""The walks in docs/explanation/reading.md: the files that one document and one job pass through, traced in a run."""

import re
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import penstock
from penstock.cli.process import ensure_admin_key
from penstock.kernel.queue import Job, NewJob
from penstock.kernel.workers import Workers
from penstock.settings.environment import load
from penstock.web.app import build_app
from penstock.wiring import Runtime, open_runtime
from tests.asgi import send_request
from tests.checks.tree import ROOT

SOURCE = Path(penstock.__file__).parent
PAGE = ROOT / "docs/explanation/reading.md"
SAMPLE = SOURCE / "cli/samples/invoice.pdf"
ADMIN_KEY = "sk-walk-0123456789abcdef0123456789abcdef"
FORM = "multipart/form-data; boundary=walk"
# Left out: what is under every statement, in any walk.
DATABASE = re.compile(r"kernel/(db|database_errors|columns|clock|ids|errors|machine|wakeups|shielding|dialect/.*)\.py")


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    """An embedded process whose workers run when a test says so."""
    async with open_runtime(load({"PENSTOCK_DATA_DIR": str(tmp_path), "PENSTOCK_ADMIN_KEY": ADMIN_KEY})) as runtime:
        await ensure_admin_key(runtime)
        yield runtime


async def test_one_document_passes_only_through_the_listed_files_of_etl_and_of_the_stage_runtime(runtime: Runtime):
    app = build_app(runtime)
    fields = b'--walk\r\nContent-Disposition: form-data; name="project_id"\r\n\r\n3\r\n'
    file = b'--walk\r\nContent-Disposition: form-data; name="file"; filename="invoice.pdf"\r\n\r\n'
    form = fields + file + SAMPLE.read_bytes() + b"\r\n--walk--\r\n"
    workers = runtime.workers(runtime.modules.jobs, ["etl"])
    with traced() as entered:
        sent = await send_request(
            app, "POST", "/api/v1/etl/upload_and_submit", form, content_type=FORM, x_api_key=ADMIN_KEY
        )
        await runtime.relay.deliver()
        assert await workers.run_until_empty() == 2
    path = f"/api/v1/etl/tasks/{sent.json['task_id']}"
    assert (await send_request(app, "GET", path, b"", x_api_key=ADMIN_KEY)).json["status"] == "completed"

    listed = walk("One document")
    assert len(listed) <= 25
    assert listed == [name for name in entered if name in listed], "entered in this order"
    assert [name for name in entered if name.startswith(("etl/", "wiring/", "kernel/stages/"))] == [
        name for name in listed if name.startswith(("etl/", "wiring/", "kernel/stages/"))
    ]


async def test_one_job_passes_only_through_the_listed_files_of_the_kernel(runtime: Runtime):
    async def greet(_job: Job) -> None:
        """Has nothing to settle."""

    workers = Workers(runtime.db, runtime.queue, {"greet": greet}, owner="walker")
    with traced() as entered:
        async with runtime.db.tx() as tx:
            await runtime.queue.enqueue(tx, NewJob(kind="greet"))
        assert await workers.claim_and_start() == 1
        await workers.wait_for_running()

    listed = walk("One job")
    assert len(listed) <= 8
    assert listed == [name for name in entered if not DATABASE.fullmatch(name)]


def walk(title: str) -> list[str]:
    """The files of a walk, in order."""
    _, _, section = PAGE.read_text().partition(f"\n### {title}\n")
    assert section, f"{PAGE.name} has no section {title!r}"
    listed = re.findall(r"^\d+\. `(\S+\.py)`", section.partition("\n##")[0], flags=re.MULTILINE)
    assert all((SOURCE / name).is_file() for name in listed)
    return listed


@contextmanager
def traced() -> Iterator[list[str]]:
    """The source files in which a function is called during the block, in the order in which they are entered."""
    entered: dict[str, None] = {}

    def note_call(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and (path := Path(frame.f_code.co_filename)).is_relative_to(SOURCE):
            entered.setdefault(path.relative_to(SOURCE).as_posix())

    names: list[str] = []
    threading.setprofile(note_call)
    sys.setprofile(note_call)
    try:
        yield names
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        names += entered

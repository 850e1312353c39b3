"""A full disk is an outage that waits: documents are deferred at no attempt, and completed when there is space."""

import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.cli.process import ensure_admin_key
from penstock.documents.ocr.provider import Reading, Source, StageContext
from penstock.etl.domain import Status
from penstock.kernel.blobs import Blobs
from penstock.kernel.queue import JobState
from penstock.settings import Settings
from penstock.web.app import build_app
from penstock.wiring import Runtime, open_runtime
from tests.asgi import send_request
from tests.etl.api_client import BOUNDARY, form_of
from tests.etl.harness import EtlHarness, on_both_profiles
from tests.fakes.ocr import EchoOcr


class OcrOnFullDisk(EchoOcr):
    """Writes a temporary file before it reads, to a disk that is full for so many calls."""

    def __init__(self, blobs: Blobs, *, calls: int) -> None:
        super().__init__(blobs)
        self.left = calls

    async def read(self, source: Source, context: StageContext) -> Reading:
        self.left -= 1
        if self.left >= 0:
            Path("/dev/full").write_bytes(b"x")  # the operating system's own full disk
        return await super().read(source, context)


@on_both_profiles
async def test_a_document_waits_for_space_at_no_attempt(harness: EtlHarness):
    harness.set(provider=OcrOnFullDisk(harness.deps.blobs, calls=5), ocr_attempts=1)
    task = await harness.submit()
    await harness.deliver()
    assert await harness.workers().run_until_empty() == 1
    job = await harness.job(task, "ocr")
    assert (job.state, job.attempts, job.error_code) == (JobState.WAITING, 0, "DISK_FULL")
    await harness.work()
    assert (await harness.row(task)).status is Status.COMPLETED
    assert await harness.transitions(task) == ["submit", "complete"]


@contextmanager
def small_files(max_bytes: int) -> Iterator[None]:
    """The operating system refuses larger files of this process, as it refuses them on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    async with open_runtime(Settings(data_dir=tmp_path, admin_key="k" * 32)) as opened:
        await ensure_admin_key(opened)
        yield opened


async def test_an_upload_to_a_full_data_folder_is_told_to_come_again_and_leaves_nothing(runtime: Runtime):
    form = form_of({'name="project_id"': b"3", 'name="file"; filename="a.md"': b"x" * 200_000})
    kind = f"multipart/form-data; boundary={BOUNDARY}"
    app = build_app(runtime)
    with small_files(100_000):
        answer = await send_request(
            app, "POST", "/api/v1/etl/upload_and_submit", form, x_api_key="k" * 32, content_type=kind
        )
        ready = await send_request(app, "GET", "/readyz")
    assert (answer.status, answer.json["code"], answer.headers["retry-after"]) == (503, "DISK_FULL", "30")
    assert (ready.status, ready.json) == (
        503,
        {"status": "not ready", "failed": {"blobs": "full", "data_folder": "full"}},
    )
    assert list((runtime.settings.data_dir / ".mineru_cache").glob("*")) == []

"""Resuming after a crash: nothing is submitted or read twice."""

import asyncio

import pytest

from penstock.adapters.mineru.errors import MineruUnavailable
from penstock.documents.errors import DocumentUnreadable
from tests.adapters.mineru import zips
from tests.adapters.mineru.harness import ReaderHarness, RecordingContext
from tests.documents import pdf_files as making
from tests.fakes.mineru_server import MineruApi, MineruCloud, Said, Step

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOOK = "GET /api/v4/extract-results"
SUBMIT = "POST /api/v4/file-urls/batch"
PAPER = making.pages_of("one", "two", "three")


class ContextThatStopsAt(RecordingContext):
    """Cancels the task when so many pages are done."""

    def __init__(self, done: int) -> None:
        super().__init__()
        self._done = done

    async def progress(self, done: int, of: int) -> None:
        await super().progress(done, of)
        if done == self._done:
            raise asyncio.CancelledError


@pytest.fixture(autouse=True)
def good_result(cloud: MineruCloud) -> None:
    cloud.result = lambda tag, content: zips.pages(f"{tag} a.", f"{tag} b.", f"{tag} c.")


async def cancelled_when(
    harness: ReaderHarness, cloud: MineruCloud, call: str, *, times: int = 1, max_pages: int = 200
) -> None:
    """Read until so many such calls have arrived, then crash."""
    reading = asyncio.create_task(harness.read(cloud, PAPER, max_pages=max_pages))
    await cloud.until(call, times=times)
    reading.cancel()
    await asyncio.wait({reading})
    assert reading.cancelled()


class TestAWorkerThatDies:
    async def test_while_polling_is_followed_by_one_that_continues_to_poll(
        self, harness: ReaderHarness, cloud: MineruCloud
    ):
        cloud.steps = [Step(state="pending")] * 3 + [Step(state="done")]
        await cancelled_when(harness, cloud, LOOK, times=2)
        reading = await harness.read(cloud, PAPER)
        assert reading.provider_task_id == "batch-1"
        assert cloud.count(SUBMIT) == 1
        assert cloud.count("PUT") == 1
        assert harness.context.remembered == ["batch-1"]
        assert harness.left_over() == []

    async def test_while_it_uploads_is_followed_by_one_that_uploads_the_rest(
        self, harness: ReaderHarness, cloud: MineruCloud
    ):
        cloud.say("PUT /oss/3", Said(status=500, body=b""))
        with pytest.raises(MineruUnavailable):
            await harness.read(cloud, PAPER, max_pages=1)
        reading = await harness.read(cloud, PAPER, max_pages=1)
        assert [call.path for call in cloud.heard("PUT")] == ["/oss/2", "/oss/3", "/oss/3", "/oss/4"]
        assert cloud.count(SUBMIT) == 1
        assert [page.markdown.split("\n")[0] for page in await harness.pages(reading)] == [
            "part-0001 a.",
            "part-0002 a.",
            "part-0003 a.",
        ]

    async def test_before_it_could_tell_the_id_is_followed_by_one_that_does(
        self, harness: ReaderHarness, cloud: MineruCloud
    ):
        await cancelled_when(harness, cloud, LOOK)
        harness.context = RecordingContext()
        await harness.read(cloud, PAPER)
        assert harness.context.remembered == ["batch-1"]
        assert cloud.count(SUBMIT) == 1

    async def test_after_some_parts_is_followed_by_one_that_fetches_the_others(
        self, harness: ReaderHarness, cloud: MineruCloud
    ):
        cloud.steps = [Step(state="done")]
        cloud.steps_of["part-0003"] = [Step(state="running", done=0, of=1)]
        harness.context = ContextThatStopsAt(2)
        with pytest.raises(asyncio.CancelledError):
            await harness.read(cloud, PAPER, max_pages=1)
        cloud.steps_of.clear()
        harness.context = RecordingContext(provider_task_id="batch-1")
        reading = await harness.read(cloud, PAPER, max_pages=1)
        assert reading.page_count == 3
        assert [call.path for call in cloud.heard("GET /far")] == ["/far/2.zip", "/far/3.zip", "/far/4.zip"]
        assert cloud.count(SUBMIT) == 1

    async def test_when_all_was_done_is_followed_by_one_that_asks_nobody(
        self, harness: ReaderHarness, cloud: MineruCloud
    ):
        first = await harness.read(cloud, PAPER)
        calls = len(cloud.calls)
        assert await harness.read(cloud, PAPER) == first
        assert len(cloud.calls) == calls


class TestWhatIsNotGoneOnWith:
    async def test_an_id_that_some_other_provider_was_given(self, harness: ReaderHarness, cloud: MineruCloud):
        harness.context.provider_task_id = "local-0123456789abcdef"
        await harness.read(cloud, PAPER)
        assert cloud.count(SUBMIT) == 1
        assert harness.context.provider_task_id == "batch-1"

    async def test_a_job_of_another_server(self, harness: ReaderHarness, cloud: MineruCloud):
        await cancelled_when(harness, cloud, LOOK)
        async with MineruCloud() as other:
            other.result = cloud.result
            await harness.read(other, PAPER)
            assert other.count(SUBMIT) == 1

    async def test_parts_that_were_cut_for_the_cloud_when_a_server_of_ones_own_is_asked(
        self, harness: ReaderHarness, cloud: MineruCloud
    ):
        await cancelled_when(harness, cloud, LOOK, max_pages=1)
        async with MineruApi() as server:
            server.result = cloud.result
            reading = await harness.read(server, PAPER)
            assert server.heard("POST /tasks")[0].body == PAPER
        assert (reading.metadata["parts"], reading.page_count) == (1, 3)

    async def test_a_job_that_a_late_worker_has_lost_while_the_next_one_has_its_own(
        self, harness: ReaderHarness, cloud: MineruCloud
    ):
        cloud.steps = [Step(state="pending")]
        late = asyncio.create_task(harness.read(cloud, PAPER))
        await cloud.until(LOOK)
        cloud.say(SUBMIT, Said(status=503, body=b""))
        paper = f"{harness.context.folder}mineru/job.json"
        kept = await harness.blobs.get(paper)
        await harness.blobs.put(paper, kept.replace(b"batch-1", b"batch-9"))
        cloud.restart()
        with pytest.raises(MineruUnavailable):
            await late
        assert b"batch-9" in await harness.blobs.get(paper)

    async def test_the_folder_of_an_earlier_run(self, harness: ReaderHarness, cloud: MineruCloud):
        await cancelled_when(harness, cloud, LOOK)
        harness.context = RecordingContext(folder="users/7/etl_artifacts/1/1/pages/2/", provider_task_id="batch-1")
        await harness.read(cloud, PAPER)
        assert cloud.count(SUBMIT) == 2

    async def test_stored_files_that_cannot_be_parsed(self, harness: ReaderHarness, cloud: MineruCloud):
        await cancelled_when(harness, cloud, LOOK)
        await harness.blobs.put(f"{harness.context.folder}mineru/job.json", b'{"id": ')
        await harness.read(cloud, PAPER)
        assert cloud.count(SUBMIT) == 2

    async def test_parts_of_a_document_that_was_replaced(self, harness: ReaderHarness, cloud: MineruCloud):
        cloud.steps = [Step(state="done")]
        cloud.steps_of["part-0003"] = [Step(state="failed", err_code=-60003, err_msg="bad")]
        with pytest.raises(DocumentUnreadable):
            await harness.read(cloud, PAPER, max_pages=1)
        cloud.result = lambda tag, content: zips.pages("New.")
        reading = await harness.read(cloud, making.pages_of("another one"), max_pages=1)
        assert [page.markdown for page in await harness.pages(reading)] == ["New."]

"""Reading again after a worker died: what was sent is not sent twice, and what was read is not read twice."""

import asyncio

import pytest

from penstock.adapters.mineru.errors import MineruUnavailable
from penstock.documents.errors import DocumentUnreadable
from tests.adapters.mineru import zips
from tests.adapters.mineru.reading import NotingDesk, Place
from tests.documents import pdf_files as making
from tests.fakes.mineru_server import MineruApi, MineruCloud, Said, Step

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOOK = "GET /api/v4/extract-results"
SUBMIT = "POST /api/v4/file-urls/batch"
PAPER = making.pages_of("one", "two", "three")


class DeskThatStopsAt(NotingDesk):
    """Tells that the task is not wanted any more when so much is done."""

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


async def cancelled_when(place: Place, cloud: MineruCloud, call: str, *, times: int = 1, max_pages: int = 200) -> None:
    """Read until so many such calls have come, then die."""
    reading = asyncio.create_task(place.read(cloud, PAPER, max_pages=max_pages))
    await cloud.until(call, times=times)
    reading.cancel()
    await asyncio.wait({reading})
    assert reading.cancelled()


class TestAWorkerThatDies:
    async def test_while_it_looks_is_followed_by_one_that_goes_on_looking(self, place: Place, cloud: MineruCloud):
        cloud.steps = [Step(state="pending")] * 3 + [Step(state="done")]
        await cancelled_when(place, cloud, LOOK, times=2)
        reading = await place.read(cloud, PAPER)
        assert reading.provider_task_id == "batch-1"
        assert cloud.count(SUBMIT) == 1
        assert cloud.count("PUT") == 1
        assert place.desk.remembered == ["batch-1"]
        assert place.left_over() == []

    async def test_while_it_uploads_is_followed_by_one_that_uploads_the_rest(self, place: Place, cloud: MineruCloud):
        cloud.say("PUT /oss/3", Said(status=500, body=b""))
        with pytest.raises(MineruUnavailable):
            await place.read(cloud, PAPER, max_pages=1)
        reading = await place.read(cloud, PAPER, max_pages=1)
        assert [call.path for call in cloud.heard("PUT")] == ["/oss/2", "/oss/3", "/oss/3", "/oss/4"]
        assert cloud.count(SUBMIT) == 1
        assert [page.markdown.split("\n")[0] for page in await place.pages(reading)] == [
            "part-0001 a.",
            "part-0002 a.",
            "part-0003 a.",
        ]

    async def test_before_it_could_tell_the_id_is_followed_by_one_that_does(self, place: Place, cloud: MineruCloud):
        await cancelled_when(place, cloud, LOOK)
        place.desk = NotingDesk()
        await place.read(cloud, PAPER)
        assert place.desk.remembered == ["batch-1"]
        assert cloud.count(SUBMIT) == 1

    async def test_after_some_parts_is_followed_by_one_that_fetches_the_others(self, place: Place, cloud: MineruCloud):
        cloud.steps = [Step(state="done")]
        cloud.steps_of["part-0003"] = [Step(state="running", done=0, of=1)]
        place.desk = DeskThatStopsAt(2)
        with pytest.raises(asyncio.CancelledError):
            await place.read(cloud, PAPER, max_pages=1)
        cloud.steps_of.clear()
        place.desk = NotingDesk(provider_task_id="batch-1")
        reading = await place.read(cloud, PAPER, max_pages=1)
        assert reading.page_count == 3
        assert [call.path for call in cloud.heard("GET /far")] == ["/far/2.zip", "/far/3.zip", "/far/4.zip"]
        assert cloud.count(SUBMIT) == 1

    async def test_when_all_was_done_is_followed_by_one_that_asks_nobody(self, place: Place, cloud: MineruCloud):
        first = await place.read(cloud, PAPER)
        calls = len(cloud.calls)
        assert await place.read(cloud, PAPER) == first
        assert len(cloud.calls) == calls


class TestWhatIsNotGoneOnWith:
    async def test_an_id_that_some_other_provider_was_given(self, place: Place, cloud: MineruCloud):
        place.desk.provider_task_id = "local-0123456789abcdef"
        await place.read(cloud, PAPER)
        assert cloud.count(SUBMIT) == 1
        assert place.desk.provider_task_id == "batch-1"

    async def test_a_job_of_another_server(self, place: Place, cloud: MineruCloud):
        await cancelled_when(place, cloud, LOOK)
        async with MineruCloud() as other:
            other.result = cloud.result
            await place.read(other, PAPER)
            assert other.count(SUBMIT) == 1

    async def test_parts_that_were_cut_for_the_cloud_when_a_server_of_ones_own_is_asked(
        self, place: Place, cloud: MineruCloud
    ):
        await cancelled_when(place, cloud, LOOK, max_pages=1)
        async with MineruApi() as server:
            server.result = cloud.result
            reading = await place.read(server, PAPER)
            assert server.heard("POST /tasks")[0].body == PAPER
        assert (reading.metadata["parts"], reading.page_count) == (1, 3)

    async def test_a_job_that_a_late_worker_has_lost_while_the_next_one_has_its_own(
        self, place: Place, cloud: MineruCloud
    ):
        cloud.steps = [Step(state="pending")]
        late = asyncio.create_task(place.read(cloud, PAPER))
        await cloud.until(LOOK)
        cloud.say(SUBMIT, Said(status=503, body=b""))
        paper = f"{place.desk.folder}mineru/job.json"
        kept = await place.blobs.get(paper)
        await place.blobs.put(paper, kept.replace(b"batch-1", b"batch-9"))
        cloud.restart()
        with pytest.raises(MineruUnavailable):
            await late
        assert b"batch-9" in await place.blobs.get(paper)

    async def test_the_folder_of_an_earlier_run(self, place: Place, cloud: MineruCloud):
        await cancelled_when(place, cloud, LOOK)
        place.desk = NotingDesk(folder="users/7/etl_artifacts/1/1/pages/2/", provider_task_id="batch-1")
        await place.read(cloud, PAPER)
        assert cloud.count(SUBMIT) == 2

    async def test_papers_that_cannot_be_understood(self, place: Place, cloud: MineruCloud):
        await cancelled_when(place, cloud, LOOK)
        await place.blobs.put(f"{place.desk.folder}mineru/job.json", b'{"id": ')
        await place.read(cloud, PAPER)
        assert cloud.count(SUBMIT) == 2

    async def test_parts_of_a_document_that_was_replaced(self, place: Place, cloud: MineruCloud):
        cloud.steps = [Step(state="done")]
        cloud.steps_of["part-0003"] = [Step(state="failed", err_code=-60003, err_msg="bad")]
        with pytest.raises(DocumentUnreadable):
            await place.read(cloud, PAPER, max_pages=1)
        cloud.result = lambda tag, content: zips.pages("New.")
        reading = await place.read(cloud, making.pages_of("another one"), max_pages=1)
        assert [page.markdown for page in await place.pages(reading)] == ["New."]

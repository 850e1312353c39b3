"""A self-hosted server: jobs, restarts, and old servers with one synchronous call."""

import asyncio

import pytest

from penstock.adapters.mineru.errors import (
    MineruFailed,
    MineruJobLost,
    MineruRefused,
    MineruResultRefused,
    MineruUnavailable,
)
from penstock.documents.errors import DocumentKindUnknown
from tests.adapters.mineru import zips
from tests.adapters.mineru.harness import HastyClock, ReaderHarness
from tests.documents import pdf_files as making
from tests.fakes.mineru_server import MineruApi, Said

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAPER = making.pages_of("one", "two")
GOOD = zips.result_of_server([zips.block(0, "First."), zips.block(1, "Second.")])


@pytest.fixture(autouse=True)
def good_result(server: MineruApi) -> None:
    server.result = lambda tag, content: GOOD


class TestADocument:
    async def test_goes_out_in_a_form_and_comes_back_as_pages(self, harness: ReaderHarness, server: MineruApi):
        reading = await harness.read(server, PAPER, "秘密.pdf", language="en")
        assert [page.markdown for page in await harness.pages(reading)] == ["First.", "Second."]
        sent = server.heard("POST /tasks")[0]
        assert sent.body == PAPER
        assert sent.fields == {
            "filename": "part-0001.pdf",
            "lang_list": "en",
            "response_format_zip": "true",
            "return_md": "true",
            "return_content_list": "true",
        }
        assert reading.provider_task_id == "5f0c-1"
        assert harness.context.remembered == ["5f0c-1"]
        assert reading.metadata["provider"] == "mineru"
        assert reading.metadata["protocol"] == "selfhosted"

    async def test_needs_no_token_and_sends_none(self, harness: ReaderHarness, server: MineruApi):
        await harness.read(server, PAPER, api_key="of-the-cloud")
        assert not any("Authorization" in call.headers for call in server.calls)

    async def test_of_any_length_is_sent_whole(self, harness: ReaderHarness, server: MineruApi):
        reading = await harness.read(server, PAPER, max_pages=1, max_file_bytes=10)
        assert reading.metadata["parts"] == 1

    async def test_that_is_a_web_page_is_refused_before_it_is_sent(self, harness: ReaderHarness, server: MineruApi):
        with pytest.raises(DocumentKindUnknown):
            await harness.read(server, b"<html></html>", "site.html")
        assert server.calls == []

    async def test_that_waits_behind_others_makes_progress_when_they_do(
        self, harness: ReaderHarness, server: MineruApi
    ):
        harness.clock = HastyClock()
        server.steps = [("pending", ahead) for ahead in range(30, 0, -1) for _ in range(5)] + [("completed", 0)]
        await harness.read(server, PAPER, poll_interval=5.0, timeout=60.0)
        assert sum(harness.clock.slept) > 600


class TestFailures:
    async def test_a_job_that_failed_says_why_and_is_sent_anew_next_time(
        self, harness: ReaderHarness, server: MineruApi
    ):
        server.steps = [("processing", 0), ("failed", 0)]
        with pytest.raises(MineruFailed, match="ran out of memory"):
            await harness.read(server, PAPER)
        server.steps = [("completed", 0)]
        await harness.read(server, PAPER)
        assert server.count("POST /tasks") == 2

    async def test_a_restart_makes_the_document_go_out_again_once(self, harness: ReaderHarness, server: MineruApi):
        server.steps = [("processing", 0)] * 3 + [("completed", 0)]
        reading = asyncio.create_task(harness.read(server, PAPER))
        await server.until("GET /tasks", times=2)
        server.restart()
        assert (await reading).provider_task_id == "5f0c-2"
        assert server.count("POST /tasks") == 2

    async def test_a_server_that_always_forgets_costs_an_attempt(self, harness: ReaderHarness, server: MineruApi):
        server.say("GET /tasks", *[Said(status=404, json={"detail": "Task not found"})] * 2)
        with pytest.raises(MineruJobLost):
            await harness.read(server, PAPER)
        assert server.count("POST /tasks") == 2

    async def test_a_result_that_is_gone_is_a_job_that_is_lost(self, harness: ReaderHarness, server: MineruApi):
        server.steps = [("completed", 0)]
        server.say("GET /tasks/5f0c-1/result", Said(status=404, json={"detail": "Task not found"}))
        assert (await harness.read(server, PAPER)).provider_task_id == "5f0c-2"

    async def test_a_result_that_is_not_ready_yet_is_asked_for_again(self, harness: ReaderHarness, server: MineruApi):
        server.steps = [("completed", 0)]
        server.say("GET /tasks/5f0c-1/result", Said(status=202, json={"status": "processing"}))
        await harness.read(server, PAPER)
        assert server.count("POST /tasks") == 1

    async def test_a_result_of_a_failed_job_is_a_failure(self, harness: ReaderHarness, server: MineruApi):
        server.steps = [("completed", 0)]
        server.say("GET /tasks/5f0c-1/result", Said(status=409, json={"status": "failed"}))
        with pytest.raises(MineruFailed):
            await harness.read(server, PAPER)

    async def test_a_server_that_is_not_ready_is_unavailable(self, harness: ReaderHarness, server: MineruApi):
        server.say("POST /tasks", Said(status=503, json={"detail": "Task manager is not ready"}))
        with pytest.raises(MineruUnavailable, match="not ready"):
            await harness.read(server, PAPER)

    async def test_an_unhealthy_server_gets_no_document(self, harness: ReaderHarness, server: MineruApi):
        server.say("GET /health", Said(status=503, json={"status": "unhealthy", "error": "no GPU"}))
        with pytest.raises(MineruUnavailable, match="no GPU"):
            await harness.read(server, PAPER)
        assert server.count("POST") == 0

    @pytest.mark.parametrize("status", [400, 422])
    async def test_a_form_that_is_refused_is_refused_for_good(
        self, harness: ReaderHarness, server: MineruApi, status: int
    ):
        server.say("POST /tasks", Said(status=status, json={"detail": [{"msg": "bad backend"}]}))
        with pytest.raises(MineruRefused, match="bad backend"):
            await harness.read(server, PAPER)

    async def test_a_worker_that_dies_is_followed_by_one_that_sends_nothing(
        self, harness: ReaderHarness, server: MineruApi
    ):
        server.steps = [("processing", 0)] * 3 + [("completed", 0)]
        reading = asyncio.create_task(harness.read(server, PAPER))
        await server.until("GET /tasks")
        reading.cancel()
        await asyncio.wait({reading})
        await harness.read(server, PAPER)
        assert server.count("POST /tasks") == 1

    async def test_a_dangerous_zip_is_refused_here_too(self, harness: ReaderHarness, server: MineruApi):
        server.result = lambda tag, content: zips.named("part-0001/../../evil")
        with pytest.raises(MineruResultRefused):
            await harness.read(server, PAPER)


class TestAServerWithoutJobs:
    @pytest.mark.parametrize(
        ("options", "task_id"), [({"is_old": True}, "mineru-"), ({"has_jobs": False}, "at-once-1")]
    )
    async def test_reads_in_one_long_call(self, harness: ReaderHarness, options: dict[str, bool], task_id: str):
        async with MineruApi(**options) as server:
            server.result = lambda tag, content: GOOD
            reading = await harness.read(server, PAPER)
            assert [page.markdown for page in await harness.pages(reading)] == ["First.", "Second."]
            assert reading.provider_task_id.startswith(task_id)
            assert server.heard("POST /file_parse")[0].body == PAPER
            assert harness.left_over() == []

    async def test_sends_heartbeats_meanwhile(self, harness: ReaderHarness):
        async with MineruApi(is_old=True) as server:
            server.result = lambda tag, content: GOOD
            server.gate.clear()
            reading = asyncio.create_task(harness.read(server, PAPER))
            await server.until("POST /file_parse")
            await harness.context.until_told(more=3)
            server.gate.set()
            await reading

    async def test_fails_in_the_same_call(self, harness: ReaderHarness):
        async with MineruApi(is_old=True) as server:
            server.say("POST /file_parse", Said(status=409, json={"error": "no text found"}))
            with pytest.raises(MineruFailed, match="no text found"):
                await harness.read(server, PAPER)

    async def test_is_not_waited_for_longer_than_is_set(self, harness: ReaderHarness):
        async with MineruApi(is_old=True) as server:
            server.gate.clear()
            with pytest.raises(MineruUnavailable, match="timed out after"):
                await harness.read(server, PAPER, timeout=0.2)

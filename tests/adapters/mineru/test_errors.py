"""Failures of the cloud: connection, account, document, job and result."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import pytest

from penstock.adapters.mineru.errors import (
    MineruBusy,
    MineruFailed,
    MineruJobLost,
    MineruKeyRefused,
    MineruQuotaExhausted,
    MineruRefused,
    MineruResultBroken,
    MineruResultRefused,
    MineruStalled,
    MineruUnavailable,
)
from penstock.documents.errors import DocumentEmpty, DocumentKindUnknown, DocumentTooLarge, DocumentUnreadable
from penstock.kernel.clock import ManualClock
from penstock.kernel.errors import PenstockError
from tests.adapters.mineru import zips
from tests.adapters.mineru.harness import HastyClock, ReaderHarness
from tests.documents import pdf_files as making
from tests.fakes.mineru_server import TOKEN, MineruCloud, Said, Step

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOOK = "GET /api/v4/extract-results"
SUBMIT = "POST /api/v4/file-urls/batch"
PAPER = making.pages_of("one")


def business(code: object, msg: str = "no luck") -> Said:
    return Said(json={"code": code, "msg": msg, "trace_id": "t-2", "data": None})


@pytest.fixture(autouse=True)
def good_result(cloud: MineruCloud) -> None:
    cloud.result = lambda tag, content: zips.pages("Read.")


class TestTheAccount:
    @pytest.mark.parametrize("is_gateway_shaped", [False, True])
    async def test_whose_token_is_refused_ends_the_reading_and_the_token_is_not_told(
        self, harness: ReaderHarness, cloud: MineruCloud, is_gateway_shaped: bool
    ):
        cloud.is_gateway_shaped = is_gateway_shaped
        secret = "plain-words-that-are-no-key"
        with pytest.raises(MineruKeyRefused) as caught:
            await harness.read(cloud, PAPER, api_key=secret)
        assert not caught.value.retryable
        assert secret not in str(caught.value)
        assert cloud.count("PUT") == 0

    async def test_whose_gateway_refuses_with_status_200_is_refused_all_the_same(
        self, harness: ReaderHarness, cloud: MineruCloud
    ):
        cloud.say(SUBMIT, Said(json={"success": False, "msgCode": "A0211", "msg": "token expired"}))
        with pytest.raises(MineruKeyRefused, match="token expired"):
            await harness.read(cloud, PAPER)

    async def test_that_has_used_its_day_waits_for_the_next_one_there(self, harness: ReaderHarness, cloud: MineruCloud):
        harness.clock = ManualClock(datetime(2026, 3, 1, 10, tzinfo=UTC))  # six in the evening in China
        cloud.say(SUBMIT, business(-60018, "daily limit"))
        with pytest.raises(MineruQuotaExhausted) as caught:
            await harness.read(cloud, PAPER)
        assert caught.value.wait_seconds == 6 * 3600
        assert caught.value.retryable


class TestABusinessErrorInAGoodAnswer:
    @pytest.mark.parametrize(
        ("code", "kind", "retryable"),
        [
            (-500, MineruRefused, False),
            (-10001, MineruUnavailable, True),
            (-10002, MineruRefused, False),
            (-60001, MineruUnavailable, True),
            (-60002, DocumentKindUnknown, False),
            (-60003, DocumentUnreadable, False),
            (-60004, DocumentEmpty, False),
            (-60005, DocumentTooLarge, False),
            (-60006, DocumentTooLarge, False),
            (-60007, MineruUnavailable, True),
            (-60009, MineruBusy, True),
            (-60010, MineruFailed, True),
            (-60013, MineruRefused, False),
            (-60015, DocumentUnreadable, False),
            (-60016, MineruFailed, True),
            (-60017, MineruRefused, False),
            (-60018, MineruQuotaExhausted, True),
            (-60019, MineruQuotaExhausted, True),
            (-60020, MineruFailed, True),
            (-60021, MineruFailed, True),
            (-60022, MineruFailed, True),
            (-99999, MineruUnavailable, True),
            ("-60004", DocumentEmpty, False),
            (["odd"], MineruUnavailable, True),
            (None, MineruUnavailable, True),
        ],
    )
    async def test_of_a_call_becomes_one_of_ours(
        self, harness: ReaderHarness, cloud: MineruCloud, code: object, kind: type[PenstockError], retryable: bool
    ):
        cloud.say(SUBMIT, business(code))
        with pytest.raises(kind) as caught:
            await harness.read(cloud, PAPER)
        assert caught.value.retryable is retryable
        assert cloud.count("PUT") == 0

    @pytest.mark.parametrize(
        ("step", "kind"),
        [
            (Step(state="failed", err_msg="parsing failed"), MineruFailed),
            (Step(state="failed", err_code=0, err_msg="parsing failed"), MineruFailed),
            (Step(state="failed", err_code=-60010, err_msg="parsing failed"), MineruFailed),
            (Step(state="failed", err_code="-60003", err_msg="unreadable"), DocumentUnreadable),
            (Step(state="failed", err_msg="[-60006] too many pages"), DocumentTooLarge),
            (Step(state="failed", err_code=-60007, err_msg="model away"), MineruUnavailable),
        ],
    )
    async def test_of_a_job_becomes_one_of_ours_too(
        self, harness: ReaderHarness, cloud: MineruCloud, step: Step, kind: type[PenstockError]
    ):
        cloud.steps = [Step(state="running", done=0, of=1), step]
        with pytest.raises(kind) as caught:
            await harness.read(cloud, PAPER)
        assert "does not say why" not in str(caught.value)

    async def test_is_told_short_and_without_secrets(self, harness: ReaderHarness, cloud: MineruCloud):
        words = f"{TOKEN} " * 40 + f"bad\x1b[31m key={TOKEN} token: abcdef12345 " + "x" * 5000
        cloud.say(SUBMIT, business(-10002, words))
        with pytest.raises(MineruRefused) as caught:
            await harness.read(cloud, PAPER)
        told = str(caught.value)
        assert TOKEN not in told
        assert "abcdef12345" not in told
        assert "\x1b" not in told
        assert len(told) < 400

    async def test_is_told_without_the_signature_of_an_address(self, harness: ReaderHarness, cloud: MineruCloud):
        signed = "https://s3/x.pdf?X-Amz-Credential=AKIA0123456789ABCDEF%2Ftoday&X-Amz-Signature=0a1b2c3d"
        cloud.say(SUBMIT, business(-10002, f"cannot read {signed}"))
        with pytest.raises(MineruRefused, match="cannot read https://s3/x") as caught:
            await harness.read(cloud, PAPER)
        assert "AKIA" not in str(caught.value)
        assert "0a1b2c3d" not in str(caught.value)

    async def test_that_failed_a_job_lets_the_next_attempt_send_it_anew(
        self, harness: ReaderHarness, cloud: MineruCloud
    ):
        cloud.steps = [Step(state="failed", err_msg="parsing failed")]
        with pytest.raises(MineruFailed):
            await harness.read(cloud, PAPER)
        cloud.steps = [Step(state="done")]
        reading = await harness.read(cloud, PAPER)
        assert reading.provider_task_id == harness.context.remembered[-1]
        assert cloud.count(SUBMIT) == 2


class TestTheConnection:
    async def test_that_fails_while_polling_is_waited_out(self, harness: ReaderHarness, cloud: MineruCloud):
        harness.clock = HastyClock()
        busy = Said(status=429, json={}, headers={"Retry-After": "7"})
        cloud.say(LOOK, busy, Said(status=502, body=b"<html>bad gateway"), Said(hangs_up=True), business(-10001))
        cloud.say(LOOK, Said(body=b"<html>what is this"), Said(json=["a list"]), Said(json={"code": 0, "data": None}))
        reading = await harness.read(cloud, PAPER)
        assert reading.page_count == 1
        assert 7.0 in harness.clock.slept
        assert cloud.count(SUBMIT) == 1

    async def test_that_asks_for_a_long_wait_is_waited_out_with_heartbeats(
        self, harness: ReaderHarness, cloud: MineruCloud
    ):
        cloud.steps = [Step(state="done")]
        cloud.say(LOOK, Said(status=429, json={}, headers={"Retry-After": "1"}))
        reading = asyncio.create_task(harness.read(cloud, PAPER))
        await cloud.until(LOOK)
        await harness.context.until_told(more=5)
        assert cloud.count(LOOK) == 1
        assert (await reading).page_count == 1

    async def test_that_fails_for_too_long_stops_the_attempt_and_keeps_the_job(
        self, harness: ReaderHarness, cloud: MineruCloud
    ):
        harness.clock = HastyClock()
        cloud.say(LOOK, *[Said(status=502, body=b"")] * 200)
        with pytest.raises(MineruStalled, match="HTTP 502") as caught:
            await harness.read(cloud, PAPER, poll_interval=5.0, timeout=60.0)
        assert caught.value.retryable
        assert cloud.count(LOOK) == 13
        cloud._script.clear()
        await harness.read(cloud, PAPER)
        assert cloud.count(SUBMIT) == 1
        assert cloud.count("PUT") == 1

    @pytest.mark.parametrize("said", [Said(status=503, body=b"no"), Said(hangs_up=True), Said(status=429, json={})])
    async def test_that_fails_while_submitting_costs_an_attempt(
        self, harness: ReaderHarness, cloud: MineruCloud, said: Said
    ):
        cloud.say(SUBMIT, said)
        with pytest.raises((MineruUnavailable, MineruBusy)):
            await harness.read(cloud, PAPER)
        await harness.read(cloud, PAPER)
        assert cloud.count(SUBMIT) == 2

    @pytest.mark.parametrize("status", [408, 429, 500])
    async def test_that_fails_while_uploading_costs_an_attempt_and_keeps_the_batch(
        self, harness: ReaderHarness, cloud: MineruCloud, status: int
    ):
        cloud.say("PUT /oss", Said(status=status, body=b""))
        with pytest.raises(MineruUnavailable, match=f"HTTP {status} for an upload"):
            await harness.read(cloud, PAPER)
        await harness.read(cloud, PAPER)
        assert cloud.count(SUBMIT) == 1

    async def test_with_a_status_that_says_no_and_no_code_is_a_refusal(
        self, harness: ReaderHarness, cloud: MineruCloud
    ):
        cloud.say(SUBMIT, Said(status=404, body=b"<html>nothing here"))
        with pytest.raises(MineruRefused, match="HTTP 404"):
            await harness.read(cloud, PAPER)

    async def test_to_a_closed_port_is_unavailable(self, harness: ReaderHarness, cloud: MineruCloud):
        async with MineruCloud() as gone:
            pass
        with pytest.raises(MineruUnavailable, match="cannot connect"):
            await harness.read(gone, PAPER)

    async def test_with_an_endless_response_is_cut_off(self, harness: ReaderHarness, cloud: MineruCloud):
        cloud.say(SUBMIT, Said(body=b" " * (5 * 1024 * 1024)))
        with pytest.raises(MineruUnavailable, match="the response is longer than"):
            await harness.read(cloud, PAPER)

    async def test_to_a_url_that_is_not_http_is_refused(self, harness: ReaderHarness, cloud: MineruCloud):
        data = {"batch_id": "b-1", "file_urls": ["file:///etc/passwd"]}
        cloud.say(SUBMIT, Said(json={"code": 0, "msg": "ok", "data": data}))
        with pytest.raises(MineruUnavailable, match="a URL that is not http or https"):
            await harness.read(cloud, PAPER)


class TestAJob:
    async def test_without_progress_is_given_up_after_the_time_that_is_set(
        self, harness: ReaderHarness, cloud: MineruCloud
    ):
        harness.clock = HastyClock()
        cloud.steps = [Step(state="running", done=1, of=2)]
        with pytest.raises(MineruStalled, match=r"no progress for 60 s \(running 1 2\)"):
            await harness.read(cloud, PAPER, poll_interval=5.0, timeout=60.0)

    async def test_with_unusual_states_is_reported_briefly(self, harness: ReaderHarness, cloud: MineruCloud):
        harness.clock = HastyClock()
        cloud.steps = [Step(state="\x1b[31mdreaming" * 1000)]
        with pytest.raises(MineruStalled) as caught:
            await harness.read(cloud, PAPER, poll_interval=5.0, timeout=60.0)
        assert "dreaming" in str(caught.value)
        assert len(str(caught.value)) < 200
        assert str(caught.value).isprintable()

    async def test_that_goes_on_slowly_may_take_any_time(self, harness: ReaderHarness, cloud: MineruCloud):
        harness.clock = HastyClock()
        slow = [Step(state="running", done=done, of=40) for done in range(40) for _ in range(10)]
        cloud.steps = [*slow, Step(state="done")]
        await harness.read(cloud, PAPER, poll_interval=5.0, timeout=60.0)
        assert sum(harness.clock.slept) > 60.0 * 10

    @pytest.mark.parametrize("lost_as_404", [False, True])
    async def test_that_was_forgotten_is_sent_again_once(
        self, harness: ReaderHarness, cloud: MineruCloud, lost_as_404: bool
    ):
        cloud.lost_as_404 = lost_as_404
        cloud.steps = [Step(state="pending")] * 3 + [Step(state="done")]
        reading = asyncio.create_task(harness.read(cloud, PAPER))
        await cloud.until(LOOK, times=2)
        cloud.restart()
        assert (await reading).provider_task_id == harness.context.remembered[-1]
        assert cloud.count(SUBMIT) == 2
        assert len(set(harness.context.remembered)) == 2

    async def test_that_is_forgotten_every_time_ends_the_attempt(self, harness: ReaderHarness, cloud: MineruCloud):
        cloud.say(LOOK, business(-60012), business(-60011))
        with pytest.raises(MineruJobLost) as caught:
            await harness.read(cloud, PAPER)
        assert caught.value.retryable
        assert cloud.count(SUBMIT) == 2

    async def test_whose_upload_is_refused_is_sent_again_once(self, harness: ReaderHarness, cloud: MineruCloud):
        cloud.say("PUT /oss", Said(status=403, body=b"expired"))
        await harness.read(cloud, PAPER)
        assert cloud.count(SUBMIT) == 2
        assert cloud.count("PUT") == 2

    async def test_that_never_finds_its_upload_is_sent_anew_by_the_next_attempt(
        self, harness: ReaderHarness, cloud: MineruCloud
    ):
        harness.clock = HastyClock()
        cloud.steps = [Step(state="waiting-file")]
        with pytest.raises(MineruStalled, match="waiting-file"):
            await harness.read(cloud, PAPER, poll_interval=5.0, timeout=60.0)
        cloud.steps = [Step(state="done")]
        await harness.read(cloud, PAPER)
        assert cloud.count(SUBMIT) == 2

    async def test_with_one_part_that_failed_sends_only_that_one_again(
        self, harness: ReaderHarness, cloud: MineruCloud
    ):
        cloud.steps_of["part-0002"] = [Step(state="failed", err_msg="parsing failed")]
        with pytest.raises(MineruFailed):
            await harness.read(cloud, making.pages_of(*"abc"), max_pages=1)
        cloud.steps_of.clear()
        reading = await harness.read(cloud, making.pages_of(*"abc"), max_pages=1)
        tags = [[file["data_id"] for file in call.asked["files"]] for call in cloud.heard(SUBMIT)]
        assert tags == [["part-0001", "part-0002", "part-0003"], ["part-0002"]]
        assert [page.number for page in await harness.pages(reading)] == [1, 2, 3]


class TestAResult:
    async def test_that_arrives_slowly_is_awaited_with_heartbeats(self, harness: ReaderHarness, cloud: MineruCloud):
        cloud.steps = [Step(state="done")]
        cloud.gate.clear()
        reading = asyncio.create_task(harness.read(cloud, PAPER))
        await cloud.until("GET /far")
        await harness.context.until_told(more=3)
        cloud.gate.set()
        assert (await reading).page_count == 1

    async def test_that_is_truncated_is_fetched_again_by_the_next_attempt(
        self, harness: ReaderHarness, cloud: MineruCloud
    ):
        cloud.result = lambda tag, content: zips.pages("Read.")[:-40]
        with pytest.raises(MineruResultBroken) as caught:
            await harness.read(cloud, PAPER)
        assert caught.value.retryable
        cloud.result = lambda tag, content: zips.pages("Read.")
        await harness.read(cloud, PAPER)
        assert cloud.count(SUBMIT) == 1
        assert harness.left_over() == []

    @pytest.mark.parametrize(
        ("make", "reason"),
        [
            (partial(zips.named, "../../evil.md"), "leads out of its folder"),
            (partial(zips.named, "/etc/cron.d/evil"), "leads out of its folder"),
            (partial(zips.named, "images\\..\\..\\evil"), "leads out of its folder"),
            (partial(zips.named, "C:evil"), "leads out of its folder"),
            (zips.with_link, "a link or a device"),
            (zips.twice, "two of its entries have the same name"),
            (partial(zips.many, entries=20_001), "more than 20000 entries"),
            (partial(zips.bomb, size_bytes=33 * 1024 * 1024), "unpacks to more than"),
        ],
        ids=["dots", "absolute", "backslash", "drive", "symlink", "duplicate", "many", "bomb"],
    )
    async def test_that_is_dangerous_is_refused_for_good(
        self, harness: ReaderHarness, cloud: MineruCloud, make: Callable[[], bytes], reason: str
    ):
        content = make()
        cloud.result = lambda tag, _: content
        with pytest.raises(MineruResultRefused, match=reason) as caught:
            await harness.read(cloud, PAPER)
        assert not caught.value.retryable
        assert harness.left_over() == []
        assert "mineru.md" not in await harness.kept()

    async def test_that_lies_about_its_size_is_not_believed(self, harness: ReaderHarness, cloud: MineruCloud):
        cloud.result = lambda tag, content: zips.lying_bomb(size_bytes=1024 * 1024)
        with pytest.raises(MineruResultBroken):
            await harness.read(cloud, PAPER)

    async def test_that_is_larger_than_it_may_be_is_not_fetched_to_its_end(
        self, harness: ReaderHarness, cloud: MineruCloud
    ):
        cloud.result = lambda tag, content: b"x" * 100_000
        with pytest.raises(MineruResultRefused, match="it has over 1000 bytes"):
            await harness.read(cloud, PAPER, max_result_bytes=1000)

    @pytest.mark.parametrize("listed", ["{half", '"a text"', "[1, null, {}]", '[{"type": "text", "page_idx": "x"}]'])
    async def test_with_an_odd_list_is_broken_or_empty_but_never_a_crash(
        self, harness: ReaderHarness, cloud: MineruCloud, listed: str
    ):
        cloud.result = lambda tag, content: zips.result_of(listed)
        try:
            reading = await harness.read(cloud, PAPER)
        except MineruResultBroken:
            return
        assert [page.markdown for page in await harness.pages(reading)] == [""]

    async def test_without_a_list_is_one_page_and_says_so(self, harness: ReaderHarness, cloud: MineruCloud):
        cloud.result = lambda tag, content: zips.without_list("# Title\n\nText.\n\n<!-- page 9 -->\n")
        reading = await harness.read(cloud, making.pages_of("one", "two"))
        pages = await harness.pages(reading)
        assert [(page.number, page.spans[0].text) for page in pages] == [(1, "# Title")]
        assert "\\<!-- page 9 -->" in await harness.markdown(reading)
        assert reading.metadata["by_page"] is False
        assert reading.page_count == 2

"""What holds for every request, whatever it asks for."""

import asyncio
import gzip
import logging
from typing import Any

import pytest
from fastapi import FastAPI

from penstock.kernel.http import request_body
from penstock.kernel.http.headers import read_headers
from tests.kernel.http.asking import GONE, SILENT, Asker, ask, scope_of
from tests.kernel.http.conftest import MOST_BYTES, Runtime, raising

JSON = {"content-type": "application/json"}
SECURITY = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}


def samples(house: Runtime) -> dict[tuple[str, ...], float]:
    """The requests that were counted."""
    [requests, _] = house.traffic.collect()
    return {
        (sample.labels["method"], sample.labels["route"], sample.labels["status"]): sample.value
        for sample in requests.samples
    }


class TestRequestId:
    async def test_a_clean_id_is_taken_and_given_back(self, app: FastAPI):
        answer = await ask(app, "GET", "/things/7", x_request_id="Ab-1.2_c")
        assert answer.headers["x-request-id"] == "Ab-1.2_c"
        assert answer.json["request_id"] == "Ab-1.2_c"

    @pytest.mark.parametrize("odd", ["", "a b", "a\r\nx: y", "a\0", "é", "a" * 65, "a;b", "<script>"])
    async def test_any_other_is_replaced(self, app: FastAPI, odd: str):
        answer = await ask(app, "GET", "/things/7", x_request_id=odd)
        assert answer.headers["x-request-id"].startswith("req_")
        assert answer.json["request_id"] == answer.headers["x-request-id"]

    async def test_every_request_without_one_gets_its_own(self, app: FastAPI):
        ids = {(await ask(app, "GET", "/things/7")).headers["x-request-id"] for _ in range(50)}
        assert len(ids) == 50

    def test_of_several_the_first_clean_one_counts(self):
        headers = [(b"x-request-id", b"not clean"), (b"x-request-id", b"good"), (b"x-request-id", b"later")]
        assert read_headers(headers, lambda: "ours").request_id == "good"


class TestHeaders:
    @pytest.mark.parametrize("path", ["/things/7", "/nope", "/things/seven", "/raise"])
    async def test_every_answer_has_them(self, house: Runtime, path: str):
        house.raises = raising(RuntimeError("bug"))
        answer = await ask(house.app, "GET", path)
        assert {name: answer.headers.get(name) for name in SECURITY} == SECURITY

    async def test_a_page_may_say_what_it_loads_and_how_long_it_is_kept(self, app: FastAPI):
        answer = await ask(app, "GET", "/page")
        assert answer.headers["content-security-policy"] == "default-src 'self'"
        assert answer.headers["cache-control"] == "max-age=60"
        assert answer.headers["x-frame-options"] == "DENY"


class TestHead:
    async def test_head_answers_as_get_does_without_the_body(self, app: FastAPI):
        got, head = await ask(app, "GET", "/things/7"), await ask(app, "HEAD", "/things/7")
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-length"] == got.headers["content-length"]

    async def test_a_route_with_a_head_of_its_own_keeps_it(self, app: FastAPI):
        assert (await ask(app, "HEAD", "/uploads/42")).headers["upload-offset"] == "42"

    async def test_head_of_nothing_is_404(self, app: FastAPI):
        answer = await ask(app, "HEAD", "/nope")
        assert (answer.status, answer.body) == (404, b"")


class TestBodies:
    async def test_an_announced_body_that_is_too_large_is_refused_unread(self, app: FastAPI):
        asker = Asker([b"never asked for"])
        headers = JSON | {"content-length": str(MOST_BYTES + 1)}
        await app(scope_of("POST", "/things", headers), asker.receive, asker.send)
        assert (asker.answer.status, asker.answer.json["code"]) == (413, "BODY_TOO_LARGE")
        assert asker.answered_after == 0
        assert asker.answer.headers["connection"] == "close"

    @pytest.mark.parametrize("kind", ["application/json", "text/plain"])
    async def test_who_still_sends_is_heard_out_for_a_little_while(
        self, app: FastAPI, kind: str, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(request_body, "LINGER_BYTES", 5000)
        monkeypatch.setattr(request_body, "LINGER_SECONDS", 0.01)
        chatty, silent = Asker([b"a" * 1000] * 50), Asker([b"a" * 3000, SILENT])
        for asker in (chatty, silent):
            headers = {"transfer-encoding": "chunked", "content-type": kind}
            await app(scope_of("POST", "/raw", headers), asker.receive, asker.send)
            assert asker.answer.status == 413
        assert (chatty.answered_after, chatty.taken) == (3, 8)
        assert (silent.answered_after, silent.taken) == (1, 2)

    @pytest.mark.parametrize("path", ["/things", "/raw"])
    @pytest.mark.parametrize("kind", ["application/json", "text/plain"])
    async def test_a_body_that_turns_out_too_large_is_refused(self, app: FastAPI, path: str, kind: str):
        parts = [b"a" * 1500, b"a" * 1500, b"never asked for"]
        answer = await ask(app, "POST", path, *parts, content_type=kind)
        assert (answer.status, answer.json["code"]) == (413, "BODY_TOO_LARGE")
        assert answer.headers["connection"] == "close"

    @pytest.mark.parametrize("path", ["/things", "/raw"])
    @pytest.mark.parametrize("kind", ["application/json", "text/plain"])
    async def test_a_body_that_stalls_is_408(self, app: FastAPI, path: str, kind: str):
        answer = await ask(app, "POST", path, b'{"na', SILENT, content_type=kind)
        assert (answer.status, answer.json["code"]) == (408, "BODY_TOO_SLOW")
        assert answer.json["retryable"]

    async def test_a_body_that_is_cut_off_is_400(self, app: FastAPI):
        answer = await ask(app, "POST", "/things", b'{"na', GONE, content_type="application/json")
        assert (answer.status, answer.json["code"]) == (400, "BAD_BODY")

    async def test_uploads_bound_their_bodies_themselves(self, app: FastAPI):
        answer = await ask(app, "POST", "/uploads/raw", *[b"a" * 1000] * 5, content_type="application/json")
        assert answer.json == {"bytes": 5000}

    async def test_other_bodies_pass_as_they_come(self, app: FastAPI):
        assert (await ask(app, "POST", "/raw", b"\xff\0", b"{", content_type="image/png")).json == {"bytes": 3}

    @pytest.mark.parametrize("kind", ["application/json", "Application/JSON ; charset=utf-8", "application/x.y+json"])
    async def test_json_is_looked_at_whatever_it_is_called(self, app: FastAPI, kind: str):
        answer = await ask(app, "POST", "/raw", b'{"a": NaN}', content_type=kind)
        assert (answer.status, answer.json["code"]) == (400, "BAD_BODY")


class TestAddress:
    async def test_a_key_in_the_address_is_refused_and_told_to_nobody(
        self, house: Runtime, caplog: pytest.LogCaptureFixture
    ):
        caplog.set_level(logging.DEBUG)
        answer = await ask(house.app, "GET", "/things/7?api_key=hunter2hunter2")
        house.log.tell()
        assert (answer.status, answer.json["code"]) == (400, "KEY_IN_URL")
        assert b"hunter2" not in answer.body
        assert "hunter2" not in caplog.text

    async def test_ten_thousand_parameters_are_too_many(self, app: FastAPI):
        query = "&".join(f"a{number}=1" for number in range(10_000))
        answer = await ask(app, "GET", f"/things/7?{query}")
        assert (answer.status, answer.json["code"]) == (414, "URL_TOO_LONG")

    @pytest.mark.parametrize("target", ["/things/a\0b", "/things/7?limit=%00"])
    async def test_nul_is_nobodys_name(self, app: FastAPI, target: str):
        answer = await ask(app, "GET", target)
        assert (answer.status, answer.json["code"]) == (400, "BAD_URL")


class TestPacking:
    async def test_long_text_is_packed_for_who_takes_it(self, app: FastAPI):
        answer = await ask(app, "GET", "/text?size=2000", accept_encoding="br, gzip")
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["content-length"] == str(len(answer.body))
        assert answer.headers["vary"] == "accept-encoding"
        assert gzip.decompress(answer.body) == b"a" * 2000

    async def test_very_long_text_is_packed_as_well(self, app: FastAPI):
        answer = await ask(app, "GET", "/text?size=1000000", accept_encoding="gzip")
        assert gzip.decompress(answer.body) == b"a" * 1_000_000

    @pytest.mark.parametrize(
        ("target", "accepted"),
        [
            ("/text?size=1000", "gzip"),
            ("/text?size=2000", ""),
            ("/text?size=2000", "gzip;q=0, br"),
            ("/text?size=2000", "gzip; q=0.000"),
            ("/text?size=2000&kind=image/png", "gzip"),
            ("/packed", "gzip"),
            ("/stream", "gzip"),
        ],
    )
    async def test_what_is_short_or_packed_or_a_stream_goes_as_it_is(self, app: FastAPI, target: str, accepted: str):
        answer = await ask(app, "GET", target, accept_encoding=accepted)
        assert answer.headers.get("content-encoding") != "gzip"
        assert b"aaa" in answer.body

    async def test_each_part_of_a_stream_goes_at_once(self, app: FastAPI):
        asker = Asker()
        await app(scope_of("GET", "/stream", {"accept-encoding": "gzip"}), asker.receive, asker.send)
        assert [len(message.get("body", b"")) for message in asker.sent] == [0, 5008, 9, 0]

    async def test_head_says_how_long_the_plain_text_is(self, app: FastAPI):
        answer = await ask(app, "HEAD", "/text?size=2000", accept_encoding="gzip")
        assert (answer.headers["content-length"], answer.body) == ("2000", b"")


class TestWhatNobodyExpected:
    async def test_it_is_a_500_that_names_the_request_and_the_log_has_the_trace(
        self, house: Runtime, caplog: pytest.LogCaptureFixture
    ):
        house.raises = raising(RuntimeError("a bug with password=hunter2"))
        answer = await ask(house.app, "GET", "/raise", x_request_id="mine")
        assert (answer.status, answer.json["code"], answer.json["request_id"]) == (500, "INTERNAL", "mine")
        assert b"bug" not in answer.body
        assert "RuntimeError: a bug" in caplog.text

    @pytest.mark.parametrize("path", ["/broken-stream", "/refused-stream"])
    async def test_an_answer_that_breaks_off_is_cut_and_not_ended(
        self, app: FastAPI, path: str, caplog: pytest.LogCaptureFixture
    ):
        asker = Asker()
        with pytest.raises(Exception, match=r"in the middle|already started"):
            await app(scope_of("GET", path, {}), asker.receive, asker.send)
        assert f"GET {path} failed" in caplog.text
        assert asker.sent[-1] == {"type": "http.response.body", "body": b"half", "more_body": True}

    async def test_the_next_request_is_served(self, house: Runtime):
        house.raises = raising(RuntimeError("bug"))
        await ask(house.app, "GET", "/raise")
        assert (await ask(house.app, "GET", "/things/7")).status == 200


class TestCounting:
    async def test_requests_are_counted_by_template_and_unknown_paths_share_one_name(self, house: Runtime):
        for method, path in [
            ("GET", "/things/7"),
            ("GET", "/things/8"),
            ("HEAD", "/things/8"),
            ("GET", "/nope/1"),
            ("GET", "/nope/2"),
            ("BREW", "/things/8"),
            ("MAKEUP", "/nope"),
            ("PUT", "/things/8"),
        ]:
            await ask(house.app, method, path)
        assert samples(house) == {
            ("GET", "/things/{thing_id}", "200"): 2,
            ("HEAD", "/things/{thing_id}", "200"): 1,
            ("GET", "unmatched", "404"): 2,
            ("OTHER", "/things/{thing_id}", "405"): 1,
            ("OTHER", "unmatched", "404"): 1,
            ("PUT", "/things/{thing_id}", "405"): 1,
        }

    async def test_a_caller_who_leaves_is_counted_as_gone(self, house: Runtime):
        task = asyncio.create_task(ask(house.app, "POST", "/raw", SILENT, content_type="image/png"))
        while not house.under_way:  # noqa: ASYNC110  (there is no event for it)
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert samples(house) == {("POST", "/raw", "499"): 1}
        assert not house.under_way


class TestCutOff:
    async def asked(self, house: Runtime, target: str) -> tuple[Asker, asyncio.Task[None]]:
        """A request that will not end by itself."""
        asker = Asker([SILENT])
        headers = {"transfer-encoding": "chunked", "content-type": "image/png"}
        task = asyncio.create_task(house.app(scope_of("POST", target, headers), asker.receive, asker.send))
        async with asyncio.timeout(5):
            while not asker.taken:  # noqa: ASYNC110  (there is no event for it)
                await asyncio.sleep(0)
        return asker, task

    async def test_what_is_cut_off_is_told_to_come_again(self, house: Runtime):
        asker, task = await self.asked(house, "/uploads/raw")
        assert house.under_way.cut() == 1
        await task
        assert (asker.answer.status, asker.answer.json["code"]) == (503, "STOPPING")
        assert asker.answer.headers["retry-after"] == "2"
        assert not house.under_way

    async def test_an_answer_that_has_begun_is_left_as_it_is(self, house: Runtime):
        asker = Asker()
        task = asyncio.create_task(house.app(scope_of("GET", "/endless", {}), asker.receive, asker.send))
        async with asyncio.timeout(5):
            while len(asker.sent) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
        house.under_way.cut()
        await task
        assert [message["type"] for message in asker.sent].count("http.response.start") == 1
        assert asker.sent[-1].get("more_body") is True

    async def test_a_cancel_by_anyone_else_stays_one(self, house: Runtime):
        _, task = await self.asked(house, "/uploads/raw")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


class TestRequestLog:
    def lines(self, caplog: pytest.LogCaptureFixture) -> list[Any]:
        return [record for record in caplog.records if record.name == "penstock.access"]

    async def test_there_is_one_line_about_each_request(self, house: Runtime, caplog: pytest.LogCaptureFixture):
        caplog.set_level(logging.INFO)
        await ask(house.app, "GET", "/things/7?limit=3", x_request_id="mine")
        await ask(house.app, "GET", "/nope")
        assert not self.lines(caplog)
        house.log.tell()
        first, second = self.lines(caplog)
        assert (first.getMessage(), first.request_id) == ("GET /things/7", "mine")
        assert first.fields["status"] == 200
        assert first.fields["caller"] == "ann"
        assert first.fields["bytes"] > 10
        assert first.fields["ms"] >= 0
        assert (second.getMessage(), second.fields["status"]) == ("GET /nope", 404)
        assert "caller" not in second.fields

    async def test_the_lines_come_by_themselves(self, house: Runtime, caplog: pytest.LogCaptureFixture):
        caplog.set_level(logging.INFO)
        await ask(house.app, "GET", "/things/7")
        async with asyncio.timeout(5):
            while not self.lines(caplog):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def test_a_crowd_does_not_wait(self, house: Runtime, caplog: pytest.LogCaptureFixture):
        caplog.set_level(logging.INFO)
        for _ in range(500):
            await ask(house.app, "GET", "/nope")
        assert len(self.lines(caplog)) == 500

    async def test_nothing_is_kept_when_nobody_listens(self, house: Runtime, caplog: pytest.LogCaptureFixture):
        caplog.set_level(logging.WARNING)
        await ask(house.app, "GET", "/nope")
        caplog.set_level(logging.INFO)
        house.log.tell()
        assert not self.lines(caplog)

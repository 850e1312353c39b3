"""What the middleware does for every request."""

import asyncio
import gzip
import logging
from typing import Any

import pytest
from fastapi import FastAPI

from penstock.kernel.http import request_body
from penstock.kernel.http.headers import parse_headers
from tests.asgi import DISCONNECT, STALL, Connection, scope_of, send_request
from tests.kernel.http.conftest import MAX_BYTES, ServedApp, raising

JSON = {"content-type": "application/json"}
SECURITY = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}


def samples(served: ServedApp) -> dict[tuple[str, ...], float]:
    """The counted requests."""
    [requests, _] = served.traffic.collect()
    return {
        (sample.labels["method"], sample.labels["route"], sample.labels["status"]): sample.value
        for sample in requests.samples
    }


class TestRequestId:
    async def test_a_valid_id_is_used_and_returned(self, app: FastAPI):
        answer = await send_request(app, "GET", "/things/7", x_request_id="Ab-1.2_c")
        assert answer.headers["x-request-id"] == "Ab-1.2_c"
        assert answer.json["request_id"] == "Ab-1.2_c"

    @pytest.mark.parametrize("odd", ["", "a b", "a\r\nx: y", "a\0", "é", "a" * 65, "a;b", "<script>"])
    async def test_any_other_is_replaced(self, app: FastAPI, odd: str):
        answer = await send_request(app, "GET", "/things/7", x_request_id=odd)
        assert answer.headers["x-request-id"].startswith("req_")
        assert answer.json["request_id"] == answer.headers["x-request-id"]

    async def test_every_request_without_one_gets_its_own(self, app: FastAPI):
        ids = {(await send_request(app, "GET", "/things/7")).headers["x-request-id"] for _ in range(50)}
        assert len(ids) == 50

    def test_of_several_the_first_valid_one_counts(self):
        headers = [(b"x-request-id", b"not clean"), (b"x-request-id", b"good"), (b"x-request-id", b"later")]
        assert parse_headers(headers, lambda: "ours").request_id == "good"


class TestHeaders:
    @pytest.mark.parametrize("path", ["/things/7", "/nope", "/things/seven", "/raise"])
    async def test_every_response_has_them(self, served: ServedApp, path: str):
        served.raises = raising(RuntimeError("bug"))
        answer = await send_request(served.app, "GET", path)
        assert {name: answer.headers.get(name) for name in SECURITY} == SECURITY

    async def test_a_route_may_set_its_own_csp_and_caching(self, app: FastAPI):
        answer = await send_request(app, "GET", "/page")
        assert answer.headers["content-security-policy"] == "default-src 'self'"
        assert answer.headers["cache-control"] == "max-age=60"
        assert answer.headers["x-frame-options"] == "DENY"


class TestHead:
    async def test_head_responds_like_get_without_the_body(self, app: FastAPI):
        got, head = await send_request(app, "GET", "/things/7"), await send_request(app, "HEAD", "/things/7")
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-length"] == got.headers["content-length"]

    async def test_a_route_with_a_head_of_its_own_keeps_it(self, app: FastAPI):
        assert (await send_request(app, "HEAD", "/uploads/42")).headers["upload-offset"] == "42"

    async def test_head_of_an_unknown_path_is_404(self, app: FastAPI):
        answer = await send_request(app, "HEAD", "/nope")
        assert (answer.status, answer.body) == (404, b"")


class TestBodies:
    async def test_an_announced_body_that_is_too_large_is_refused_unread(self, app: FastAPI):
        connection = Connection([b"never read"])
        headers = JSON | {"content-length": str(MAX_BYTES + 1)}
        await app(scope_of("POST", "/things", headers.items()), connection.receive, connection.send)
        assert (connection.response.status, connection.response.json["code"]) == (413, "BODY_TOO_LARGE")
        assert connection.taken_before_response == 0
        assert connection.response.headers["connection"] == "close"

    @pytest.mark.parametrize("kind", ["application/json", "text/plain"])
    async def test_the_rest_of_a_refused_body_is_drained_for_a_moment(
        self, app: FastAPI, kind: str, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(request_body, "DRAIN_BYTES", 5000)
        monkeypatch.setattr(request_body, "DRAIN_SECONDS", 0.01)
        chatty, silent = Connection([b"a" * 1000] * 50), Connection([b"a" * 3000, STALL])
        for connection in (chatty, silent):
            headers = {"transfer-encoding": "chunked", "content-type": kind}
            await app(scope_of("POST", "/raw", headers.items()), connection.receive, connection.send)
            assert connection.response.status == 413
        assert (chatty.taken_before_response, chatty.taken) == (3, 8)
        assert (silent.taken_before_response, silent.taken) == (1, 2)

    @pytest.mark.parametrize("path", ["/things", "/raw"])
    @pytest.mark.parametrize("kind", ["application/json", "text/plain"])
    async def test_a_body_that_turns_out_too_large_is_refused(self, app: FastAPI, path: str, kind: str):
        parts = [b"a" * 1500, b"a" * 1500, b"never read"]
        answer = await send_request(app, "POST", path, *parts, content_type=kind)
        assert (answer.status, answer.json["code"]) == (413, "BODY_TOO_LARGE")
        assert answer.headers["connection"] == "close"

    @pytest.mark.parametrize("path", ["/things", "/raw"])
    @pytest.mark.parametrize("kind", ["application/json", "text/plain"])
    async def test_a_body_that_stalls_is_408(self, app: FastAPI, path: str, kind: str):
        answer = await send_request(app, "POST", path, b'{"na', STALL, content_type=kind)
        assert (answer.status, answer.json["code"]) == (408, "BODY_TOO_SLOW")
        assert answer.json["retryable"]

    async def test_a_truncated_body_is_400(self, app: FastAPI):
        answer = await send_request(app, "POST", "/things", b'{"na', DISCONNECT, content_type="application/json")
        assert (answer.status, answer.json["code"]) == (400, "BAD_BODY")

    async def test_uploads_limit_their_bodies_themselves(self, app: FastAPI):
        answer = await send_request(app, "POST", "/uploads/raw", *[b"a" * 1000] * 5, content_type="application/json")
        assert answer.json == {"bytes": 5000}

    async def test_other_bodies_pass_as_they_come(self, app: FastAPI):
        assert (await send_request(app, "POST", "/raw", b"\xff\0", b"{", content_type="image/png")).json == {"bytes": 3}

    @pytest.mark.parametrize("kind", ["application/json", "Application/JSON ; charset=utf-8", "application/x.y+json"])
    async def test_json_is_checked_under_every_content_type(self, app: FastAPI, kind: str):
        answer = await send_request(app, "POST", "/raw", b'{"a": NaN}', content_type=kind)
        assert (answer.status, answer.json["code"]) == (400, "BAD_BODY")


class TestUrl:
    async def test_a_key_in_the_url_is_refused_and_not_logged(
        self, served: ServedApp, caplog: pytest.LogCaptureFixture
    ):
        caplog.set_level(logging.DEBUG)
        answer = await send_request(served.app, "GET", "/things/7?api_key=hunter2hunter2")
        served.log.flush()
        assert (answer.status, answer.json["code"]) == (400, "KEY_IN_URL")
        assert b"hunter2" not in answer.body
        assert "hunter2" not in caplog.text

    async def test_ten_thousand_parameters_are_too_many(self, app: FastAPI):
        query = "&".join(f"a{number}=1" for number in range(10_000))
        answer = await send_request(app, "GET", f"/things/7?{query}")
        assert (answer.status, answer.json["code"]) == (414, "URL_TOO_LONG")

    @pytest.mark.parametrize("target", ["/things/a\0b", "/things/7?limit=%00"])
    async def test_nul_is_refused(self, app: FastAPI, target: str):
        answer = await send_request(app, "GET", target)
        assert (answer.status, answer.json["code"]) == (400, "BAD_URL")


class TestCompression:
    async def test_long_text_is_compressed_for_clients_that_accept_it(self, app: FastAPI):
        answer = await send_request(app, "GET", "/text?size=2000", accept_encoding="br, gzip")
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["content-length"] == str(len(answer.body))
        assert answer.headers["vary"] == "accept-encoding"
        assert gzip.decompress(answer.body) == b"a" * 2000

    async def test_very_long_text_is_compressed_as_well(self, app: FastAPI):
        answer = await send_request(app, "GET", "/text?size=1000000", accept_encoding="gzip")
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
    async def test_short_encoded_or_streamed_responses_are_not_compressed(
        self, app: FastAPI, target: str, accepted: str
    ):
        answer = await send_request(app, "GET", target, accept_encoding=accepted)
        assert answer.headers.get("content-encoding") != "gzip"
        assert b"aaa" in answer.body

    async def test_each_part_of_a_stream_is_sent_at_once(self, app: FastAPI):
        connection = Connection()
        await app(scope_of("GET", "/stream", [("accept-encoding", "gzip")]), connection.receive, connection.send)
        assert [len(message.get("body", b"")) for message in connection.sent] == [0, 5008, 9, 0]

    async def test_head_has_the_uncompressed_length(self, app: FastAPI):
        answer = await send_request(app, "HEAD", "/text?size=2000", accept_encoding="gzip")
        assert (answer.headers["content-length"], answer.body) == ("2000", b"")


class TestUnexpectedErrors:
    async def test_are_a_500_with_the_request_id_and_a_logged_traceback(
        self, served: ServedApp, caplog: pytest.LogCaptureFixture
    ):
        served.raises = raising(RuntimeError("a bug with password=hunter2"))
        answer = await send_request(served.app, "GET", "/raise", x_request_id="mine")
        assert (answer.status, answer.json["code"], answer.json["request_id"]) == (500, "INTERNAL", "mine")
        assert b"bug" not in answer.body
        assert "RuntimeError: a bug" in caplog.text

    @pytest.mark.parametrize("path", ["/broken-stream", "/refused-stream"])
    async def test_a_response_that_fails_midway_is_aborted(
        self, app: FastAPI, path: str, caplog: pytest.LogCaptureFixture
    ):
        connection = Connection()
        with pytest.raises(Exception, match=r"in the middle|already started"):
            await app(scope_of("GET", path), connection.receive, connection.send)
        assert f"GET {path} failed" in caplog.text
        assert connection.sent[-1] == {"type": "http.response.body", "body": b"half", "more_body": True}

    async def test_the_next_request_is_served(self, served: ServedApp):
        served.raises = raising(RuntimeError("bug"))
        await send_request(served.app, "GET", "/raise")
        assert (await send_request(served.app, "GET", "/things/7")).status == 200


class TestCounting:
    async def test_requests_are_counted_by_template_and_unknown_paths_share_one_label(self, served: ServedApp):
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
            await send_request(served.app, method, path)
        assert samples(served) == {
            ("GET", "/things/{thing_id}", "200"): 2,
            ("HEAD", "/things/{thing_id}", "200"): 1,
            ("GET", "unmatched", "404"): 2,
            ("OTHER", "/things/{thing_id}", "405"): 1,
            ("OTHER", "unmatched", "404"): 1,
            ("PUT", "/things/{thing_id}", "405"): 1,
        }

    async def test_a_client_that_disconnects_is_counted_as_499(self, served: ServedApp):
        task = asyncio.create_task(send_request(served.app, "POST", "/raw", STALL, content_type="image/png"))
        while not served.in_flight:  # noqa: ASYNC110  (there is no event for it)
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert samples(served) == {("POST", "/raw", "499"): 1}
        assert not served.in_flight


class TestCancelled:
    async def started(self, served: ServedApp, target: str) -> tuple[Connection, asyncio.Task[None]]:
        """Start a request that does not end by itself."""
        connection = Connection([STALL])
        headers = {"transfer-encoding": "chunked", "content-type": "image/png"}
        task = asyncio.create_task(
            served.app(scope_of("POST", target, headers.items()), connection.receive, connection.send)
        )
        async with asyncio.timeout(5):
            while not connection.taken:  # noqa: ASYNC110  (there is no event for it)
                await asyncio.sleep(0)
        return connection, task

    async def test_a_cancelled_request_gets_a_retryable_503(self, served: ServedApp):
        connection, task = await self.started(served, "/uploads/raw")
        assert served.in_flight.cancel_all() == 1
        await task
        assert (connection.response.status, connection.response.json["code"]) == (503, "STOPPING")
        assert connection.response.headers["retry-after"] == "2"
        assert not served.in_flight

    async def test_a_response_that_has_started_is_left_as_it_is(self, served: ServedApp):
        connection = Connection()
        task = asyncio.create_task(served.app(scope_of("GET", "/endless"), connection.receive, connection.send))
        async with asyncio.timeout(5):
            while len(connection.sent) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
        served.in_flight.cancel_all()
        await task
        assert [message["type"] for message in connection.sent].count("http.response.start") == 1
        assert connection.sent[-1].get("more_body") is True

    async def test_any_other_cancel_is_raised(self, served: ServedApp):
        _, task = await self.started(served, "/uploads/raw")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


class TestRequestLog:
    def lines(self, caplog: pytest.LogCaptureFixture) -> list[Any]:
        return [record for record in caplog.records if record.name == "penstock.access"]

    async def test_each_request_has_one_line(self, served: ServedApp, caplog: pytest.LogCaptureFixture):
        caplog.set_level(logging.INFO)
        await send_request(served.app, "GET", "/things/7?limit=3", x_request_id="mine")
        await send_request(served.app, "GET", "/nope")
        assert not self.lines(caplog)
        served.log.flush()
        first, second = self.lines(caplog)
        assert (first.getMessage(), first.request_id) == ("GET /things/7", "mine")
        assert first.fields["status"] == 200
        assert first.fields["caller"] == "ann"
        assert first.fields["bytes"] > 10
        assert first.fields["ms"] >= 0
        assert (second.getMessage(), second.fields["status"]) == ("GET /nope", 404)
        assert "caller" not in second.fields

    async def test_lines_are_flushed_by_a_timer(self, served: ServedApp, caplog: pytest.LogCaptureFixture):
        caplog.set_level(logging.INFO)
        await send_request(served.app, "GET", "/things/7")
        async with asyncio.timeout(5):
            while not self.lines(caplog):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def test_a_full_buffer_is_flushed_at_once(self, served: ServedApp, caplog: pytest.LogCaptureFixture):
        caplog.set_level(logging.INFO)
        for _ in range(500):
            await send_request(served.app, "GET", "/nope")
        assert len(self.lines(caplog)) == 500

    async def test_nothing_is_buffered_when_the_level_is_disabled(
        self, served: ServedApp, caplog: pytest.LogCaptureFixture
    ):
        caplog.set_level(logging.WARNING)
        await send_request(served.app, "GET", "/nope")
        caplog.set_level(logging.INFO)
        served.log.flush()
        assert not self.lines(caplog)

"""Attacks on a server over raw sockets: each is refused, the server survives, and the log leaks no secret."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from urllib.parse import quote

import pytest

from tests.servers.children import kill_child
from tests.web.server_main import ADMIN_KEY, BODY_BYTES, BODY_SECONDS, HEADER_SECONDS
from tests.web.server_process import ServerProcess
from tests.web.sockets import RawResponse, opened, request, send_raw

SECRET = "hunter2hunter2"  # part of every attack; it must not appear anywhere
JSON = "Content-Type: application/json"
CHUNKED = "Transfer-Encoding: chunked"


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("attacked"))
    yield server
    kill_child(server.child)


@pytest.fixture
async def server(process: ServerProcess) -> AsyncIterator[ServerProcess]:
    """The server, which must survive each attack and log no secret."""
    await process.wait_ready()
    yield process
    assert process.child.poll() is None
    assert await process.is_alive()
    log = await process.log()
    assert SECRET not in log
    assert "Traceback" not in log or "token=***" in log


def problem(response: RawResponse) -> tuple[int, str]:
    """The status and the code of the only response."""
    [status] = response.statuses
    body = response.text.partition(b"\r\n\r\n")[2]
    return status, json.loads(body)["code"]


def chunk(part: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(part), part)


class TestBodies:
    async def test_a_gigabyte_that_is_announced_is_refused_unread(self, server: ServerProcess):
        head = request("POST /notes HTTP/1.1", JSON, "Content-Length: 1000000000")
        response = await send_raw(server.port, head, b'{"text": "' + SECRET.encode(), quiet=5)
        assert problem(response) == (413, "BODY_TOO_LARGE")
        assert response.closed
        assert response.seconds < 10

    @pytest.mark.parametrize("path", ["/notes", "/raw"])
    @pytest.mark.parametrize("kind", ["application/json", "application/octet-stream"])
    async def test_a_gigabyte_in_chunks_is_refused_at_the_limit(self, server: ServerProcess, path: str, kind: str):
        before = server.memory_bytes
        head = request(f"POST {path} HTTP/1.1", f"Content-Type: {kind}", CHUNKED)
        chunks = [chunk(SECRET.encode() * 5000)] * 14_300
        response = await send_raw(server.port, head, *chunks)
        assert problem(response) == (413, "BODY_TOO_LARGE")
        assert response.sent_bytes < 50 * BODY_BYTES
        assert server.memory_bytes - before < 100_000_000

    @pytest.mark.parametrize("path", ["/notes", "/raw"])
    @pytest.mark.parametrize("kind", ["application/json", "application/octet-stream"])
    async def test_a_body_that_trickles_is_too_slow(self, server: ServerProcess, path: str, kind: str):
        head = request(f"POST {path} HTTP/1.1", f"Content-Type: {kind}", "Content-Length: 1000")
        response = await send_raw(server.port, head, *[SECRET.encode()] * 60, pause=0.1)
        assert problem(response) == (408, "BODY_TOO_SLOW")
        assert response.closed
        assert response.seconds < BODY_SECONDS + 4

    async def test_a_body_shorter_than_announced_is_bad(self, server: ServerProcess):
        head = request("POST /notes HTTP/1.1", JSON, "Content-Length: 1000")
        response = await send_raw(server.port, head, b'{"text": "', half_close=True)
        assert response.closed
        assert response.statuses in ([], [400], [408])

    async def test_a_body_longer_than_announced_is_no_second_request(self, server: ServerProcess):
        head = request("POST /notes HTTP/1.1", JSON, "Content-Length: 13")
        response = await send_raw(server.port, head + b'{"text": "a"}' + SECRET.encode() + b" /x HTTP/1.1\r\n\r\n")
        assert response.statuses[0] == 200
        assert response.statuses[1:] in ([], [400], [404])

    @pytest.mark.parametrize(
        "body",
        [b"[" * 100_000, b'{"text":' * 50_000, b'{"text": "' + SECRET.encode(), b'{"text": NaN}',
         b'{"text": "\xff"}', b'{"text": "a", "text": "b"}', b'{"text": 1e999}', b'{"text": ' + b"9" * 10_000 + b"}",
         b'{"text": "\\ud800"}'],
        ids=["deep list", "deep object", "cut", "NaN", "no UTF-8", "twice", "infinite", "long number", "half"],
    )  # fmt: skip
    async def test_invalid_json_is_a_bad_body(self, server: ServerProcess, body: bytes):
        head = request("POST /notes HTTP/1.1", JSON, f"Content-Length: {len(body)}", "Connection: close")
        assert problem(await send_raw(server.port, head + body)) == (400, "BAD_BODY")

    async def test_a_broken_chunk_is_bad(self, server: ServerProcess):
        response = await send_raw(
            server.port, request("POST /notes HTTP/1.1", JSON, CHUNKED) + b"zz\r\n{}\r\n0\r\n\r\n"
        )
        assert response.statuses == [400]
        assert response.closed


class TestHeads:
    @pytest.mark.parametrize("value", ["a\0b", "a\rb", "a\r\n b"], ids=["NUL", "CR", "folded"])
    async def test_a_header_with_a_control_character_is_refused_by_the_server(self, server: ServerProcess, value: str):
        response = await send_raw(server.port, request("GET /livez HTTP/1.1", f"X-Request-Id: {value}"))
        assert (response.statuses, response.closed) == ([400], True)

    @pytest.mark.parametrize("value", ["caf\xe9", "a b", "x" * 65, "<b>", "%0d%0aSet-Cookie:%20a=b", "a;b=c"])
    async def test_an_invalid_request_id_is_not_returned(self, server: ServerProcess, value: str):
        response = await send_raw(
            server.port, request("GET /livez HTTP/1.1", f"X-Request-Id: {value}", "Connection: close")
        )
        assert response.statuses == [200]
        assert b"x-request-id: req_" in response.text
        assert value.encode("latin-1") not in response.text
        assert b"set-cookie" not in response.text.lower()

    async def test_a_second_header_smuggled_into_the_first_is_just_a_header(self, server: ServerProcess):
        response = await send_raw(
            server.port, request("GET /livez HTTP/1.1", "X-Request-Id: a\r\nX-Evil: b", "Connection: close")
        )
        assert response.statuses == [200]
        assert b"x-evil" not in response.text.lower()

    @pytest.mark.parametrize(("size", "status"), [(60_000, 200), (66_000, 431), (300_000, 431)])
    async def test_headers_of_more_than_64_kib_are_refused(self, server: ServerProcess, size: int, status: int):
        big = "X-Big: " + SECRET * (size // len(SECRET))
        response = await send_raw(server.port, request("GET /livez HTTP/1.1", big, "Connection: close"))
        assert response.statuses == [status]
        assert (b"HEADERS_TOO_LARGE" in response.text) == (status == 431)

    async def test_a_huge_header_is_refused_before_it_is_read(self, server: ServerProcess):
        big = "X-Big: " + SECRET * (5_000_000 // len(SECRET))
        response = await send_raw(server.port, request("GET /livez HTTP/1.1", big))
        assert response.closed
        assert response.statuses in ([431], [])

    async def test_a_thousand_headers_are_refused(self, server: ServerProcess):
        response = await send_raw(
            server.port, request("GET /livez HTTP/1.1", *[f"X-{n}: {SECRET}" for n in range(1000)])
        )
        assert (response.statuses, response.closed) == ([431], True)

    async def test_headers_that_never_end_time_out(self, server: ServerProcess):
        response = await send_raw(server.port, b"GET /livez HTTP/1.1\r\n", *[b"X: y\r\n"] * 50, pause=0.1)
        assert response.closed
        assert response.seconds < HEADER_SECONDS + 4

    async def test_a_silent_connection_is_closed(self, server: ServerProcess):
        response = await send_raw(server.port, quiet=10)
        assert (response.text, response.closed) == (b"", True)

    @pytest.mark.parametrize(
        "text",
        [b"HELLO\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"GET /livez\r\n\r\n", b"GET /livez HTTP/9.9\r\n\r\n",
         b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0" * 1000, b"GET\t/livez\tHTTP/1.1\r\n\r\n",
         b"GET /a b HTTP/1.1\r\n\r\n"],
    )  # fmt: skip
    async def test_what_is_not_http_is_closed(self, server: ServerProcess, text: bytes):
        response = await send_raw(server.port, text)
        assert response.closed
        assert response.statuses in ([400], [])


class TestSmuggling:
    HIDDEN = f"GET /hidden-{SECRET} HTTP/1.1\r\nHost: test\r\n\r\n".encode()

    @pytest.mark.parametrize("order", [0, 1])
    async def test_content_length_with_chunked_ends_the_connection(self, server: ServerProcess, order: int):
        lengths = [f"Content-Length: {5 + len(self.HIDDEN)}", CHUNKED]
        head = request("POST /raw HTTP/1.1", *(reversed(lengths) if order else lengths))
        response = await send_raw(server.port, head + b"0\r\n\r\n" + self.HIDDEN)
        assert response.closed
        assert len(response.statuses) == 1

    @pytest.mark.parametrize(
        "lengths",
        [
            ["Content-Length: 5", "Content-Length: 6"],
            ["Content-Length: 5, 6"],
            ["Content-Length: -5"],
            ["Content-Length: +5"],
            ["Content-Length: 0x5"],
            ["Content-Length: 99999999999999999999999999"],
            ["Content-Length : 5"],
            ["Transfer-Encoding: xchunked"],
            ["Transfer-Encoding: chunked, identity"],
            ["Transfer-Encoding: identity", CHUNKED, "Transfer-Encoding: x"],
            ["Transfer-Encoding: \x0bchunked"],
        ],
    )
    async def test_an_ambiguous_length_is_refused(self, server: ServerProcess, lengths: list[str]):
        response = await send_raw(server.port, request("POST /raw HTTP/1.1", *lengths) + b"0\r\n\r\n" + self.HIDDEN)
        assert (response.statuses, response.closed) == ([400], True)


class TestUrls:
    @pytest.mark.parametrize(
        "path",
        ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//livez", "/livez/", "/livez/..%2f", "/LIVEZ", "/livez;a=b",
         "/.%00./x", "/%ff%fe", "/livez%0d%0aX:y", "http://evil.example/nope", "*", "/" * 5000, "/" + "%41" * 5000],
    )  # fmt: skip
    async def test_path_tricks_lead_nowhere(self, server: ServerProcess, path: str):
        response = await send_raw(server.port, request(f"GET {path} HTTP/1.1", "Connection: close"))
        assert response.statuses[0] in (400, 404)
        assert b"root:" not in response.text

    async def test_a_key_in_the_url_is_refused(self, server: ServerProcess):
        response = await send_raw(server.port, request(f"GET /livez?api_key={SECRET} HTTP/1.1", "Connection: close"))
        assert problem(response) == (400, "KEY_IN_URL")
        assert SECRET.encode() not in response.text

    async def test_a_query_is_never_logged(self, server: ServerProcess):
        response = await send_raw(server.port, request(f"GET /livez?note={SECRET} HTTP/1.1", "Connection: close"))
        assert response.statuses == [200]

    async def test_raw_utf8_in_a_query_reaches_the_route_as_utf8(self, server: ServerProcess):
        raw = "搜索".encode().decode("latin-1")  # `request` sends one byte a character
        head = f"GET /api/v1/events/log?topic={raw}%09 HTTP/1.1", f"X-API-Key: {ADMIN_KEY}", "Connection: close"
        response = await send_raw(server.port, request(*head))
        assert problem(response) == (400, "BAD_EVENT_QUERY")
        assert "'搜索\\\\t'" in response.text.decode()

    async def test_a_query_in_another_encoding_is_refused(self, server: ServerProcess):
        raw = "搜索".encode("gbk")
        response = await send_raw(server.port, request(f"GET /livez?q={quote(raw)} HTTP/1.1", "Connection: close"))
        assert problem(response) == (400, "BAD_URL")
        head = request(f"GET /livez?q={raw.decode('latin-1')} HTTP/1.1", "Connection: close")
        assert (await send_raw(server.port, head)).statuses == [400]

    async def test_ten_thousand_parameters_are_too_many(self, server: ServerProcess):
        query = "&".join(f"a{number}=1" for number in range(6000))
        response = await send_raw(server.port, request(f"GET /livez?{query} HTTP/1.1", "Connection: close"))
        assert problem(response) == (414, "URL_TOO_LONG")
        response = await send_raw(server.port, request(f"GET /livez?{query}&{query} HTTP/1.1", "Connection: close"))
        assert response.statuses == [414]

    @pytest.mark.parametrize("method", ["BREW", "A" * 5000, "get", "TRACE", "OPTIONS", "FOO'BAR"])
    async def test_unknown_methods_are_refused(self, server: ServerProcess, method: str):
        response = await send_raw(server.port, request(f"{method} /livez HTTP/1.1", "Connection: close"))
        assert problem(response) == (405, "BAD_METHOD")

    async def test_it_is_no_proxy(self, server: ServerProcess):
        response = await send_raw(server.port, request("CONNECT evil.example:443 HTTP/1.1"))
        assert response.statuses in ([404], [])


async def test_a_bug_with_a_secret_is_a_500_and_a_redacted_traceback(server: ServerProcess):
    response = await send_raw(server.port, request("GET /fail HTTP/1.1", f"X-Note: {SECRET}", "Connection: close"))
    assert problem(response) == (500, "INTERNAL")
    assert "RuntimeError: token=***" in await server.log()


async def test_five_hundred_silent_connections_block_no_one(server: ServerProcess):
    async with AsyncExitStack() as crowd:
        for _ in range(500):
            await crowd.enter_async_context(opened(server.port))
        response = await send_raw(server.port, request("GET /livez HTTP/1.1", "Connection: close"))
    assert response.statuses == [200]

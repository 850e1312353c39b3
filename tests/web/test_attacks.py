"""Attacks on a served process, by raw sockets: each gets a clear no, the server lives, and the log tells no secret."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest

from tests.servers.children import kill_child
from tests.web.attacked import ServedHouse
from tests.web.served import BODY_BYTES, BODY_SECONDS, HEADER_SECONDS
from tests.web.sockets import Heard, opened, request, talk

SECRET = "hunter2hunter2"  # part of every attack; it must show nowhere
JSON = "Content-Type: application/json"
CHUNKED = "Transfer-Encoding: chunked"


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHouse]:
    attacked = ServedHouse(tmp_path_factory.mktemp("attacked"))
    yield attacked
    kill_child(attacked.child)


@pytest.fixture
async def attacked(process: ServedHouse) -> AsyncIterator[ServedHouse]:
    """The process, which must live on after each attack and have told nothing."""
    await process.ready()
    yield process
    assert process.child.poll() is None
    assert await process.is_well()
    told = await process.log()
    assert SECRET not in told
    assert "Traceback" not in told or "token=***" in told


def problem(heard: Heard) -> tuple[int, str]:
    """The status and the code of the one answer."""
    [status] = heard.statuses
    body = heard.text.partition(b"\r\n\r\n")[2]
    return status, json.loads(body)["code"]


def chunk(part: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(part), part)


class TestBodies:
    async def test_a_gigabyte_that_is_announced_is_refused_unread(self, attacked: ServedHouse):
        head = request("POST /notes HTTP/1.1", JSON, "Content-Length: 1000000000")
        heard = await talk(attacked.port, head, b'{"text": "' + SECRET.encode(), quiet=5)
        assert problem(heard) == (413, "BODY_TOO_LARGE")
        assert heard.closed
        assert heard.seconds < 10

    @pytest.mark.parametrize("path", ["/notes", "/raw"])
    @pytest.mark.parametrize("kind", ["application/json", "application/octet-stream"])
    async def test_a_gigabyte_in_chunks_is_refused_when_it_is_too_much(
        self, attacked: ServedHouse, path: str, kind: str
    ):
        before = attacked.memory_bytes
        head = request(f"POST {path} HTTP/1.1", f"Content-Type: {kind}", CHUNKED)
        chunks = [chunk(SECRET.encode() * 5000)] * 14_300
        heard = await talk(attacked.port, head, *chunks)
        assert problem(heard) == (413, "BODY_TOO_LARGE")
        assert heard.sent_bytes < 50 * BODY_BYTES
        assert attacked.memory_bytes - before < 100_000_000

    @pytest.mark.parametrize("path", ["/notes", "/raw"])
    @pytest.mark.parametrize("kind", ["application/json", "application/octet-stream"])
    async def test_a_body_that_trickles_is_too_slow(self, attacked: ServedHouse, path: str, kind: str):
        head = request(f"POST {path} HTTP/1.1", f"Content-Type: {kind}", "Content-Length: 1000")
        heard = await talk(attacked.port, head, *[SECRET.encode()] * 60, pause=0.1)
        assert problem(heard) == (408, "BODY_TOO_SLOW")
        assert heard.closed
        assert heard.seconds < BODY_SECONDS + 4

    async def test_a_body_shorter_than_announced_is_bad(self, attacked: ServedHouse):
        head = request("POST /notes HTTP/1.1", JSON, "Content-Length: 1000")
        heard = await talk(attacked.port, head, b'{"text": "', half_close=True)
        assert heard.closed
        assert heard.statuses in ([], [400], [408])

    async def test_a_body_longer_than_announced_is_no_second_request(self, attacked: ServedHouse):
        head = request("POST /notes HTTP/1.1", JSON, "Content-Length: 13")
        heard = await talk(attacked.port, head + b'{"text": "a"}' + SECRET.encode() + b" /x HTTP/1.1\r\n\r\n")
        assert heard.statuses[0] == 200
        assert heard.statuses[1:] in ([], [400], [404])

    @pytest.mark.parametrize(
        "body",
        [b"[" * 100_000, b'{"text":' * 50_000, b'{"text": "' + SECRET.encode(), b'{"text": NaN}',
         b'{"text": "\xff"}', b'{"text": "a", "text": "b"}', b'{"text": 1e999}', b'{"text": ' + b"9" * 10_000 + b"}",
         b'{"text": "\\ud800"}'],
        ids=["deep list", "deep object", "cut", "NaN", "no UTF-8", "twice", "infinite", "long number", "half"],
    )  # fmt: skip
    async def test_odd_json_is_a_bad_body(self, attacked: ServedHouse, body: bytes):
        head = request("POST /notes HTTP/1.1", JSON, f"Content-Length: {len(body)}", "Connection: close")
        assert problem(await talk(attacked.port, head + body)) == (400, "BAD_BODY")

    async def test_a_broken_chunk_is_bad(self, attacked: ServedHouse):
        heard = await talk(attacked.port, request("POST /notes HTTP/1.1", JSON, CHUNKED) + b"zz\r\n{}\r\n0\r\n\r\n")
        assert heard.statuses == [400]
        assert heard.closed


class TestHeads:
    @pytest.mark.parametrize("value", ["a\0b", "a\rb", "a\r\n b"], ids=["NUL", "CR", "folded"])
    async def test_a_header_with_a_control_character_is_refused_by_the_server(self, attacked: ServedHouse, value: str):
        heard = await talk(attacked.port, request("GET /livez HTTP/1.1", f"X-Request-Id: {value}"))
        assert (heard.statuses, heard.closed) == ([400], True)

    @pytest.mark.parametrize("value", ["caf\xe9", "a b", "x" * 65, "<b>", "%0d%0aSet-Cookie:%20a=b", "a;b=c"])
    async def test_an_odd_request_id_is_not_given_back(self, attacked: ServedHouse, value: str):
        heard = await talk(attacked.port, request("GET /livez HTTP/1.1", f"X-Request-Id: {value}", "Connection: close"))
        assert heard.statuses == [200]
        assert b"x-request-id: req_" in heard.text
        assert value.encode("latin-1") not in heard.text
        assert b"set-cookie" not in heard.text.lower()

    async def test_a_second_header_smuggled_into_the_first_is_just_a_header(self, attacked: ServedHouse):
        heard = await talk(
            attacked.port, request("GET /livez HTTP/1.1", "X-Request-Id: a\r\nX-Evil: b", "Connection: close")
        )
        assert heard.statuses == [200]
        assert b"x-evil" not in heard.text.lower()

    @pytest.mark.parametrize("size", [200_000, 5_000_000])
    async def test_a_huge_header_is_refused(self, attacked: ServedHouse, size: int):
        heard = await talk(attacked.port, request("GET /livez HTTP/1.1", "X-Big: " + SECRET * (size // len(SECRET))))
        assert heard.closed
        assert heard.statuses in ([431], [])

    async def test_a_thousand_headers_are_refused(self, attacked: ServedHouse):
        heard = await talk(attacked.port, request("GET /livez HTTP/1.1", *[f"X-{n}: {SECRET}" for n in range(1000)]))
        assert (heard.statuses, heard.closed) == ([431], True)

    async def test_headers_that_never_end_are_given_up_on(self, attacked: ServedHouse):
        heard = await talk(attacked.port, b"GET /livez HTTP/1.1\r\n", *[b"X: y\r\n"] * 50, pause=0.1)
        assert heard.closed
        assert heard.seconds < HEADER_SECONDS + 4

    async def test_a_connection_that_says_nothing_is_closed(self, attacked: ServedHouse):
        heard = await talk(attacked.port, quiet=10)
        assert (heard.text, heard.closed) == (b"", True)

    @pytest.mark.parametrize(
        "text",
        [b"HELLO\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"GET /livez\r\n\r\n", b"GET /livez HTTP/9.9\r\n\r\n",
         b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0" * 1000, b"GET\t/livez\tHTTP/1.1\r\n\r\n",
         b"GET /a b HTTP/1.1\r\n\r\n"],
    )  # fmt: skip
    async def test_what_is_no_http_is_closed(self, attacked: ServedHouse, text: bytes):
        heard = await talk(attacked.port, text)
        assert heard.closed
        assert heard.statuses in ([400], [])


class TestSmuggling:
    HIDDEN = f"GET /hidden-{SECRET} HTTP/1.1\r\nHost: test\r\n\r\n".encode()

    @pytest.mark.parametrize("order", [0, 1])
    async def test_with_two_lengths_of_two_kinds_nothing_follows(self, attacked: ServedHouse, order: int):
        lengths = [f"Content-Length: {5 + len(self.HIDDEN)}", CHUNKED]
        head = request("POST /raw HTTP/1.1", *(reversed(lengths) if order else lengths))
        heard = await talk(attacked.port, head + b"0\r\n\r\n" + self.HIDDEN)
        assert heard.closed
        assert len(heard.statuses) == 1

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
    async def test_a_length_with_two_meanings_is_refused(self, attacked: ServedHouse, lengths: list[str]):
        heard = await talk(attacked.port, request("POST /raw HTTP/1.1", *lengths) + b"0\r\n\r\n" + self.HIDDEN)
        assert (heard.statuses, heard.closed) == ([400], True)


class TestAddresses:
    @pytest.mark.parametrize(
        "path",
        ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//livez", "/livez/", "/livez/..%2f", "/LIVEZ", "/livez;a=b",
         "/.%00./x", "/%ff%fe", "/livez%0d%0aX:y", "http://evil.example/nope", "*", "/" * 5000, "/" + "%41" * 5000],
    )  # fmt: skip
    async def test_paths_that_trick_others_lead_nowhere(self, attacked: ServedHouse, path: str):
        heard = await talk(attacked.port, request(f"GET {path} HTTP/1.1", "Connection: close"))
        assert heard.statuses[0] in (400, 404)
        assert b"root:" not in heard.text

    async def test_a_key_in_the_address_is_refused(self, attacked: ServedHouse):
        heard = await talk(attacked.port, request(f"GET /livez?api_key={SECRET} HTTP/1.1", "Connection: close"))
        assert problem(heard) == (400, "KEY_IN_URL")
        assert SECRET.encode() not in heard.text

    async def test_a_query_is_never_told(self, attacked: ServedHouse):
        heard = await talk(attacked.port, request(f"GET /livez?note={SECRET} HTTP/1.1", "Connection: close"))
        assert heard.statuses == [200]

    async def test_ten_thousand_parameters_are_too_many(self, attacked: ServedHouse):
        query = "&".join(f"a{number}=1" for number in range(6000))
        heard = await talk(attacked.port, request(f"GET /livez?{query} HTTP/1.1", "Connection: close"))
        assert problem(heard) == (414, "URL_TOO_LONG")
        heard = await talk(attacked.port, request(f"GET /livez?{query}&{query} HTTP/1.1", "Connection: close"))
        assert heard.statuses == [414]

    @pytest.mark.parametrize("method", ["BREW", "A" * 5000, "get", "TRACE", "OPTIONS", "FOO'BAR"])
    async def test_odd_methods_are_not_taken(self, attacked: ServedHouse, method: str):
        heard = await talk(attacked.port, request(f"{method} /livez HTTP/1.1", "Connection: close"))
        assert problem(heard) == (405, "BAD_METHOD")

    async def test_it_is_no_proxy(self, attacked: ServedHouse):
        heard = await talk(attacked.port, request("CONNECT evil.example:443 HTTP/1.1"))
        assert heard.statuses in ([404], [])


async def test_a_bug_that_names_a_secret_is_a_500_and_a_trace_without_it(attacked: ServedHouse):
    heard = await talk(attacked.port, request("GET /fail HTTP/1.1", f"X-Note: {SECRET}", "Connection: close"))
    assert problem(heard) == (500, "INTERNAL")
    assert "RuntimeError: token=***" in await attacked.log()


async def test_a_crowd_of_silent_connections_locks_nobody_out(attacked: ServedHouse):
    async with AsyncExitStack() as crowd:
        for _ in range(500):
            await crowd.enter_async_context(opened(attacked.port))
        heard = await talk(attacked.port, request("GET /livez HTTP/1.1", "Connection: close"))
    assert heard.statuses == [200]

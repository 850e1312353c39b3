"""Request bodies: limits on size and time, and strict JSON."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from penstock.kernel.http import request_body
from penstock.kernel.http.request_body import (
    BadBody,
    BodyTooLarge,
    BodyTooSlow,
    LimitedBody,
    check_json,
    read_body,
    replay_body,
)
from tests.asgi import DISCONNECT, STALL, Connection


class TestReadBody:
    async def test_a_body_in_parts_is_joined(self):
        assert await read_body(Connection([b"ab", b"", b"c"]).receive, max_bytes=3, seconds=5) == b"abc"

    async def test_a_body_that_is_too_large_is_refused_at_once(self):
        connection = Connection([b"abc", b"d", b"never read"])
        with pytest.raises(BodyTooLarge, match="larger than 3 bytes"):
            await read_body(connection.receive, max_bytes=3, seconds=5)
        assert connection.taken == 2

    async def test_a_body_that_stalls_is_too_slow(self):
        with pytest.raises(BodyTooSlow, match=r"within 0\.01 s"):
            await read_body(Connection([b"a", STALL]).receive, max_bytes=3, seconds=0.01)

    async def test_a_truncated_body_is_refused(self):
        with pytest.raises(BadBody, match="it is incomplete"):
            await read_body(Connection([b"a", DISCONNECT]).receive, max_bytes=3, seconds=5)

    async def test_a_read_body_is_replayed_before_what_follows(self):
        connection = Connection([b"abc"], closed_after_body=True)
        body = await read_body(connection.receive, max_bytes=3, seconds=5)
        receive = replay_body(body, connection.receive)
        assert await receive() == {"type": "http.request", "body": b"abc", "more_body": False}
        assert await receive() == {"type": "http.disconnect"}


class TestLimitedBody:
    async def test_what_fits_passes_as_it_comes(self):
        connection = Connection([b"ab", b"c"], closed_after_body=True)
        receive = LimitedBody(connection.receive, max_bytes=3, seconds=5).receive
        assert [await receive() for _ in range(3)] == [
            {"type": "http.request", "body": b"ab", "more_body": True},
            {"type": "http.request", "body": b"c", "more_body": False},
            {"type": "http.disconnect"},
        ]

    async def test_the_part_that_is_too_much_is_refused(self):
        receive = LimitedBody(Connection([b"ab", b"cd"]).receive, max_bytes=3, seconds=5).receive
        await receive()
        with pytest.raises(BodyTooLarge):
            await receive()

    async def test_the_time_is_counted_over_all_parts(self):
        receive = LimitedBody(Connection([b"ab", STALL]).receive, max_bytes=3, seconds=0.02).receive
        await receive()
        with pytest.raises(BodyTooSlow):
            await receive()

    async def test_waiting_for_a_disconnect_has_no_limit(self):
        left = asyncio.Event()

        async def receive() -> Message:
            if first.pop():
                return {"type": "http.request", "body": b"ab", "more_body": False}
            await left.wait()
            return {"type": "http.disconnect"}

        first = [False, True]
        timed = LimitedBody(receive, max_bytes=3, seconds=0.01).receive
        await timed()
        asyncio.get_running_loop().call_later(0.05, left.set)
        assert await timed() == {"type": "http.disconnect"}


DEEP = b"[" * 100_000
INVALID = {
    "cut off": (b'{"a": [1, 2', "not JSON"),
    "two values": (b"{} {}", "not JSON"),
    "single quotes": (b"{'a': 1}", "not JSON"),
    "a byte order mark": (b"\xef\xbb\xbf{}", "not JSON"),
    "a bare control character": (b'"\x01"', "not JSON"),
    "not UTF-8": (b'"\xff"', "not UTF-8"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
    "NaN": (b'{"a": NaN}', "NaN"),
    "Infinity": (b"[-Infinity]", "NaN"),
    "a key twice": (b'{"a": 1, "b": {"c": 1, "c": 2}}', "duplicate key"),
    "a number of 5,000 digits": (b"1" * 5000, "64 bits"),
    "more than 64 bits": (b"9223372036854775808", "64 bits"),
    "less than 64 bits": (b"-9223372036854775809", "64 bits"),
    "a fraction that is infinite": (b"1e999", "64 bits"),
    "deep nesting": (DEEP, "deep"),
    "deep nesting that closes": (b"[" * 5000 + b"]" * 5000, "deep"),
    "a hundred and one deep": (b'{"a":' * 101 + b"1" + b"}" * 101, "deep"),
    "NUL": (b'{"a": "x\\u0000y"}', "NUL"),
    "NUL in a key": (b'{"x\\u0000y": 1}', "NUL"),
    "a lone surrogate": (b'["\\ud83d"]', "lone surrogate"),
}


class TestCheckJson:
    @pytest.mark.parametrize(("body", "reason"), INVALID.values(), ids=INVALID)
    async def test_invalid_json_is_refused_with_its_reason(self, body: bytes, reason: str):
        with pytest.raises(BadBody, match=reason) as refused:
            await check_json(body)
        assert refused.value.in_chinese() != str(refused.value)

    @pytest.mark.parametrize(("body", "reason"), INVALID.values(), ids=INVALID)
    async def test_a_long_body_is_checked_alike(self, body: bytes, reason: str, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(request_body, "THREAD_BYTES", 0)
        with pytest.raises(BadBody, match=reason):
            await check_json(body)

    @pytest.mark.parametrize(
        "body",
        [
            b"9223372036854775807",
            b"-9223372036854775808",
            b"1.7976931348623157e308",
            b'{"a": 1, "b": {"a": 1}}',
            b'"\\\\u0000"',
            b'"\\ud83d\\ude00"',
            b"[" * 100 + b"]" * 100,
            b"[" + b"[]," * 500 + b"[]]",
        ],
    )
    async def test_what_is_only_unusual_passes(self, body: bytes):
        await check_json(body)

    @given(
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**63), 2**63 - 1)
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
            lambda inner: (
                st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5, alphabet="abc"), inner, max_size=5)
            ),
            max_leaves=30,
        )
    )
    async def test_whatever_json_dumps_writes_passes(self, value: object):
        await check_json(json.dumps(value).encode())


async def test_a_body_of_too_many_values_is_refused_before_it_is_parsed():
    tiny = b"[" + b"[]," * 600_000 + b"[]]"
    with pytest.raises(BadBody, match="more than 500000 values"):
        await check_json(tiny)
    await check_json(json.dumps({"csv": "a,b,c\n" * 300_000}).encode())  # commas in a string are not values
    await check_json(json.dumps({"quoted": '"a","b"\\' * 300_000}).encode())

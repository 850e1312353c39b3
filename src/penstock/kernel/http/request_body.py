"""Taking a body in: not too large, not too slow, and when it is JSON, of the kind that means one thing to everyone.

A JSON body is read whole and looked at before any route sees it. What one parser takes and the next one does not, or
what no database can keep, is refused here once and for all: bytes that are not UTF-8, NaN and Infinity, numbers beyond
64 bits, keys that come twice, NUL and half characters in strings, and towers of brackets. Other bodies are counted and
timed while a route reads them.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn

from starlette.types import Message, Receive

from penstock.kernel.errors import Invalid, PenstockError, TooLarge

MOST_DEPTH = 100
MOST_VALUES = 500_000  # reading more takes half a second, in which nobody else is served
STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
LARGEST_INTEGER = 2**63 - 1
INTEGER_DIGITS = 20  # a sign and nineteen digits: whatever is longer need not be read to be too large
IN_A_THREAD_BYTES = 256 * 1024  # takes some five milliseconds, for which the others should not wait
LINGER_BYTES = 8 * 1024 * 1024
LINGER_SECONDS = 1.0
SUSPECT = re.compile(r"\\u(?:0000|[dD][89abAB])")


class BodyTooLarge(TooLarge):
    """The request's body is larger than bodies may be."""

    code = "BODY_TOO_LARGE"
    message = "The body is larger than {most_bytes} bytes."
    message_zh = "请求体超过 {most_bytes} 字节。"
    hint = "Send less at once; PENSTOCK_BODY_BYTES sets the limit."
    hint_zh = "请减少单次发送的内容；上限由 PENSTOCK_BODY_BYTES 设定。"


class BodyTooSlow(Invalid):
    """The request's body did not arrive in time."""

    code = "BODY_TOO_SLOW"
    message = "The body did not arrive within {seconds:g} s."
    message_zh = "请求体未在 {seconds:g} 秒内到达。"
    hint = "Send it faster or in smaller parts; PENSTOCK_BODY_SECONDS sets the limit."
    hint_zh = "请加快发送或分成更小的部分；上限由 PENSTOCK_BODY_SECONDS 设定。"
    status = 408
    retryable = True


class BadBody(Invalid):
    """The request's body cannot be read."""

    code = "BAD_BODY"
    message = "The body cannot be read: {reason}."
    message_zh = "无法读取请求体：{reason_zh}。"
    hint = "Send one JSON value in UTF-8 as application/json, or, to upload, one form as multipart/form-data."
    hint_zh = "请以 application/json 发送一个 UTF-8 编码的 JSON 值；上传时请以 multipart/form-data 发送表单。"


def bad_body(reason: str, reason_zh: str) -> BadBody:
    """Why a body cannot be read, in both languages."""
    return BadBody(reason=reason, reason_zh=reason_zh)


def cut_off() -> BadBody:
    """The connection ended, or what came is no body in HTTP's terms."""
    return bad_body("it ended before it was whole", "内容不完整")


class _OddJson(ValueError):
    """JSON that a parser takes, and we do not; raised inside of one."""

    def __init__(self, reason: str, reason_zh: str) -> None:
        super().__init__(reason)
        self.named = bad_body(reason, reason_zh)


async def read_whole(receive: Receive, *, most_bytes: int, seconds: float) -> bytes:
    """The body of a request, or what is wrong with it. More than the limit is never held."""
    chunks, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            more = True
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise cut_off()
                chunk = message.get("body", b"")
                size += len(chunk)
                if size > most_bytes:
                    raise BodyTooLarge(most_bytes=most_bytes)
                chunks.append(chunk)
                more = message.get("more_body", False)
    except TimeoutError as error:
        raise BodyTooSlow(seconds=seconds) from error
    return b"".join(chunks)


def again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives a body that has been read already, and then what really comes."""
    given = False

    async def give() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return give


class CountedBody:
    """A `receive` that raises when more comes, or comes later, than may be."""

    def __init__(self, receive: Receive, *, most_bytes: int, seconds: float) -> None:
        self._receive = receive
        self._most_bytes = most_bytes
        self._seconds = seconds
        self._until = asyncio.get_running_loop().time() + seconds
        self._size = 0
        self._more = True
        self._raised: PenstockError | None = None

    async def receive(self) -> Message:
        """The next part."""
        if not self._more:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError as error:
            self._raised = BodyTooSlow(seconds=self._seconds)
            raise self._raised from error
        self._size += len(message.get("body", b""))
        if self._size > self._most_bytes:
            self._raised = BodyTooLarge(most_bytes=self._most_bytes)
            raise self._raised
        self._more = message.get("more_body", False)
        return message

    @property
    def too_large(self) -> bool:
        """Whether more came than may be."""
        return isinstance(self._raised, BodyTooLarge)

    def let_go(self) -> None:
        """Hold nothing any more. A framework's frame and the error that it met hold each other, and with them this
        object: until the garbage collector came by, the server would keep the connection and go on reading."""
        self._receive = _nothing_more
        error: BaseException | None = self._raised
        while error is not None:
            error.__traceback__ = None
            error = error.__cause__


async def _nothing_more() -> Message:
    return {"type": "http.disconnect"}


async def linger(receive: Receive) -> None:
    """Read on for a moment what nobody wants. A connection that is closed on someone who still sends is reset, and the
    answer that says why is lost on its way."""
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            while size < LINGER_BYTES:
                message = await receive()
                if not message.get("more_body", False):
                    return
                size += len(message.get("body", b""))


async def check_json(body: bytes) -> None:
    """Refuse what is not JSON, or is JSON that not everyone understands alike, or holds too many values to be read."""
    if _marks(body) > MOST_VALUES and _marks(STRING.sub(b"", body)) > MOST_VALUES:  # a text may hold commas, too
        raise bad_body(f"it holds more than {MOST_VALUES} values", f"包含超过 {MOST_VALUES} 个值")
    if len(body) > IN_A_THREAD_BYTES:
        await asyncio.to_thread(_check, body)
    else:
        _check(body)


def _marks(body: bytes) -> int:
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def _check(body: bytes) -> None:
    try:
        text = body.decode()
        value = DECODER.decode(text)
    except UnicodeDecodeError as error:
        raise bad_body("it is not UTF-8", "不是 UTF-8 编码") from error
    except RecursionError as error:
        raise bad_body("it is nested too deeply", "嵌套过深") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise bad_body(
            f"it is not JSON ({where})", f"不是合法的 JSON（第 {error.lineno} 行第 {error.colno} 列）"
        ) from error
    except _OddJson as error:
        raise error.named from error
    if text.count("[") + text.count("{") > MOST_DEPTH and _is_deep(value):
        raise bad_body(f"it is nested more than {MOST_DEPTH} deep", f"嵌套超过 {MOST_DEPTH} 层")
    if SUSPECT.search(text) and not all(map(_can_be_kept, _strings(value))):
        raise bad_body("a string holds NUL or half a character", "字符串中含有 NUL 或不完整的字符")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    held = dict(pairs)
    if len(held) != len(pairs):
        raise _OddJson("a key comes twice in one object", "同一对象中有重复的键")
    return held


def _integer(text: str) -> int:
    if len(text) > INTEGER_DIGITS or not -LARGEST_INTEGER - 1 <= (number := int(text)) <= LARGEST_INTEGER:
        raise _OddJson("a number does not fit into 64 bits", "数字超出 64 位范围")
    return number


def _fraction(text: str) -> float:
    number = float(text)
    if number - number != 0:  # true of infinity alone
        raise _OddJson("a number does not fit into 64 bits", "数字超出 64 位范围")
    return number


def _no_constant(_name: str) -> NoReturn:
    raise _OddJson("NaN and Infinity are no JSON", "NaN 与 Infinity 不是合法的 JSON")


DECODER = json.JSONDecoder(
    object_pairs_hook=_once, parse_int=_integer, parse_float=_fraction, parse_constant=_no_constant
)


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MOST_DEPTH):
        inner = (held.values() if type(held) is dict else held for held in level)
        level = [child for children in inner for child in children if type(child) in (dict, list)]
        if not level:
            return False
    return True


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, held in value.items():
            yield key
            yield from _strings(held)
    elif isinstance(value, list):
        for held in value:
            yield from _strings(held)


def _can_be_kept(text: str) -> bool:
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

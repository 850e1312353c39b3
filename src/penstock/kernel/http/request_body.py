"""Request bodies: limits on size and time, and strict JSON.

A JSON body is read whole and checked before any route sees it. What parsers disagree on, or what no database can store,
is refused here: bytes that are not UTF-8, NaN and Infinity, numbers beyond 64 bits, duplicate keys, NUL and lone
surrogates in strings, deep nesting, and too many values, which are counted before the body is parsed. A body that is
too large is refused at once by its Content-Length, or while it arrives if it is chunked. Bodies that are not JSON are
limited while a route reads them. After a response, the rest of a body that nobody has read is drained.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, NoReturn

from starlette.types import Message, Receive

from penstock.kernel.errors import Invalid, PenstockError, TooLarge
from penstock.kernel.json_schema.walk import levels

MAX_DEPTH = 100
MAX_VALUES = 500_000  # parsing more takes half a second, which blocks the event loop
STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
MAX_INTEGER = 2**63 - 1
MAX_DIGITS = 20  # a sign and nineteen digits; anything longer is too large
THREAD_BYTES = 256 * 1024  # checking takes about 5 ms; larger bodies are checked in a thread
# What is read of a refused body. Most clients send all of it before they read the response.
DRAIN_BYTES = 32 * 1024 * 1024
DRAIN_SECONDS = 10.0
DRAIN_IDLE_SECONDS = 1.0
PARSED_JSON = "parsed_json"  # in the state of a request with a large body, for the route that takes it
SUSPECT_ESCAPE = re.compile(r"\\u(?:0000|[dD][89abAB])")


class BodyTooLarge(TooLarge):
    """The request body exceeds the size limit."""

    code = "BODY_TOO_LARGE"
    message = "The request body is larger than {most_bytes} bytes."
    message_zh = "请求体超过 {most_bytes} 字节。"
    hint = "Send less per request; PENSTOCK_BODY_BYTES sets the limit."
    hint_zh = "请减少单次发送的内容；上限由 PENSTOCK_BODY_BYTES 设定。"


class UploadTooLarge(BodyTooLarge):
    """A file is larger than allowed, or than its announced length."""

    code = "UPLOAD_TOO_LARGE"
    message = "The file is larger than {most_bytes} bytes."
    message_zh = "文件超过 {most_bytes} 字节。"
    hint = "Split it; ETL_MAX_FILE_BYTES and GW_TUS_MAX_SIZE_GB set the limits."
    hint_zh = "请拆分文件；上限由 ETL_MAX_FILE_BYTES 与 GW_TUS_MAX_SIZE_GB 设定。"


class BodyTooSlow(Invalid):
    """The request body did not arrive in time."""

    code = "BODY_TOO_SLOW"
    message = "The request body did not arrive within {seconds:g} s."
    message_zh = "请求体未在 {seconds:g} 秒内到达。"
    hint = "Send it faster or split it into smaller requests; PENSTOCK_BODY_SECONDS sets the limit."
    hint_zh = "请加快发送或拆分为更小的请求；上限由 PENSTOCK_BODY_SECONDS 设定。"
    status = 408
    retryable = True


class BadBody(Invalid):
    """The request body cannot be read."""

    code = "BAD_BODY"
    message = "The request body cannot be read: {reason}."
    message_zh = "无法读取请求体：{reason_zh}。"
    hint = "Send one JSON value in UTF-8 as application/json; to upload, send a form as multipart/form-data."
    hint_zh = "请以 application/json 发送一个 UTF-8 编码的 JSON 值；上传时请以 multipart/form-data 发送表单。"


def bad_body(reason: str, reason_zh: str) -> BadBody:
    """A `BadBody` with its reason in both languages."""
    return BadBody(reason=reason, reason_zh=reason_zh)


def truncated_body() -> BadBody:
    """The connection ended before the body was complete, or its framing is invalid."""
    return bad_body("it is incomplete", "内容不完整")


class _RejectedJson(ValueError):
    """JSON that the parser accepts and we do not; raised by its hooks."""

    def __init__(self, reason: str, reason_zh: str) -> None:
        super().__init__(reason)
        self.error = bad_body(reason, reason_zh)


async def read_body(receive: Receive, *, max_bytes: int, seconds: float) -> bytes:
    """Read a whole body within its limits. More than `max_bytes` is never held in memory."""
    chunks, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            more = True
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise truncated_body()
                chunk = message.get("body", b"")
                size += len(chunk)
                if size > max_bytes:
                    raise BodyTooLarge(most_bytes=max_bytes)
                chunks.append(chunk)
                more = message.get("more_body", False)
    except TimeoutError as error:
        raise BodyTooSlow(seconds=seconds) from error
    return b"".join(chunks)


def replay_body(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns a body that was already read, and then the messages that follow it."""
    replayed = False

    async def replay() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


class LimitedBody:
    """A `receive` that raises when the body exceeds its limits of size or time."""

    def __init__(self, receive: Receive, *, max_bytes: int, seconds: float) -> None:
        self._receive = receive
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._size = 0
        self._more = True
        self._raised: PenstockError | None = None

    async def receive(self) -> Message:
        """The next message of the body."""
        if not self._more:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError as error:
            self._raised = BodyTooSlow(seconds=self._seconds)
            raise self._raised from error
        self._size += len(message.get("body", b""))
        if self._size > self._max_bytes:
            self._raised = BodyTooLarge(most_bytes=self._max_bytes)
            raise self._raised
        self._more = message.get("more_body", False)
        return message

    @property
    def too_slow(self) -> bool:
        """Whether the body exceeded its time limit."""
        return isinstance(self._raised, BodyTooSlow)

    def release(self) -> None:
        """Drop all references. A framework frame and the error it caught form a reference cycle with this object: until
        the garbage collector ran, the server would keep the connection and go on reading."""
        self._receive = _disconnected
        error: BaseException | None = self._raised
        while error is not None:
            error.__traceback__ = None
            error = error.__cause__ or error.__context__


async def _disconnected() -> Message:
    return {"type": "http.disconnect"}


class UnreadBody:
    """A `receive` that knows whether the whole body has arrived, so that the rest of a refused one can be drained."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._more = True

    async def __call__(self) -> Message:
        """The next message of the body."""
        message = await self._receive()
        self._more = message.get("more_body", False)
        return message

    def give_up(self) -> None:
        """Drain nothing, and keep no reference: the client is too slow."""
        self._more = False
        self._receive = _disconnected

    async def drain(self) -> None:
        """Read and discard the rest for a moment. A connection that is closed while the client still sends is reset,
        and the response that says why is lost."""
        size = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while self._more and size < DRAIN_BYTES:
                    async with asyncio.timeout(DRAIN_IDLE_SECONDS):
                        size += len((await self()).get("body", b""))


def is_large(body: bytes) -> bool:
    """Whether a body is worth a thread."""
    return len(body) > THREAD_BYTES


async def check_json(body: bytes) -> Any:
    """The parsed body. Raises `BadBody` when it is not JSON, is JSON that parsers disagree on, or holds too many
    values."""
    if (
        _count_values(body) > MAX_VALUES and _count_values(STRING.sub(b"", body)) > MAX_VALUES
    ):  # strings may hold commas
        raise bad_body(f"it holds more than {MAX_VALUES} values", f"包含超过 {MAX_VALUES} 个值")
    return await asyncio.to_thread(_check, body) if is_large(body) else _check(body)


def _count_values(body: bytes) -> int:
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def _check(body: bytes) -> Any:
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
    except _RejectedJson as error:
        raise error.error from error
    if text.count("[") + text.count("{") > MAX_DEPTH and any(islice(levels(value), MAX_DEPTH, None)):
        raise bad_body(f"it is nested more than {MAX_DEPTH} deep", f"嵌套超过 {MAX_DEPTH} 层")
    if SUSPECT_ESCAPE.search(text) and not all(map(_is_storable, _strings(value))):
        raise bad_body("a string holds NUL or a lone surrogate", "字符串中含有 NUL 或孤立的代理字符")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    parsed = dict(pairs)
    if len(parsed) != len(pairs):
        raise _RejectedJson("an object has a duplicate key", "同一对象中有重复的键")
    return parsed


def _parse_integer(text: str) -> int:
    if len(text) > MAX_DIGITS or not -MAX_INTEGER - 1 <= (number := int(text)) <= MAX_INTEGER:
        raise _RejectedJson("a number does not fit into 64 bits", "数字超出 64 位范围")
    return number


def _parse_float(text: str) -> float:
    number = float(text)
    if number - number != 0:  # true for infinity only
        raise _RejectedJson("a number does not fit into 64 bits", "数字超出 64 位范围")
    return number


def _reject_constant(_name: str) -> NoReturn:
    raise _RejectedJson("NaN and Infinity are not JSON", "NaN 与 Infinity 不是合法的 JSON")


DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_keys, parse_int=_parse_integer, parse_float=_parse_float, parse_constant=_reject_constant
)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _is_storable(text: str) -> bool:
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

"""HTTP to MinerU: every answer is bounded, every failure has a name, and the token goes to the endpoint only.

Answers to our own questions follow no redirect; results do, since they lie on other servers. What those and uploads are
asked with has no token. Of what a server says in its errors a short and plain piece is shown, without secrets.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from penstock.adapters.mineru.errors import MineruAway, MineruBusy, MineruKeyRefused, MineruResultRefused
from penstock.adapters.mineru.jobs import Sheet
from penstock.documents.blob_files import pieces_of
from penstock.kernel.json_object import JsonObject
from penstock.kernel.redact import BLOT, redact

ANSWER_BYTES = 4 * 1024 * 1024  # a batch of fifty files is told in 50 KB
SAID_CHARACTERS = 200
WORD_CHARACTERS = 20  # of a state or a code; the longest has twelve
REASONS = ("msg", "error", "message", "detail")  # where servers say what is wrong
MOST_REDIRECTS = 5
ASK_SECONDS = 120.0
MOVE_SECONDS = 300.0  # for an upload or a download
CONNECT_SECONDS = 30.0
BUSY_SECONDS = 30.0  # where a server does not say how long
MOST_BUSY_SECONDS = 3600.0
PIECE_BYTES = 1024 * 1024
AUTH = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The status of an answer, and the object in its body; an empty one where there is none."""

    status: int
    body: JsonObject


class Wire:
    """A session that is opened by its first call, inside the loop, and lives until `close`."""

    def __init__(self, address: str, token: str) -> None:
        self._address = address
        self._token = token
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, method: str, path: str, body: JsonObject | None = None) -> Answer:
        """One question to the endpoint."""
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        async with self._call(method, self._address + path, ASK_SECONDS, json=body, headers=headers) as answer:
            return await self._understood(answer)

    async def post_form(self, path: str, form: aiohttp.FormData) -> Answer:
        """A file and what is to be done with it, to a server of one's own."""
        async with self._call("POST", self._address + path, MOVE_SECONDS, data=form) as answer:
            return await self._understood(answer)

    async def put(self, url: str, file: Path) -> int:
        """A file to a signed address; the status that it got. A signature covers the headers, so there are few."""
        self._check_scheme(url)
        size = (await asyncio.to_thread(file.stat)).st_size
        headers = {"Content-Length": str(size)}
        skipped = ("Content-Type",)
        async with self._call(
            "PUT", url, MOVE_SECONDS, data=pieces_of(file), headers=headers, skip_auto_headers=skipped
        ) as answer:
            return answer.status

    async def fetch(self, url: str, sheet: Sheet) -> int:
        """What lies at an address, as a file; the status that was got. Redirects are followed, and no token is sent."""
        self._check_scheme(url)
        async with self._call("GET", url, MOVE_SECONDS, allow_redirects=True) as answer:
            self._check_scheme(answer.url)
            return await _written(answer, sheet)

    async def post_for_file(self, path: str, form: aiohttp.FormData, sheet: Sheet, seconds: float) -> Answer:
        """A file out and a file back in one call, which may take long. The body of a refusal is in the answer."""
        async with self._call("POST", self._address + path, seconds, data=form) as answer:
            if answer.status != HTTPStatus.OK:
                return await self._understood(answer)
            await _written(answer, sheet)
            return Answer(status=answer.status, body={"task_id": answer.headers.get("X-MinerU-Task-Id", "")})

    def said(self, words: object) -> str:
        """Words of a server as a short piece of plain text that has no secret in it."""
        text = str(words or "")
        if self._token:
            text = text.replace(self._token, BLOT)  # before it is cut: half a token is one too many
        plain = "".join(each if each.isprintable() else " " for each in redact(text[: 4 * SAID_CHARACTERS]))
        return plain[:SAID_CHARACTERS].strip().rstrip(".。") or "it does not say why"

    def word(self, value: object) -> str:
        """A state or a code, which is no more than a word."""
        return self.said(value)[:WORD_CHARACTERS]

    def reason(self, body: JsonObject) -> str:
        """What an answer says is wrong."""
        return self.said(next((body[name] for name in REASONS if body.get(name)), ""))

    async def close(self) -> None:
        """Close what is open."""
        if self._session is not None:
            await self._session.close()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept-Encoding": "identity"},
                auto_decompress=False,  # a small answer must not unfold into a large one
                trust_env=False,
            )
        return self._session

    @asynccontextmanager
    async def _call(
        self, method: str, url: str, seconds: float, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One call, bounded in time; whatever breaks on the way is `MineruAway`."""
        usual: dict[str, Any] = {"allow_redirects": False, "max_redirects": MOST_REDIRECTS}
        timeout = aiohttp.ClientTimeout(total=seconds, connect=min(seconds, CONNECT_SECONDS))
        try:
            async with self._opened().request(method, url, timeout=timeout, **{**usual, **options}) as answer:
                yield answer
        except TimeoutError as error:
            raise MineruAway(reason=f"nothing more came within {seconds:g} s") from error
        except aiohttp.ClientConnectorError as error:
            raise MineruAway(reason="no connection could be made") from error
        except (aiohttp.ClientError, ConnectionError, ValueError) as error:
            raise MineruAway(reason="the connection broke, or what came is no HTTP") from error

    async def _understood(self, answer: aiohttp.ClientResponse) -> Answer:
        content = await _bounded(answer)
        if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
            raise MineruBusy(wait_seconds=_retry_after(answer.headers), reason="HTTP 429")
        try:
            body = msgspec.json.decode(content, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if answer.status < HTTPStatus.BAD_REQUEST:
                raise MineruAway(reason="its answer is no JSON object") from error
            body = {}
        if answer.status in AUTH:
            raise MineruKeyRefused(reason=f"HTTP {answer.status}, {self.reason(body)}")
        if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise MineruAway(reason=f"HTTP {answer.status}, {self.reason(body)}")
        return Answer(status=answer.status, body=body)

    def _check_scheme(self, url: str | URL) -> None:
        """Addresses come from the other side; they may not lead from TLS to none, or out of HTTP."""
        allowed = {"https"} if self._address.startswith("https:") else {"http", "https"}
        try:
            scheme = URL(url).scheme
        except ValueError:
            scheme = ""
        if scheme not in allowed:
            raise MineruAway(reason=f"it names an address that is not {' or '.join(sorted(allowed))}")


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    read = bytearray()
    while some := await answer.content.read(PIECE_BYTES):
        read += some
        if len(read) > ANSWER_BYTES:
            raise MineruAway(reason=f"its answer is over {ANSWER_BYTES} bytes")
    return bytes(read)


async def _written(answer: aiohttp.ClientResponse, sheet: Sheet) -> int:
    """The body in a file, when it is a good one."""
    if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
        raise MineruBusy(wait_seconds=_retry_after(answer.headers), reason="HTTP 429")
    if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise MineruAway(reason=f"HTTP {answer.status} for a result")
    if answer.status != HTTPStatus.OK:
        return answer.status
    written = 0
    with await asyncio.to_thread(sheet.path.open, "wb") as file:
        while piece := await answer.content.read(PIECE_BYTES):
            written += len(piece)
            if written > sheet.most_bytes:
                raise MineruResultRefused(filename=sheet.filename, reason=f"it has over {sheet.most_bytes} bytes")
            await asyncio.to_thread(file.write, piece)
    return answer.status


def _retry_after(headers: Mapping[str, str]) -> float:
    """The wait that a server asks for in seconds; other forms are as good as none."""
    written = headers.get("Retry-After", "")
    seconds = float(written[:9]) if written.strip().isdecimal() else BUSY_SECONDS
    return min(max(seconds, 1.0), MOST_BUSY_SECONDS)

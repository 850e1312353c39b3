"""HTTP client for MinerU: bounded responses, mapped errors, and a token that goes to the endpoint only.

API calls follow no redirects; result downloads do, since results are on other servers. Downloads and uploads carry no
token. Messages from servers are shown truncated and redacted.
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

from penstock.adapters.mineru.errors import MineruBusy, MineruKeyRefused, MineruResultRefused, MineruUnavailable
from penstock.adapters.mineru.jobs import DownloadTarget
from penstock.documents.blob_files import file_chunks
from penstock.kernel.json_object import JsonObject
from penstock.kernel.redact import REDACTED, redact

ANSWER_BYTES = 4 * 1024 * 1024  # the status of fifty files has 50 KB
MESSAGE_CHARACTERS = 200
SHORT_CHARACTERS = 20  # of a state or a code; the longest has twelve
REASONS = ("msg", "error", "message", "detail")  # fields with an error message
MAX_REDIRECTS = 5
REQUEST_SECONDS = 120.0
MOVE_SECONDS = 300.0  # timeout of an upload or a download
CONNECT_SECONDS = 30.0
BUSY_SECONDS = 30.0  # for a 429 without a Retry-After
MAX_BUSY_SECONDS = 3600.0
PIECE_BYTES = 1024 * 1024
AUTH = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


@dataclass(frozen=True, kw_only=True)
class MineruResponse:
    """Status and JSON object of a response; an empty object if there is none."""

    status: int
    body: JsonObject


class MineruHttp:
    """A session that opens on its first call, inside the event loop, and lives until `close`."""

    def __init__(self, address: str, token: str) -> None:
        self._address = address
        self._token = token
        self._session: aiohttp.ClientSession | None = None

    async def request(self, method: str, path: str, body: JsonObject | None = None) -> MineruResponse:
        """One API call to the endpoint."""
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        async with self._call(method, self._address + path, REQUEST_SECONDS, json=body, headers=headers) as response:
            return await self._parse(response)

    async def post_form(self, path: str, form: aiohttp.FormData) -> MineruResponse:
        """Post a form with a file to a self-hosted server."""
        async with self._call("POST", self._address + path, MOVE_SECONDS, data=form) as response:
            return await self._parse(response)

    async def put(self, url: str, file: Path) -> int:
        """Upload a file to a presigned URL; returns the status. The signature covers the headers, so there are few."""
        self._check_scheme(url)
        size = (await asyncio.to_thread(file.stat)).st_size
        headers = {"Content-Length": str(size)}
        skipped = ("Content-Type",)
        async with self._call(
            "PUT", url, MOVE_SECONDS, data=file_chunks(file), headers=headers, skip_auto_headers=skipped
        ) as response:
            return response.status

    async def fetch(self, url: str, target: DownloadTarget) -> int:
        """Download a URL to a file; returns the status. Follows redirects and sends no token."""
        self._check_scheme(url)
        async with self._call("GET", url, MOVE_SECONDS, allow_redirects=True) as response:
            self._check_scheme(response.url)
            return await _save_body(response, target)

    async def post_for_file(
        self, path: str, form: aiohttp.FormData, target: DownloadTarget, seconds: float
    ) -> MineruResponse:
        """Post a file and receive the result in the same call, which may take long. A refusal is in the body."""
        async with self._call("POST", self._address + path, seconds, data=form) as response:
            if response.status != HTTPStatus.OK:
                return await self._parse(response)
            await _save_body(response, target)
            return MineruResponse(
                status=response.status, body={"task_id": response.headers.get("X-MinerU-Task-Id", "")}
            )

    def sanitized(self, words: object) -> str:
        """A server's message for display: short, printable, without secrets."""
        text = str(words or "")
        if self._token:
            text = text.replace(self._token, REDACTED)  # before truncation, which could leave half a token
        plain = "".join(each if each.isprintable() else " " for each in redact(text[: 4 * MESSAGE_CHARACTERS]))
        return plain[:MESSAGE_CHARACTERS].strip().rstrip(".。") or "no reason given"

    def short_text(self, value: object) -> str:
        """A state or an error code for display."""
        return self.sanitized(value)[:SHORT_CHARACTERS]

    def error_reason(self, body: JsonObject) -> str:
        """The error message of a response body."""
        return self.sanitized(next((body[name] for name in REASONS if body.get(name)), ""))

    async def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()

    def _get_session(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept-Encoding": "identity"},
                auto_decompress=False,  # guards against decompression bombs
                trust_env=False,
            )
        return self._session

    @asynccontextmanager
    async def _call(
        self, method: str, url: str, seconds: float, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One call, bounded in time; network errors raise `MineruUnavailable`."""
        usual: dict[str, Any] = {"allow_redirects": False, "max_redirects": MAX_REDIRECTS}
        timeout = aiohttp.ClientTimeout(total=seconds, connect=min(seconds, CONNECT_SECONDS))
        try:
            async with self._get_session().request(method, url, timeout=timeout, **{**usual, **options}) as response:
                yield response
        except TimeoutError as error:
            raise MineruUnavailable(reason=f"timed out after {seconds:g} s") from error
        except aiohttp.ClientConnectorError as error:
            raise MineruUnavailable(reason="cannot connect") from error
        except (aiohttp.ClientError, ConnectionError, ValueError) as error:
            raise MineruUnavailable(reason="the connection broke, or the response is not HTTP") from error

    async def _parse(self, response: aiohttp.ClientResponse) -> MineruResponse:
        content = await _bounded(response)
        if response.status == HTTPStatus.TOO_MANY_REQUESTS:
            raise MineruBusy(wait_seconds=_retry_after(response.headers), reason="HTTP 429")
        try:
            body = msgspec.json.decode(content, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if response.status < HTTPStatus.BAD_REQUEST:
                raise MineruUnavailable(reason="the response is not a JSON object") from error
            body = {}
        if response.status in AUTH:
            raise MineruKeyRefused(reason=f"HTTP {response.status}, {self.error_reason(body)}")
        if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise MineruUnavailable(reason=f"HTTP {response.status}, {self.error_reason(body)}")
        return MineruResponse(status=response.status, body=body)

    def _check_scheme(self, url: str | URL) -> None:
        """Check a URL given by the server: it must not downgrade from TLS or leave HTTP."""
        allowed = {"https"} if self._address.startswith("https:") else {"http", "https"}
        try:
            scheme = URL(url).scheme
        except ValueError:
            scheme = ""
        if scheme not in allowed:
            raise MineruUnavailable(reason=f"it returned a URL that is not {' or '.join(sorted(allowed))}")


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    read = bytearray()
    while some := await response.content.read(PIECE_BYTES):
        read += some
        if len(read) > ANSWER_BYTES:
            raise MineruUnavailable(reason=f"the response is longer than {ANSWER_BYTES} bytes")
    return bytes(read)


async def _save_body(response: aiohttp.ClientResponse, target: DownloadTarget) -> int:
    """Write a successful body to a file; returns the status."""
    if response.status == HTTPStatus.TOO_MANY_REQUESTS:
        raise MineruBusy(wait_seconds=_retry_after(response.headers), reason="HTTP 429")
    if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise MineruUnavailable(reason=f"HTTP {response.status} for a result")
    if response.status != HTTPStatus.OK:
        return response.status
    written = 0
    with await asyncio.to_thread(target.path.open, "wb") as file:
        while piece := await response.content.read(PIECE_BYTES):
            written += len(piece)
            if written > target.max_bytes:
                raise MineruResultRefused(filename=target.filename, reason=f"it has over {target.max_bytes} bytes")
            await asyncio.to_thread(file.write, piece)
    return response.status


def _retry_after(headers: Mapping[str, str]) -> float:
    """The Retry-After in seconds; other forms count as missing."""
    written = headers.get("Retry-After", "")
    seconds = float(written[:9]) if written.strip().isdecimal() else BUSY_SECONDS
    return min(max(seconds, 1.0), MAX_BUSY_SECONDS)

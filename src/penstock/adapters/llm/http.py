"""One POST to a model server, bounded in time and size. Network errors raise `ModelUnavailable`.

Redirects are not followed, since they would carry our key and a document elsewhere. Connections are not reused: one
that the server has closed looks like a failure, and a new one costs little compared with the answer.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import msgspec

from penstock.adapters.llm.servers import ModelServer
from penstock.documents.chat_model import ModelUnavailable
from penstock.kernel.json_object import JsonObject

log = logging.getLogger(__name__)

ANSWER_BYTES = 8 * 1024 * 1024
CHUNK_BYTES = 64 * 1024
CONNECT_SECONDS = 15.0  # a server that accepts no connection within this is down, however slow its answers


@dataclass(frozen=True, kw_only=True)
class LlmHttpResponse:
    """Status, headers and body of a response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class LlmHttp:
    """The HTTP client. Opens its session on the first call, inside the event loop."""

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._session: aiohttp.ClientSession | None = None

    async def post(self, server: ModelServer, body: JsonObject) -> LlmHttpResponse:
        """Post once and read the whole response."""
        headers = {"Content-Type": "application/json"}
        if server.api_key:
            headers["Authorization"] = f"Bearer {server.api_key}"
        sent = msgspec.json.encode(body)
        async with (
            _mapped_errors(server.name, self._seconds),
            self._get_session().post(server.url, data=sent, headers=headers, allow_redirects=False) as answer,
        ):
            return LlmHttpResponse(status=answer.status, headers=answer.headers, body=await _read(answer))

    async def close(self) -> None:
        """Close the session."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _get_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(force_close=True, limit=0),  # bounded by the concurrency slots
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS),
                headers={"Accept-Encoding": "identity"},
                auto_decompress=False,  # guards against decompression bombs
                trust_env=False,
            )
        return self._session


@asynccontextmanager
async def _mapped_errors(name: str, seconds: float) -> AsyncIterator[None]:
    """Bound a call in time and map network errors to reasons that contain no address."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except aiohttp.ConnectionTimeoutError as error:
        raise _unavailable(name, f"cannot connect within {CONNECT_SECONDS:g} s", error, unheard=True) from error
    except TimeoutError as error:
        raise _unavailable(name, f"no complete response within {seconds:g} s", error) from error
    except (aiohttp.ClientSSLError, aiohttp.ClientConnectorCertificateError) as error:
        raise _unavailable(name, "TLS failed: untrusted certificate, or no TLS server", error) from error
    except aiohttp.ClientConnectorError as error:
        raise _unavailable(name, "cannot connect", error, unheard=True) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise _unavailable(name, "the connection broke, or the response is not HTTP", error) from error


def _unavailable(name: str, reason: str, error: Exception, *, unheard: bool = False) -> ModelUnavailable:
    # Not %r: the repr of some of these errors shows the request headers with our key.
    log.warning("model server %s: %s: %s: %s", name, reason, type(error).__name__, error)
    return ModelUnavailable(reason=reason, in_short=reason, unheard=unheard)


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for some in answer.content.iter_chunked(CHUNK_BYTES):
        body += some
        if len(body) > ANSWER_BYTES:
            reason = f"the response is longer than {ANSWER_BYTES} bytes"
            raise ModelUnavailable(reason=reason, in_short=reason)
    return bytes(body)

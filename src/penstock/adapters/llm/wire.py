"""One POST to a server of models: bounded in time and bytes, and what goes wrong on the way is `ModelAway`.

Redirects are not followed, since they would carry our key and a document elsewhere. Connections are not kept: one that
the other end has closed meanwhile looks like a failure, and beside the seconds of an answer a new one costs little.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import msgspec

from penstock.adapters.llm.servers import Server
from penstock.documents.chat_model import ModelAway
from penstock.kernel.json_object import JsonObject

log = logging.getLogger(__name__)

ANSWER_BYTES = 8 * 1024 * 1024
CHUNK_BYTES = 64 * 1024
CONNECT_SECONDS = 15.0  # a server that takes no connection by then is away, however long its answers may take


@dataclass(frozen=True, kw_only=True)
class Arrived:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Wire:
    """The HTTP client; opened with the first call, inside the loop that makes it."""

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._session: aiohttp.ClientSession | None = None

    async def post(self, server: Server, body: JsonObject) -> Arrived:
        """Post once, and read the whole answer."""
        headers = {"Content-Type": "application/json"}
        if server.api_key:
            headers["Authorization"] = f"Bearer {server.api_key}"
        sent = msgspec.json.encode(body)
        async with (
            _named_faults(server.name, self._seconds),
            self._opened().post(server.url, data=sent, headers=headers, allow_redirects=False) as answer,
        ):
            return Arrived(status=answer.status, headers=answer.headers, body=await _read(answer))

    async def close(self) -> None:
        """Close what is open."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(force_close=True, limit=0),  # the gate's places bound them
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS),
                headers={"Accept-Encoding": "identity"},
                auto_decompress=False,  # a small answer must not unfold into a large one
                trust_env=False,
            )
        return self._session


@asynccontextmanager
async def _named_faults(name: str, seconds: float) -> AsyncIterator[None]:
    """Bounds a call in time, and names what can go wrong with a server in words of ours: no address is in them."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except aiohttp.ConnectionTimeoutError as error:
        raise _away(name, f"no connection came about within {CONNECT_SECONDS:g} s", error, unheard=True) from error
    except TimeoutError as error:
        raise _away(name, f"nothing whole came within {seconds:g} s", error) from error
    except (aiohttp.ClientSSLError, aiohttp.ClientConnectorCertificateError) as error:
        raise _away(name, "its certificate cannot be trusted, or it does not speak TLS", error) from error
    except aiohttp.ClientConnectorError as error:
        raise _away(name, "no connection could be made", error, unheard=True) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise _away(name, "the connection broke, or what came is no HTTP", error) from error


def _away(name: str, reason: str, error: Exception, *, unheard: bool = False) -> ModelAway:
    # Not %r: some of these errors show their request by it, with our key among its headers.
    log.warning("the model server %s: %s: %s: %s", name, reason, type(error).__name__, error)
    return ModelAway(reason=reason, in_short=reason, unheard=unheard)


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for some in answer.content.iter_chunked(CHUNK_BYTES):
        body += some
        if len(body) > ANSWER_BYTES:
            reason = f"its answer is longer than {ANSWER_BYTES} bytes"
            raise ModelAway(reason=reason, in_short=reason)
    return bytes(body)

"""Posting to addresses that outsiders gave us: a client that can only reach what `addresses.py` permits.

A name is looked up once per connection, and every address it has must be permitted: the connection is made to one of
those very addresses, so a name that changes its meaning in between (DNS rebinding) gains nothing. Each socket is looked
at again when it is made, which no way of writing an address gets around, and once more when it is connected, before a
byte is sent. Redirects, proxies and cookies are not known here, and of an answer no more than a bound is read.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from typing import Protocol

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client import ClientRequest, ClientResponse, ClientTimeout
from aiohttp.connector import AddrInfoType, Connection
from aiohttp.tracing import Trace

from penstock.adapters.addresses import readable_url
from penstock.notify.domain import AddressRefused, WebhookResponse, WebhookUnreachable

ANSWER_BYTES = 64 * 1024
CONNECTIONS = 100  # of one process; more wait for a free one within their own time
LOOKUP_THREADS = 16  # their own: names of slow servers must not keep the house's other threads busy
NO_SUCH_NAME = {socket.EAI_NONAME, socket.EAI_FAIL, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


class Permits(Protocol):
    """Says which addresses may be connected to."""

    def permits(self, address: str) -> bool:
        """Whether this one may."""
        ...


class Lookup(Protocol):
    """Finds the addresses of a name."""

    async def addresses(self, host: str) -> Sequence[str]:
        """All of them; `OSError` when there are none."""
        ...

    async def close(self) -> None:
        """Stop looking."""
        ...


class SystemLookup:
    """The machine's own resolver, in a few threads of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="lookup")

    async def addresses(self, host: str) -> Sequence[str]:
        """All of them; `OSError` when there are none."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, _look_up, host)

    async def close(self) -> None:
        """Stop looking; a thread that still waits for an answer ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str) -> list[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


class GuardedHttpClient:
    """The `Poster` of the house. Make it inside a running loop; close it afterwards."""

    def __init__(self, reach: Permits, *, seconds: float, lookup: Lookup | None = None) -> None:
        self._guard = _Guard(reach, lookup or SystemLookup())
        self._seconds = seconds
        self._session = aiohttp.ClientSession(
            connector=_GuardedConnector(self._guard),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=ClientTimeout(),  # `seconds` bounds the whole of it, the lookup and the answer included
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,  # a small answer must not unfold into a large one
            trust_env=False,
        )

    async def check(self, url: str) -> None:
        """Whether this address may be called now: `UrlRefused`, `AddressRefused` or `WebhookUnreachable` when not."""
        host = readable_url(url).raw_host or ""
        async with _answered(self._seconds):
            await self._guard.addresses(host)

    async def post(self, url: str, *, headers: Mapping[str, str], body: bytes) -> WebhookResponse:
        """Post once, following no redirect. A status counts as soon as it is there, however slow the rest comes."""
        target = readable_url(url)
        if _is_literal(host := target.raw_host or ""):
            self._guard.refuse_if_not_permitted(host, [host])  # for these no resolver is asked
        deadline = asyncio.get_running_loop().time() + self._seconds
        async with _answered(self._seconds):
            answer = await self._session.post(target, headers=headers, data=body, allow_redirects=False)
        try:
            return WebhookResponse(
                status=answer.status,
                text=await _beginning(answer, deadline),
                retry_after=answer.headers.get("Retry-After", ""),
            )
        finally:
            answer.close()

    async def close(self) -> None:
        """Close what is open."""
        await self._session.close()
        await self._guard.close()


class _Guard(AbstractResolver):
    """Looks names up and gives out permitted addresses only."""

    def __init__(self, reach: Permits, lookup: Lookup) -> None:
        self._reach = reach
        self._lookup = lookup

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """What aiohttp asks before it connects."""
        flags = socket.AI_NUMERICHOST
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=flags)
            for address in await self.addresses(host)
        ]

    async def addresses(self, host: str) -> Sequence[str]:
        """The addresses of a host, all of them permitted. One that is not makes the others suspect too."""
        found = [host] if _is_literal(host) else await self._look_up(host)
        self.refuse_if_not_permitted(host, found)
        return found

    async def _look_up(self, host: str) -> Sequence[str]:
        try:
            return list(dict.fromkeys(await self._lookup.addresses(host)))
        except socket.gaierror as error:
            if error.errno in NO_SUCH_NAME:
                raise AddressRefused(host=host) from error
            reason = f"the name {host} cannot be looked up for now"
            raise WebhookUnreachable(reason=reason, reason_zh=f"暂时无法解析域名 {host}") from error
        except UnicodeError as error:  # a label that is longer than any name's
            raise AddressRefused(host=host) from error

    def refuse_if_not_permitted(self, host: str, addresses: Sequence[str]) -> None:
        """`AddressRefused` unless there is an address and every one may be called."""
        if not addresses or not all(map(self._reach.permits, addresses)):
            raise AddressRefused(host=host)

    def socket_to(self, target: AddrInfoType) -> socket.socket:
        """A socket for one connection, refused unless where it is going is permitted."""
        family, kind, protocol, _, address = target
        if not self._reach.permits(str(address[0])):
            raise PermissionError("this address may not be called")
        return socket.socket(family, kind, protocol)

    def permits_peer(self, transport: asyncio.BaseTransport | None) -> bool:
        """Whether the other end of a connection is permitted."""
        peer = transport.get_extra_info("peername") if transport is not None else None
        return peer is not None and self._reach.permits(peer[0])

    async def close(self) -> None:
        """Stop looking names up."""
        await self._lookup.close()


class _GuardedConnector(aiohttp.TCPConnector):
    """Connects to permitted addresses, each time anew: a kept connection may have been closed by the other end."""

    def __init__(self, guard: _Guard) -> None:
        super().__init__(
            resolver=guard, use_dns_cache=False, socket_factory=guard.socket_to, limit=CONNECTIONS, force_close=True
        )
        self._guard = guard

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:
        """A connection whose other end was looked at; nothing has been sent yet."""
        connection = await super().connect(req, traces, timeout)
        if not self._guard.permits_peer(connection.transport):
            connection.close()
            raise AddressRefused(host=req.url.raw_host)
        return connection


def _is_literal(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


@asynccontextmanager
async def _answered(seconds: float) -> AsyncIterator[None]:
    """Bounds what it holds in time, and names what can go wrong with a receiver."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise WebhookUnreachable(
            reason=f"nothing came within {seconds:g} s", reason_zh=f"{seconds:g} 秒内没有收到任何内容"
        ) from error
    except (aiohttp.ClientSSLError, aiohttp.ClientConnectorCertificateError) as error:
        reason = "its certificate cannot be trusted, or it does not speak TLS"
        raise WebhookUnreachable(reason=reason, reason_zh="证书不可信，或对方不支持 TLS") from error
    except aiohttp.ClientConnectorError as error:
        raise WebhookUnreachable(reason="no connection could be made", reason_zh="无法建立连接") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        reason = "the connection broke, or what came is no HTTP"
        raise WebhookUnreachable(reason=reason, reason_zh="连接中断，或收到的内容不是 HTTP") from error


async def _beginning(answer: ClientResponse, deadline: float) -> str:
    """As much of an answer as is text, is within the bound and comes in time."""
    read = bytearray()
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout_at(deadline):
            while len(read) < ANSWER_BYTES and (some := await answer.content.read(ANSWER_BYTES - len(read))):
                read += some
    kind = answer.content_type
    if "Content-Encoding" in answer.headers or not (kind.startswith("text/") or kind.endswith(("json", "xml"))):
        return ""
    return read.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")

"""HTTP client for URLs given by users, guarded against SSRF: it reaches no internal address (`addresses.py`).

A host name is resolved once per connection, every address must be permitted, and the connection goes to one of these
addresses, so DNS rebinding gains nothing. Each socket is checked when it is created, whatever notation the address had,
and its peer again once connected, before any byte is sent. Redirects, proxies and cookies are off, and the response
body is read up to a limit.
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

from penstock.adapters.addresses import parse_url
from penstock.notify.domain import AddressRefused, WebhookResponse, WebhookUnreachable

MAX_RESPONSE_BYTES = 64 * 1024
CONNECTIONS = 100  # per process; further requests wait for a free one within their own timeout
DNS_THREADS = 16  # a pool of its own: slow DNS servers must not occupy the default executor
NO_SUCH_NAME = {socket.EAI_NONAME, socket.EAI_FAIL, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


class AddressFilter(Protocol):
    """Decides which addresses may be connected to."""

    def permits(self, address: str) -> bool:
        """Whether this address may."""
        ...


class HostResolver(Protocol):
    """Resolves host names."""

    async def addresses(self, host: str) -> Sequence[str]:
        """All addresses of a host; `OSError` if there are none."""
        ...

    async def close(self) -> None:
        """Stop resolving."""
        ...


class SystemResolver:
    """The system resolver, in a thread pool of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(DNS_THREADS, thread_name_prefix="lookup")

    async def addresses(self, host: str) -> Sequence[str]:
        """All addresses of a host; `OSError` if there are none."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, _resolve_host, host)

    async def close(self) -> None:
        """Stop resolving; a thread that still waits for DNS ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _resolve_host(host: str) -> list[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


class GuardedHttpClient:
    """The `WebhookClient` that calls public addresses only. Create it inside a running loop; close it afterwards."""

    def __init__(self, policy: AddressFilter, *, seconds: float, dns: HostResolver | None = None) -> None:
        self._resolver = _GuardedResolver(policy, dns or SystemResolver())
        self._seconds = seconds
        self._session = aiohttp.ClientSession(
            connector=_GuardedConnector(self._resolver),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=ClientTimeout(),  # `seconds` bounds everything, including DNS and the response
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,  # guards against decompression bombs
            trust_env=False,
        )

    async def check(self, url: str) -> None:
        """Raise `UrlRefused`, `AddressRefused` or `WebhookUnreachable` if this URL cannot be called now."""
        host = parse_url(url).raw_host or ""
        async with _bounded(self._seconds):
            await self._resolver.addresses(host)

    async def post(self, url: str, *, headers: Mapping[str, str], body: bytes) -> WebhookResponse:
        """Post once, without following redirects. The status counts even if the body is slow."""
        target = parse_url(url)
        if _is_ip_address(host := target.raw_host or ""):
            self._resolver.check_permitted(host, [host])  # aiohttp does not resolve IP addresses
        deadline = asyncio.get_running_loop().time() + self._seconds
        async with _bounded(self._seconds):
            response = await self._session.post(target, headers=headers, data=body, allow_redirects=False)
        try:
            return WebhookResponse(
                status=response.status,
                text=await _read_text(response, deadline),
                retry_after=response.headers.get("Retry-After", ""),
            )
        finally:
            response.close()

    async def close(self) -> None:
        """Close the session and the resolver."""
        await self._session.close()
        await self._resolver.close()


class _GuardedResolver(AbstractResolver):
    """Resolves host names to permitted addresses only."""

    def __init__(self, policy: AddressFilter, dns: HostResolver) -> None:
        self._policy = policy
        self._dns = dns

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Called by aiohttp before it connects."""
        flags = socket.AI_NUMERICHOST
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=flags)
            for address in await self.addresses(host)
        ]

    async def addresses(self, host: str) -> Sequence[str]:
        """The addresses of a host. Refuses the host if any of them is not permitted."""
        found = [host] if _is_ip_address(host) else await self._resolve_host(host)
        self.check_permitted(host, found)
        return found

    async def _resolve_host(self, host: str) -> Sequence[str]:
        try:
            return list(dict.fromkeys(await self._dns.addresses(host)))
        except socket.gaierror as error:
            if error.errno in NO_SUCH_NAME:
                raise AddressRefused(host=host) from error
            reason = f"the host {host} cannot be resolved for now"
            raise WebhookUnreachable(reason=reason, reason_zh=f"暂时无法解析域名 {host}") from error
        except UnicodeError as error:  # a label too long for DNS
            raise AddressRefused(host=host) from error

    def check_permitted(self, host: str, addresses: Sequence[str]) -> None:
        """`AddressRefused` unless there is an address and all are permitted."""
        if not addresses or not all(map(self._policy.permits, addresses)):
            raise AddressRefused(host=host)

    def create_socket(self, target: AddrInfoType) -> socket.socket:
        """Create the socket of one connection, refused unless its target is permitted."""
        family, kind, protocol, _, address = target
        if not self._policy.permits(str(address[0])):
            raise PermissionError("this address is not permitted")
        return socket.socket(family, kind, protocol)

    def permits_peer(self, transport: asyncio.BaseTransport | None) -> bool:
        """Whether the peer of a connection is permitted."""
        peer = transport.get_extra_info("peername") if transport is not None else None
        return peer is not None and self._policy.permits(peer[0])

    async def close(self) -> None:
        """Stop resolving."""
        await self._dns.close()


class _GuardedConnector(aiohttp.TCPConnector):
    """Connects to permitted addresses, with a new connection each time: the peer may have closed an idle one."""

    def __init__(self, guard: _GuardedResolver) -> None:
        super().__init__(
            resolver=guard, use_dns_cache=False, socket_factory=guard.create_socket, limit=CONNECTIONS, force_close=True
        )
        self._guard = guard

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:
        """A connection whose peer was checked; nothing has been sent yet."""
        connection = await super().connect(req, traces, timeout)
        if not self._guard.permits_peer(connection.transport):
            connection.close()
            raise AddressRefused(host=req.url.raw_host)
        return connection


def _is_ip_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


@asynccontextmanager
async def _bounded(seconds: float) -> AsyncIterator[None]:
    """Bound the block in time and map network errors to `WebhookUnreachable`."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise WebhookUnreachable(reason=f"timed out after {seconds:g} s", reason_zh=f"{seconds:g} 秒后超时") from error
    except (aiohttp.ClientSSLError, aiohttp.ClientConnectorCertificateError) as error:
        reason = "TLS failed: untrusted certificate, or no TLS server"
        raise WebhookUnreachable(reason=reason, reason_zh="TLS 失败：证书不可信，或对方不支持 TLS") from error
    except aiohttp.ClientConnectorError as error:
        raise WebhookUnreachable(reason="cannot connect", reason_zh="无法建立连接") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        reason = "the connection broke, or the response is not HTTP"
        raise WebhookUnreachable(reason=reason, reason_zh="连接中断，或响应不是 HTTP") from error


async def _read_text(response: ClientResponse, deadline: float) -> str:
    """The beginning of a text response: up to MAX_RESPONSE_BYTES, and what arrives before the deadline."""
    read = bytearray()
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout_at(deadline):
            while len(read) < MAX_RESPONSE_BYTES and (
                some := await response.content.read(MAX_RESPONSE_BYTES - len(read))
            ):
                read += some
    kind = response.content_type
    if "Content-Encoding" in response.headers or not (kind.startswith("text/") or kind.endswith(("json", "xml"))):
        return ""
    return read.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")

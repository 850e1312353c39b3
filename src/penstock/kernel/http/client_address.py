"""The address of the client behind trusted proxies.

A proxy tells in `X-Forwarded-For` or `Forwarded` for whom it forwards; so can anyone. The headers are read only if the
peer of the connection is a trusted proxy, and from the right: each proxy appends the address it was called from, so the
first address that is not a trusted proxy's is the client's, and everything before it is what the client wrote.

A proxy that sets one of the headers may pass the other through as the client sent it. If both are there and disagree,
neither is believed, and the address is the proxy's.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Self

from starlette.types import ASGIApp, Receive, Scope, Send

RawHeaders = Iterable[tuple[bytes, bytes]]
Address = IPv4Address | IPv6Address
MAX_HOPS = 20  # a longer chain is not believed


@dataclass(frozen=True, kw_only=True)
class TrustedProxies:
    """The networks whose hosts tell the truth about their clients."""

    networks: Sequence[IPv4Network | IPv6Network] = ()

    @classmethod
    def of(cls, listed: str) -> Self:
        """From comma-separated addresses or networks; raises `ValueError`."""
        return cls(networks=[ip_network(part.strip(), strict=False) for part in listed.split(",") if part.strip()])

    def trusts(self, address: str) -> bool:
        """Whether a proxy with this address is trusted."""
        parsed = _parse(address)
        return parsed is not None and any(parsed in network for network in self.networks)

    def find_client(self, peer: str, headers: RawHeaders) -> str:
        """The client for which a trusted peer forwards; the peer itself if it does not say."""
        given = list(headers)
        chains = [list(_forwarded_for(given)), list(_forwarded(given))]
        found = {self._client_of(chain, peer) for chain in chains if chain}
        return found.pop() if len(found) == 1 else peer

    def _client_of(self, chain: Sequence[str], peer: str) -> str:
        client = peer
        for hop in reversed(chain[-MAX_HOPS:]):
            parsed = _parse(hop)
            if parsed is None:  # "unknown", a hidden name, or made up: whoever is behind it
                return client
            client = str(parsed)
            if not self.trusts(client):
                return client
        return client


class ClientAddress:
    """ASGI middleware that replaces the peer of a request with its client, if the peer is a trusted proxy."""

    def __init__(self, app: ASGIApp, *, proxies: TrustedProxies) -> None:
        self._app = app
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        peer = scope.get("client")
        if peer is not None and self._proxies.trusts(peer[0]):
            scope["client"] = (self._proxies.find_client(peer[0], scope["headers"]), 0)
        await self._app(scope, receive, send)


def _forwarded_for(headers: RawHeaders) -> Iterator[str]:
    for name, value in headers:
        if name == b"x-forwarded-for":
            yield from (hop.strip() for hop in value.decode("latin-1").split(","))


def _forwarded(headers: RawHeaders) -> Iterator[str]:
    for name, value in headers:
        if name == b"forwarded":
            for element in value.decode("latin-1").split(","):
                pairs = (pair.strip().partition("=") for pair in element.split(";"))
                yield next((text.strip().strip('"') for word, _, text in pairs if word.strip().lower() == "for"), "")


def _parse(hop: str) -> Address | None:
    """The address of a hop, which may have a port and, for IPv6, brackets; an IPv4-mapped one as IPv4."""
    host = hop[1:].partition("]")[0] if hop.startswith("[") else hop if hop.count(":") != 1 else hop.partition(":")[0]
    try:
        parsed = ip_address(host)
    except ValueError:
        return None
    return (parsed.ipv4_mapped or parsed) if isinstance(parsed, IPv6Address) else parsed

"""Which host names and origins a request without a credential may carry.

A web page that someone visits can send requests to a server on their machine or in their network: to its address, with
the page's `Origin`; or, by DNS rebinding, to the page's own host name that now resolves to the server, with that name
in `Host`. Neither works with a key, which the page does not know. So a request without one is refused unless its `Host`
is ours, and its `Origin`, if a browser sent one, too.

Ours are loopback names and addresses, the address that the server listens on, and PENSTOCK_ALLOWED_HOSTS. A server that
listens on every address takes any IP address and the name of its machine: a rebinding page has a name of its own.
"""

import socket
from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Self
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from penstock.access.errors import ForeignHost, ForeignOrigin

ANY = "*"


@dataclass(frozen=True, kw_only=True)
class AllowedHosts:
    """The host names and origins that are ours."""

    names: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()  # of PENSTOCK_CORS_ORIGINS
    bound: str = ""  # the address that the server listens on

    @classmethod
    def of(cls, names: str, origins: str = "") -> Self:
        """From the comma-separated lists of the settings."""
        return cls(names=frozenset(map(_name_of, _parts(names))), origins=frozenset(_parts(origins.lower())))

    def bound_to(self, host: str) -> "AllowedHosts":
        """With the address that the server listens on."""
        return replace(self, bound=host.lower())

    def check(self, headers: Headers) -> None:
        """Raise `ForeignHost` or `ForeignOrigin`. A request without `Host` is not from a browser."""
        hosts = headers.getlist("host")
        for host in hosts:
            if not self._is_ours(_name_of(host)):
                raise ForeignHost(host=_shown(host))
        for origin in headers.getlist("origin"):
            if not self._is_origin(origin.strip().lower(), hosts):
                raise ForeignOrigin(origin=_shown(origin))

    def _is_ours(self, name: str) -> bool:
        if ANY in self.names or name in self.names or name == "localhost" or name.endswith(".localhost"):
            return True
        address, bound = _address(name), _address(self.bound)
        if address is not None and (address.is_loopback or address == bound):
            return True
        if bound is None:
            return bool(name) and name == self.bound
        return bound.is_unspecified and (address is not None or name == socket.gethostname().lower())

    def _is_origin(self, origin: str, hosts: Iterable[str]) -> bool:
        """Whether an origin is the host that was asked, one of the setting, or one that CORS allows."""
        if ANY in self.names or origin in self.origins:
            return True
        site = urlsplit(origin).netloc
        return bool(site) and (_name_of(site) in self.names or site in {host.strip().lower() for host in hosts})


def _parts(listed: str) -> list[str]:
    return [part.strip() for part in listed.split(",") if part.strip()]


def _name_of(host: str) -> str:
    """The name in a `Host` header, without port, brackets and final dot."""
    text = host.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    name = text if text.count(":") > 1 else text.partition(":")[0]
    return name.removesuffix(".")


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name)
    except ValueError:
        return None


def _shown(value: str) -> str:
    return value[:100]

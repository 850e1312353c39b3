"""SSRF guard: which addresses may be called through a URL that a user gave us.

A user's URL must not reach what only we can reach: this host, its network, a cloud's metadata service. An address is
allowed if it is public or inside a network that the operator allowed. The lists are written out because
`ipaddress.is_global` changes with Python patch releases. IPv6 forms that embed an IPv4 address are judged by the
embedded address; tunnels with an unknown endpoint are refused.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from yarl import URL

from penstock.notify.domain import MAX_URL_CHARACTERS, AddressRefused, UrlRefused

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

NON_PUBLIC = tuple(
    ip_network(network)
    for network in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",  # private
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # Azure metadata, at an address that looks public
        "169.254.0.0/16",  # link-local, and the metadata service of most clouds
        "192.0.0.0/24", "192.88.99.0/24",  # protocol assignments, 6to4 relays
        "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24",  # documentation
        "198.18.0.0/15",  # benchmarking
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved and broadcast
        "2001::/23",  # protocol assignments, including Teredo tunnels
        "2001:db8::/32", "3fff::/20",  # documentation
        "2002::/16",  # 6to4 tunnels
    )
)  # fmt: skip
UNICAST = IPv6Network("2000::/3")  # all allocated IPv6; excludes loopback, link-local, ULA and multicast
NAT64 = IPv6Network("64:ff9b::/96")
# Well-known ports of other protocols: such a server might interpret a posted body as commands.
BLOCKED_PORTS = frozenset({
    0, 19, 20, 21, 22, 23, 25, 53, 69, 110, 111, 119, 123, 135, 137, 138, 139, 143, 161, 179, 389, 445, 465, 512, 513,
    514, 515, 587, 636, 873, 993, 995, 1080, 1433, 1521, 2049, 2375, 2379, 3306, 3389, 5432, 5672, 5900, 6379, 9042,
    11211, 27017,
})  # fmt: skip
HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?\.?", re.ASCII)
NUMBER = re.compile(r"\d+|0x[0-9a-f]*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class AddressPolicy:
    """What may be called: the public internet and the networks allowed by the operator."""

    allowed: tuple[Network, ...] = ()

    @classmethod
    def of(cls, networks: Iterable[str]) -> "AddressPolicy":
        """The policy that allows these networks; `ValueError` for an invalid network."""
        return cls(allowed=tuple(ip_network(network.strip()) for network in networks if network.strip()))

    def permits(self, address: str) -> bool:
        """Whether this address may be connected to. An invalid address may not."""
        try:
            found = _embedded_ipv4(ip_address(address))
        except ValueError:
            return False
        return any(found in network for network in self.allowed) or _is_public(found)


def _embedded_ipv4(address: Address) -> Address:
    """The embedded IPv4 address of a mapped or NAT64 address; any other address unchanged."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return IPv4Address(int(address) & 0xFFFFFFFF) if address in NAT64 else address


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address) and address not in UNICAST:
        return False
    return not any(address in network for network in NON_PUBLIC)


def parse_url(text: str) -> URL:
    """Parse a URL that can be posted to. Does not check where it leads."""
    if len(text) > MAX_URL_CHARACTERS:
        most = MAX_URL_CHARACTERS
        raise UrlRefused(reason=f"it is longer than {most} characters", reason_zh=f"超过 {most} 个字符")
    if not text.isprintable() or " " in text:
        raise UrlRefused(reason="it contains spaces or non-printable characters", reason_zh="含有空格或不可见字符")
    try:
        url = URL(text)
        host, port = url.raw_host or "", url.port
    except ValueError as error:
        raise UrlRefused(reason="it is not a valid URL", reason_zh="无法解析为 URL") from error
    if url.scheme not in {"http", "https"}:
        raise UrlRefused(reason="it is neither http nor https", reason_zh="既不是 http 也不是 https")
    if url.user is not None or url.password is not None:
        raise UrlRefused(reason="it contains a user name or a password", reason_zh="包含用户名或密码")
    if port in BLOCKED_PORTS:
        raise UrlRefused(reason=f"port {port} is not allowed for HTTP", reason_zh=f"端口 {port} 不用于 HTTP")
    _check_host(host)
    return url


def _check_host(host: str) -> None:
    """Refuse numeric hosts in unusual notation (127.1, 0x7f000001): resolvers disagree on what they mean."""
    try:
        ip_address(host)
    except ValueError:
        if not HOST.fullmatch(host):
            reason = "its host is neither a host name nor an IP address"
            raise UrlRefused(reason=reason, reason_zh="主机既不是域名也不是地址") from None
        if NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
            raise AddressRefused(host=host) from None

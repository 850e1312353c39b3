"""Which addresses of the internet may be called on an outsider's word.

An outsider's URL must not reach what only we can reach: this machine, its network, a cloud's metadata. So an address is
public, or inside a network that the operator allowed, or it is refused. The lists are written out, not taken from
`ipaddress.is_global`, whose opinion changes with Python's patch releases. Forms of IPv6 that carry an IPv4 address are
judged by the address they carry; tunnels whose end we cannot see are refused.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from yarl import URL

from penstock.notify.domain import MOST_URL_CHARACTERS, AddressRefused, UrlRefused

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

NOT_PUBLIC = tuple(
    ip_network(network)
    for network in (
        "0.0.0.0/8",  # this machine
        "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",  # private
        "100.64.0.0/10",  # behind a carrier's NAT
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # the metadata of one cloud, at an address that looks public
        "169.254.0.0/16",  # link-local, and the metadata of most clouds
        "192.0.0.0/24", "192.88.99.0/24",  # protocol assignments, 6to4 relays
        "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24",  # documentation
        "198.18.0.0/15",  # benchmarks
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        "2001::/23",  # protocol assignments, Teredo tunnels among them
        "2001:db8::/32", "3fff::/20",  # documentation
        "2002::/16",  # 6to4 tunnels
    )
)  # fmt: skip
UNICAST = IPv6Network("2000::/3")  # all of IPv6 that is given out; loopback, link-local, ULA and multicast are outside
NAT64 = IPv6Network("64:ff9b::/96")
# Ports of well-known servers that are not HTTP: a body posted there could be taken for their own words.
NOT_HTTP = frozenset({
    0, 19, 20, 21, 22, 23, 25, 53, 69, 110, 111, 119, 123, 135, 137, 138, 139, 143, 161, 179, 389, 445, 465, 512, 513,
    514, 515, 587, 636, 873, 993, 995, 1080, 1433, 1521, 2049, 2375, 2379, 3306, 3389, 5432, 5672, 5900, 6379, 9042,
    11211, 27017,
})  # fmt: skip
HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?\.?", re.ASCII)
NUMBER = re.compile(r"\d+|0x[0-9a-f]*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What may be called: the public internet and the networks that the operator allowed."""

    allowed: tuple[Network, ...] = ()

    @classmethod
    def of(cls, networks: Iterable[str]) -> "Reach":
        """The reach with these networks allowed; `ValueError` for one that is none."""
        return cls(allowed=tuple(ip_network(network.strip()) for network in networks if network.strip()))

    def permits(self, address: str) -> bool:
        """Whether this address may be connected to. What is no address is refused."""
        try:
            found = _plain(ip_address(address))
        except ValueError:
            return False
        return any(found in network for network in self.allowed) or _is_public(found)


def _plain(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for, where it does."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return IPv4Address(int(address) & 0xFFFFFFFF) if address in NAT64 else address


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address) and address not in UNICAST:
        return False
    return not any(address in network for network in NOT_PUBLIC)


def readable_url(text: str) -> URL:
    """The URL that a text is, if it is one that can be posted to at all; where it leads is not looked at yet."""
    if len(text) > MOST_URL_CHARACTERS:
        most = MOST_URL_CHARACTERS
        raise UrlRefused(reason=f"it has more than {most} characters", reason_zh=f"超过 {most} 个字符")
    if not text.isprintable() or " " in text:
        raise UrlRefused(reason="it has spaces or hidden characters", reason_zh="含有空格或不可见字符")
    try:
        url = URL(text)
        host, port = url.raw_host or "", url.port
    except ValueError as error:
        raise UrlRefused(reason="it cannot be read as a URL", reason_zh="无法解析为 URL") from error
    if url.scheme not in {"http", "https"}:
        raise UrlRefused(reason="it is neither http nor https", reason_zh="既不是 http 也不是 https")
    if url.user is not None or url.password is not None:
        raise UrlRefused(reason="it carries a user name or a password", reason_zh="包含用户名或密码")
    if port in NOT_HTTP:
        raise UrlRefused(reason=f"port {port} is not for HTTP", reason_zh=f"端口 {port} 不用于 HTTP")
    _refuse_odd_host(host)
    return url


def _refuse_odd_host(host: str) -> None:
    """A number in any but the usual spelling (127.1, 0x7f000001) means an address to some and a name to others."""
    try:
        ip_address(host)
    except ValueError:
        if not HOST.fullmatch(host):
            reason = "its host is no name and no address"
            raise UrlRefused(reason=reason, reason_zh="主机既不是域名也不是地址") from None
        if NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
            raise AddressRefused(host=host) from None

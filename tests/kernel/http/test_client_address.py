"""The address of a client behind proxies, forged headers included."""

from typing import Any

import pytest

from penstock.kernel.http.client_address import ClientAddress, TrustedProxies
from tests.asgi import Connection, scope_of

PROXIES = TrustedProxies.of("10.0.0.0/8, 127.0.0.1, 2001:db8:1::/48")
CLIENT = "198.51.100.7"
Headers = list[tuple[str, str]]


async def seen(peer: str, headers: Headers, proxies: TrustedProxies = PROXIES) -> str:
    """The address that the app sees."""
    found: list[str] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        found.append(scope["client"][0])

    connection = Connection()
    await ClientAddress(app, proxies=proxies)(
        scope_of("GET", "/", headers, client=peer), connection.receive, connection.send
    )
    return found[0]


@pytest.mark.parametrize(
    ("headers", "client"),
    [
        ([("X-Forwarded-For", CLIENT)], CLIENT),
        ([("X-Forwarded-For", f"{CLIENT}:4711")], CLIENT),
        ([("X-Forwarded-For", f"192.0.2.1, {CLIENT}")], CLIENT),  # the client wrote the first
        ([("X-Forwarded-For", "192.0.2.1"), ("X-Forwarded-For", CLIENT)], CLIENT),
        ([("X-Forwarded-For", f"192.0.2.1, {CLIENT}, 10.0.0.9, 10.1.1.1")], CLIENT),  # two more proxies of ours
        ([("X-Forwarded-For", "10.0.0.9")], "10.0.0.9"),  # a client in our own network
        ([("X-Forwarded-For", f"{CLIENT}, unknown")], "10.0.0.1"),
        ([("X-Forwarded-For", f"{CLIENT}, evil\x7f")], "10.0.0.1"),
        ([("X-Forwarded-For", "2001:db8::5")], "2001:db8::5"),
        ([("X-Forwarded-For", f"::ffff:{CLIENT}")], CLIENT),
        ([("Forwarded", f"for={CLIENT};proto=https")], CLIENT),
        ([("Forwarded", f'for="192.0.2.1", for="{CLIENT}:47"')], CLIENT),
        ([("Forwarded", 'by=10.0.0.1; For="[2001:db8::5]:4711"')], "2001:db8::5"),
        ([("Forwarded", "for=_hidden")], "10.0.0.1"),
        ([("Forwarded", "proto=https")], "10.0.0.1"),
        ([("X-Forwarded-For", CLIENT), ("Forwarded", f"for={CLIENT}")], CLIENT),
        ([("X-Forwarded-For", CLIENT), ("Forwarded", "for=192.0.2.1")], "10.0.0.1"),  # one of them is forged
        ([("X-Forwarded-For", ", ".join([CLIENT] + ["10.0.0.2"] * 30))], "10.0.0.2"),
        ([("X-Forwarded-For", "")], "10.0.0.1"),
        ([("X-Real-IP", CLIENT)], "10.0.0.1"),
        ([], "10.0.0.1"),
    ],
)
async def test_a_trusted_proxy_is_believed_from_the_right(headers: Headers, client: str):
    assert await seen("10.0.0.1", headers) == client


@pytest.mark.parametrize("peer", ["192.0.2.9", "2001:db8:2::1"])
async def test_nobody_else_is_believed(peer: str):
    assert await seen(peer, [("X-Forwarded-For", "127.0.0.1"), ("Forwarded", "for=127.0.0.1")]) == peer


async def test_a_proxy_that_is_mapped_into_ipv6_is_trusted():
    assert await seen("::ffff:10.0.0.1", [("X-Forwarded-For", CLIENT)]) == CLIENT


@pytest.mark.parametrize("listed", ["10.0.0.0/33", "proxy.example", "10.0.0.1 10.0.0.2"])
def test_an_invalid_list_is_refused(listed: str):
    with pytest.raises(ValueError, match="does not appear to be"):
        TrustedProxies.of(listed)

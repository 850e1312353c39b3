"""SSRF guard: the client for user-supplied URLs reaches permitted addresses only, however an address is written."""

import asyncio
import datetime
import gzip
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.adapters.addresses import AddressPolicy, parse_url
from penstock.adapters.guarded_http import MAX_RESPONSE_BYTES, AddressFilter, GuardedHttpClient, HostResolver
from penstock.notify.domain import AddressRefused, UrlRefused, WebhookResponse, WebhookUnreachable
from tests.fakes.receivers import (
    PlainSocket,
    Receiver,
    ReceiverThatHangsUp,
    ReceiverThatNeverStops,
    ReceiverThatSays,
    ReceiverThatSendsBytes,
    ReceiverThatStalls,
    ReceiverThatTrickles,
)
from tests.fakes.resolvers import NamesThatAre, NamesThatMove, ResolverThatFails, ResolverThatHangs

LOOPBACK = AddressPolicy.of(["127.0.0.0/8"])
NOWHERE = AddressPolicy()
TIMEOUT_SECONDS = 30
PUBLIC = ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
NOT_PUBLIC = [
    "0.0.0.0", "0.1.2.3", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "168.63.129.16",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.168.1.1", "198.18.0.1",
    "198.19.255.255", "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:0:7f00:1",
    "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::808:808", "100::1", "2001::1", "2001:0:7f00:1::", "2001:10::1",
    "2001:db8::1", "2002:7f00:1::1", "2002:a9fe:a9fe::1", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1",
    "fe80::1%eth0", "fec0::1", "ff02::1", "4000::1",
]  # fmt: skip
BAD_URLS = [
    "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/", "example.com", "//example.com/", "",
    "http://", "http:///path", "https://user@example.com/", "https://user:password@example.com/",
    "https://:@example.com/", "http://example.com:25/", "http://example.com:6379/",
    "http://example.com:0/", "http://example.com:99999/", "http://example.com:x/", "http://exa mple.com/",
    "http://example.com/\r\nX-Injected: 1", "http://example.com\\@127.0.0.1/", "http://[::1/",
    "http://ex%61mple.com/", "http://exam\x00ple.com/", "http://\ud800.example/", "http://example.com/\ud800",
    "https://example.com/" + "a" * 2048,
]  # fmt: skip
GOOD_URLS = [
    "http://example.com",
    "https://example.com:8443/a?b=c",
    "https://bücher.example/ü",
    "http://[2606:4700::1111]/",
]
NO_ADDRESS = ["", "localhost", "127.1", "0x7f000001", "2130706433", "8.8.8.8/32", "8.8.8.8 ", "８.８.８.８"]


class TestAddressPolicy:
    def test_public_addresses_are_permitted(self):
        assert [address for address in PUBLIC if not NOWHERE.permits(address)] == []

    def test_private_and_invalid_addresses_are_refused(self):
        assert [address for address in [*NOT_PUBLIC, *NO_ADDRESS] if NOWHERE.permits(address)] == []

    def test_a_network_that_the_operator_allows_is_permitted_in_every_form(self):
        policy = AddressPolicy.of(["10.0.0.0/8", " fd12::/16", ""])
        assert all(map(policy.permits, ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203", "fd12::7"]))

    def test_an_allowed_network_opens_nothing_else(self):
        assert [address for address in NOT_PUBLIC if AddressPolicy.of(["10.0.0.0/8"]).permits(address)] == [
            "10.1.2.3",
            "::ffff:10.0.0.1",
        ]

    @pytest.mark.parametrize("network", ["10.0.0.1/8", "10.0.0.0/33", "private"])
    def test_an_invalid_network_is_an_error(self, network: str):
        with pytest.raises(ValueError, match=network):
            AddressPolicy.of([network])


class TestUrls:
    def test_a_url_that_cannot_be_posted_to_is_refused(self):
        for url in BAD_URLS:
            with pytest.raises(UrlRefused, match="field url"):
                parse_url(url)

    def test_a_valid_url_is_parsed(self):
        for url in GOOD_URLS:
            assert parse_url(url).host


def poster(
    policy: AddressFilter = LOOPBACK, dns: HostResolver | None = None, seconds: float = TIMEOUT_SECONDS
) -> GuardedHttpClient:
    return GuardedHttpClient(policy, seconds=seconds, dns=dns)


@pytest.fixture
async def opened() -> AsyncIterator[Callable[..., GuardedHttpClient]]:
    """Makes clients that are closed after the test."""
    async with AsyncExitStack() as stack:

        def make(*options: AddressFilter, **named: object) -> GuardedHttpClient:
            made = poster(*options, **named)  # type: ignore[arg-type]  # the keywords of `poster`
            stack.push_async_callback(made.close)
            return made

        yield make


async def send(poster: GuardedHttpClient, url: str) -> WebhookResponse:
    return await poster.post(url, headers={"X-Test": "yes"}, body=b"{}")


# Loopback in every spelling that some resolver or library takes for it.
SPELLINGS = [
    "127.0.0.1", "127.0.0.1.", "127.1", "127.0.1", "0177.0.0.1", "0x7f.0.0.1", "0x7f000001", "2130706433",
    "017700000001", "0", "0.0.0.0", "127.000.000.001", "１２７.０.０.１", "①②⑦.⓪.⓪.①", "127。0。0。1", "[::1]", "[::]",
    "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]", "localhost", "LOCALHOST", "localhost.",
    "localhost..", "localhost.localdomain", "metadata.internal", "[fe80::1%25lo]",
]  # fmt: skip


class TestGuard:
    async def test_loopback_is_refused_however_it_is_written(self, opened):
        guarded = opened(NOWHERE)
        async with Receiver() as receiver:
            for host in SPELLINGS:
                for attempt in (guarded.check, lambda url: send(guarded, url)):
                    with pytest.raises((AddressRefused, UrlRefused)):
                        await attempt(f"http://{host}:{receiver.port}/")
        assert receiver.heard == []

    async def test_a_name_that_resolves_to_a_private_address_is_refused(self, opened):
        for address in NOT_PUBLIC:
            guarded = opened(NOWHERE, dns=NamesThatAre(address))
            with pytest.raises(AddressRefused, match=r"hooks\.example"):
                await guarded.check("https://hooks.example/")
            with pytest.raises(AddressRefused) as refused:
                await send(guarded, "https://hooks.example/")
            assert address not in str(refused.value).split()

    async def test_one_private_address_is_enough_to_refuse_a_name(self, opened):
        async with Receiver() as receiver:
            dns = NamesThatAre("8.8.8.8", "127.0.0.1")
            with pytest.raises(AddressRefused):
                await send(opened(NOWHERE, dns=dns), f"http://hooks.example:{receiver.port}/")
        assert receiver.heard == []

    async def test_dns_rebinding_after_the_check_is_refused_at_the_post(self, opened):
        async with Receiver() as receiver:
            guarded = opened(NOWHERE, dns=NamesThatMove("8.8.8.8", "127.0.0.1"))
            await guarded.check(f"http://hooks.example:{receiver.port}/")
            with pytest.raises(AddressRefused):
                await send(guarded, f"http://hooks.example:{receiver.port}/")
        assert receiver.heard == []

    async def test_dns_answers_are_not_cached_between_posts(self, opened):
        async with Receiver(host="127.0.0.2") as receiver:
            guarded = opened(AddressPolicy.of(["127.0.0.2/32"]), dns=NamesThatMove("127.0.0.2", "127.0.0.1"))
            assert (await send(guarded, f"http://a.example:{receiver.port}/")).status == 200
            with pytest.raises(AddressRefused):
                await send(guarded, f"http://a.example:{receiver.port}/")
        assert len(receiver.heard) == 1

    async def test_the_address_that_was_checked_is_the_one_connected_to(self, opened):
        """A second lookup within one post would lead to the wrong receiver."""
        dns = NamesThatMove("127.0.0.2", "127.0.0.1")
        async with Receiver(host="127.0.0.2") as checked:
            answer = await send(
                opened(AddressPolicy.of(["127.0.0.2/32"]), dns=dns), f"http://a.example:{checked.port}/"
            )
        assert (answer.status, len(checked.heard), dns.asked) == (200, 1, ["a.example"])

    async def test_a_redirect_is_not_followed(self, opened):
        inside, guarded = Receiver(host="127.0.0.2"), opened(AddressPolicy.of(["127.0.0.1/32"]))
        async with inside, ReceiverThatSays(302, 307, 308, headers={"Location": inside.url}) as receiver:
            assert [(await send(guarded, receiver.url)).status for _ in range(3)] == [302, 307, 308]
        assert inside.heard == []

    async def test_a_socket_is_checked_when_it_is_created(self, opened):
        async with PlainSocket() as inside:
            with pytest.raises(WebhookUnreachable):
                await send(opened(PermitsFirst(1), dns=NamesThatAre("127.0.0.1")), f"http://a.example:{inside.port}/")
        assert inside.connections == 0

    async def test_the_peer_is_checked_before_a_byte_is_sent(self, opened):
        async with PlainSocket() as inside:
            with pytest.raises(AddressRefused):
                await send(opened(PermitsFirst(2), dns=NamesThatAre("127.0.0.1")), f"http://a.example:{inside.port}/")
            await asyncio.wait_for(inside.left.wait(), TIMEOUT_SECONDS)
        assert (inside.connections, bytes(inside.heard)) == (1, b"")

    async def test_a_proxy_in_the_environment_is_not_used(self, opened, monkeypatch: pytest.MonkeyPatch):
        async with Receiver() as proxy, Receiver() as receiver:
            for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
                monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            await send(opened(), receiver.url)
        assert (len(proxy.heard), len(receiver.heard)) == (0, 1)

    @pytest.mark.parametrize("reason", [socket.EAI_NONAME, socket.EAI_FAIL])
    async def test_a_name_that_does_not_exist_looks_like_a_private_one(self, opened, reason: int):
        with pytest.raises(AddressRefused):
            await opened(NOWHERE, dns=ResolverThatFails(reason)).check("https://nobody.example/")

    async def test_a_temporary_dns_failure_is_retryable(self, opened):
        with pytest.raises(WebhookUnreachable, match="resolved") as failed:
            await opened(dns=ResolverThatFails(socket.EAI_AGAIN)).check("https://hooks.example/")
        assert failed.value.retryable

    async def test_dns_is_bounded_in_time(self, opened):
        with pytest.raises(WebhookUnreachable, match=r"after 0\.05 s"):
            await opened(dns=ResolverThatHangs(), seconds=0.05).check("https://hooks.example/")

    async def test_a_name_that_is_too_long_for_any_resolver_is_refused(self, opened):
        with pytest.raises(AddressRefused):
            await opened().check(f"https://{'a' * 70}.example/")


class PermitsFirst:
    """Permits so many addresses, and then nothing more."""

    def __init__(self, times: int) -> None:
        self._left = times

    def permits(self, address: str) -> bool:
        self._left -= 1
        return self._left >= 0


class TestPosting:
    async def test_the_body_and_the_headers_arrive_as_they_are_given(self, opened):
        async with Receiver() as receiver:
            answer = await opened().post(receiver.url + "?a=1", headers={"Penstock-Id": "msg_1"}, body=b'{"a":1}')
        [posted] = receiver.heard
        assert (posted.method, posted.path, posted.body) == ("POST", "/hook?a=1", b'{"a":1}')
        assert posted.headers["Penstock-Id"] == "msg_1"
        assert posted.headers["Host"] == f"127.0.0.1:{receiver.port}"
        assert posted.headers["Accept-Encoding"] == "identity"
        assert answer == WebhookResponse(status=200, text="thank you")

    async def test_a_cookie_is_not_kept(self, opened):
        async with ReceiverThatSays(200, headers={"Set-Cookie": "a=b; Path=/"}) as receiver:
            guarded = opened(dns=NamesThatAre("127.0.0.1"))
            for _ in range(2):
                await send(guarded, f"http://a.example:{receiver.port}/")
        assert ["Cookie" in posted.headers for posted in receiver.heard] == [False, False]

    async def test_retry_after_is_returned(self, opened):
        async with ReceiverThatSays(503, headers={"Retry-After": "17"}) as receiver:
            assert (await send(opened(), receiver.url)).retry_after == "17"

    async def test_a_receiver_that_does_not_answer_times_out(self, opened):
        async with ReceiverThatStalls() as receiver:
            with pytest.raises(WebhookUnreachable, match=r"after 0\.2 s"):
                await send(opened(seconds=0.2), receiver.url)

    async def test_a_status_counts_although_the_body_never_ends(self, opened):
        async with ReceiverThatTrickles() as receiver, asyncio.timeout(TIMEOUT_SECONDS):
            assert await send(opened(seconds=0.3), receiver.url) == WebhookResponse(status=200, text="well, ")

    async def test_a_response_is_read_up_to_a_limit(self, opened):
        async with ReceiverThatNeverStops() as receiver:
            answer = await send(opened(), receiver.url)
            await asyncio.wait_for(receiver.cut_off.wait(), TIMEOUT_SECONDS)
        assert answer == WebhookResponse(status=200, text="z" * MAX_RESPONSE_BYTES)
        assert receiver.sent < 100 * MAX_RESPONSE_BYTES  # what lay in the buffers of both ends, and no more

    async def test_a_compressed_response_is_not_decompressed(self, opened):
        headers = {"Content-Encoding": "gzip", "Content-Type": "text/plain"}
        async with ReceiverThatSendsBytes(gzip.compress(b"z" * 1_000_000), headers) as receiver:
            assert await send(opened(), receiver.url) == WebhookResponse(status=200)

    @pytest.mark.parametrize(
        ("kind", "body", "text"),
        [
            ("text/plain", b"a\0b\xff", "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"),
            ("application/problem+json", b"{}", "{}"),
            ("image/png", b"\x89PNG", ""),
        ],
    )
    async def test_only_text_of_a_response_is_kept(self, opened, kind: str, body: bytes, text: str):
        async with ReceiverThatSendsBytes(body, {"Content-Type": kind}) as receiver:
            assert (await send(opened(), receiver.url)).text == text

    async def test_a_cut_connection_is_no_answer(self, opened):
        async with ReceiverThatHangsUp() as receiver:
            with pytest.raises(WebhookUnreachable, match="broke"):
                await send(opened(), receiver.url)

    @pytest.mark.parametrize("says", [b"220 mail.example ESMTP\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 100_000])
    async def test_a_response_that_is_not_http_is_no_answer(self, opened, says: bytes):
        async with PlainSocket(says) as server:
            with pytest.raises(WebhookUnreachable):
                await send(opened(seconds=5), server.url)

    async def test_a_closed_port_is_no_answer(self, opened):
        async with Receiver() as receiver:
            url = receiver.url
        with pytest.raises(WebhookUnreachable, match="cannot connect"):
            await send(opened(), url)

    async def test_a_self_signed_certificate_is_not_trusted(self, opened, tmp_path: Path):
        async with Receiver(tls=self_signed(tmp_path)) as receiver:
            with pytest.raises(WebhookUnreachable, match="certificate"):
                await send(opened(), receiver.url)
        assert receiver.heard == []


def self_signed(folder: Path) -> ssl.SSLContext:
    """TLS for 127.0.0.1 with a self-signed certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder(name, name, key.public_key(), 1).add_extension(address, critical=False)
    made = made.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "both.pem").write_bytes(private + made.sign(key, hashes.SHA256()).public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "both.pem")
    return context

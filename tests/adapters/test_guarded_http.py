"""The client for outsiders' addresses reaches what it may and nothing else, however an address is written."""

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

from penstock.adapters.addresses import Reach, readable_url
from penstock.adapters.guarded_http import ANSWER_BYTES, GuardedHttpClient, Lookup, Permits
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
from tests.fakes.resolvers import LookupThatFails, LookupThatHangs, NamesThatAre, NamesThatMove

LOOPBACK = Reach.of(["127.0.0.0/8"])
NOWHERE = Reach()
PATIENCE_SECONDS = 30
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
NO_ADDRESS = ["", "localhost", "127.1", "0x7f000001", "2130706433", "8.8.8.8/32", "8.8.8.8 ", "８.８.８.８"]


class TestReach:
    @pytest.mark.parametrize("address", PUBLIC)
    def test_what_is_public_is_permitted(self, address: str):
        assert NOWHERE.permits(address)

    @pytest.mark.parametrize("address", [*NOT_PUBLIC, *NO_ADDRESS])
    def test_what_is_not_public_or_no_address_is_refused(self, address: str):
        assert not NOWHERE.permits(address)

    @pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203", "fd12::7"])
    def test_what_the_operator_allows_is_permitted_in_every_form(self, address: str):
        assert Reach.of(["10.0.0.0/8", " fd12::/16", ""]).permits(address)

    def test_what_is_allowed_beside_opens_nothing_else(self):
        assert [address for address in NOT_PUBLIC if Reach.of(["10.0.0.0/8"]).permits(address)] == [
            "10.1.2.3",
            "::ffff:10.0.0.1",
        ]

    @pytest.mark.parametrize("network", ["10.0.0.1/8", "10.0.0.0/33", "private"])
    def test_a_network_that_is_none_is_told_of(self, network: str):
        with pytest.raises(ValueError, match=network):
            Reach.of([network])


class TestUrls:
    @pytest.mark.parametrize(
        "url",
        [
            "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/", "example.com", "//example.com/", "",
            "http://", "http:///path", "https://user@example.com/", "https://user:password@example.com/",
            "https://:@example.com/", "http://example.com:25/", "http://example.com:6379/",
            "http://example.com:0/", "http://example.com:99999/", "http://example.com:x/", "http://exa mple.com/",
            "http://example.com/\r\nX-Injected: 1", "http://example.com\\@127.0.0.1/", "http://[::1/",
            "http://ex%61mple.com/", "http://exam\x00ple.com/", "http://\ud800.example/", "http://example.com/\ud800",
            "https://example.com/" + "a" * 2048,
        ],
    )  # fmt: skip
    def test_what_cannot_be_posted_to_is_refused_by_its_field(self, url: str):
        with pytest.raises(UrlRefused, match="field url"):
            readable_url(url)

    @pytest.mark.parametrize(
        "url",
        [
            "http://example.com",
            "https://example.com:8443/a?b=c",
            "https://bücher.example/ü",
            "http://[2606:4700::1111]/",
        ],
    )
    def test_what_can_be_posted_to_is_read(self, url: str):
        assert readable_url(url).host


def poster(
    reach: Permits = LOOPBACK, lookup: Lookup | None = None, seconds: float = PATIENCE_SECONDS
) -> GuardedHttpClient:
    return GuardedHttpClient(reach, seconds=seconds, lookup=lookup)


@pytest.fixture
async def opened() -> AsyncIterator[Callable[..., GuardedHttpClient]]:
    """Makes posters that are closed after the test."""
    async with AsyncExitStack() as stack:

        def make(*options: Permits, **named: object) -> GuardedHttpClient:
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
    @pytest.mark.parametrize("host", SPELLINGS)
    async def test_loopback_is_refused_however_it_is_written(self, opened, host: str):
        async with Receiver() as receiver:
            for attempt in (opened(NOWHERE).check, lambda url: send(opened(NOWHERE), url)):
                with pytest.raises((AddressRefused, UrlRefused)):
                    await attempt(f"http://{host}:{receiver.port}/")
        assert receiver.heard == []

    @pytest.mark.parametrize("address", NOT_PUBLIC)
    async def test_a_name_that_leads_inside_is_refused(self, opened, address: str):
        guarded = opened(NOWHERE, lookup=NamesThatAre(address))
        with pytest.raises(AddressRefused, match=r"hooks\.example"):
            await guarded.check("https://hooks.example/")
        with pytest.raises(AddressRefused) as refused:
            await send(guarded, "https://hooks.example/")
        assert address not in str(refused.value).split()

    async def test_one_address_inside_is_enough_to_refuse_a_name(self, opened):
        async with Receiver() as receiver:
            lookup = NamesThatAre("8.8.8.8", "127.0.0.1")
            with pytest.raises(AddressRefused):
                await send(opened(NOWHERE, lookup=lookup), f"http://hooks.example:{receiver.port}/")
        assert receiver.heard == []

    async def test_a_name_that_moves_inside_after_the_check_is_refused_at_the_post(self, opened):
        async with Receiver() as receiver:
            guarded = opened(NOWHERE, lookup=NamesThatMove("8.8.8.8", "127.0.0.1"))
            await guarded.check(f"http://hooks.example:{receiver.port}/")
            with pytest.raises(AddressRefused):
                await send(guarded, f"http://hooks.example:{receiver.port}/")
        assert receiver.heard == []

    async def test_what_a_name_meant_at_the_last_post_is_not_remembered(self, opened):
        async with Receiver(host="127.0.0.2") as receiver:
            guarded = opened(Reach.of(["127.0.0.2/32"]), lookup=NamesThatMove("127.0.0.2", "127.0.0.1"))
            assert (await send(guarded, f"http://a.example:{receiver.port}/")).status == 200
            with pytest.raises(AddressRefused):
                await send(guarded, f"http://a.example:{receiver.port}/")
        assert len(receiver.heard) == 1

    async def test_the_address_that_was_checked_is_the_one_connected_to(self, opened):
        """A second lookup within one post would lead to the wrong receiver."""
        lookup = NamesThatMove("127.0.0.2", "127.0.0.1")
        async with Receiver(host="127.0.0.2") as checked:
            answer = await send(opened(Reach.of(["127.0.0.2/32"]), lookup=lookup), f"http://a.example:{checked.port}/")
        assert (answer.status, len(checked.heard), lookup.asked) == (200, 1, ["a.example"])

    async def test_a_redirect_is_not_followed_not_even_inside(self, opened):
        inside, guarded = Receiver(host="127.0.0.2"), opened(Reach.of(["127.0.0.1/32"]))
        async with inside, ReceiverThatSays(302, 307, 308, headers={"Location": inside.url}) as receiver:
            assert [(await send(guarded, receiver.url)).status for _ in range(3)] == [302, 307, 308]
        assert inside.heard == []

    async def test_a_socket_is_looked_at_when_it_is_made(self, opened):
        async with PlainSocket() as inside:
            with pytest.raises(WebhookUnreachable):
                await send(
                    opened(PermitsFirst(1), lookup=NamesThatAre("127.0.0.1")), f"http://a.example:{inside.port}/"
                )
        assert inside.connections == 0

    async def test_the_other_end_is_looked_at_before_a_byte_is_sent(self, opened):
        async with PlainSocket() as inside:
            with pytest.raises(AddressRefused):
                await send(
                    opened(PermitsFirst(2), lookup=NamesThatAre("127.0.0.1")), f"http://a.example:{inside.port}/"
                )
            await asyncio.wait_for(inside.left.wait(), PATIENCE_SECONDS)
        assert (inside.connections, bytes(inside.heard)) == (1, b"")

    async def test_a_proxy_in_the_environment_is_not_used(self, opened, monkeypatch: pytest.MonkeyPatch):
        async with Receiver() as proxy, Receiver() as receiver:
            for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
                monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            await send(opened(), receiver.url)
        assert (len(proxy.heard), len(receiver.heard)) == (0, 1)

    @pytest.mark.parametrize("reason", [socket.EAI_NONAME, socket.EAI_FAIL])
    async def test_a_name_that_does_not_exist_looks_like_one_that_leads_inside(self, opened, reason: int):
        with pytest.raises(AddressRefused):
            await opened(NOWHERE, lookup=LookupThatFails(reason)).check("https://nobody.example/")

    async def test_a_lookup_that_fails_for_now_is_worth_another_try(self, opened):
        with pytest.raises(WebhookUnreachable, match="looked up") as failed:
            await opened(lookup=LookupThatFails(socket.EAI_AGAIN)).check("https://hooks.example/")
        assert failed.value.retryable

    async def test_a_lookup_is_bounded_in_time(self, opened):
        with pytest.raises(WebhookUnreachable, match=r"within 0\.05 s"):
            await opened(lookup=LookupThatHangs(), seconds=0.05).check("https://hooks.example/")

    async def test_a_name_that_is_too_long_for_any_resolver_is_refused(self, opened):
        with pytest.raises(AddressRefused):
            await opened().check(f"https://{'a' * 70}.example/")


class PermitsFirst:
    """Permits so many times, and then nothing more."""

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
            guarded = opened(lookup=NamesThatAre("127.0.0.1"))
            for _ in range(2):
                await send(guarded, f"http://a.example:{receiver.port}/")
        assert ["Cookie" in posted.headers for posted in receiver.heard] == [False, False]

    async def test_retry_after_is_handed_on(self, opened):
        async with ReceiverThatSays(503, headers={"Retry-After": "17"}) as receiver:
            assert (await send(opened(), receiver.url)).retry_after == "17"

    async def test_a_receiver_that_does_not_answer_is_given_up_in_time(self, opened):
        async with ReceiverThatStalls() as receiver:
            with pytest.raises(WebhookUnreachable, match=r"within 0\.2 s"):
                await send(opened(seconds=0.2), receiver.url)

    async def test_a_status_counts_although_the_rest_of_the_answer_never_comes(self, opened):
        async with ReceiverThatTrickles() as receiver, asyncio.timeout(PATIENCE_SECONDS):
            assert await send(opened(seconds=0.3), receiver.url) == WebhookResponse(status=200, text="well, ")

    async def test_no_more_of_an_answer_is_read_than_the_bound(self, opened):
        async with ReceiverThatNeverStops() as receiver:
            answer = await send(opened(), receiver.url)
            await asyncio.wait_for(receiver.cut_off.wait(), PATIENCE_SECONDS)
        assert answer == WebhookResponse(status=200, text="z" * ANSWER_BYTES)
        assert receiver.sent < 100 * ANSWER_BYTES  # what lay in the buffers of both ends, and no more

    async def test_a_compressed_answer_is_not_unfolded(self, opened):
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
    async def test_only_text_is_kept_of_an_answer(self, opened, kind: str, body: bytes, text: str):
        async with ReceiverThatSendsBytes(body, {"Content-Type": kind}) as receiver:
            assert (await send(opened(), receiver.url)).text == text

    async def test_a_cut_connection_is_no_answer(self, opened):
        async with ReceiverThatHangsUp() as receiver:
            with pytest.raises(WebhookUnreachable, match="broke"):
                await send(opened(), receiver.url)

    @pytest.mark.parametrize("says", [b"220 mail.example ESMTP\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 100_000])
    async def test_what_is_no_sound_http_is_no_answer(self, opened, says: bytes):
        async with PlainSocket(says) as server:
            with pytest.raises(WebhookUnreachable):
                await send(opened(seconds=5), server.url)

    async def test_a_closed_port_is_no_answer(self, opened):
        async with Receiver() as receiver:
            url = receiver.url
        with pytest.raises(WebhookUnreachable, match="no connection"):
            await send(opened(), url)

    async def test_a_certificate_that_nobody_vouches_for_is_not_trusted(self, opened, tmp_path: Path):
        async with Receiver(tls=self_signed(tmp_path)) as receiver:
            with pytest.raises(WebhookUnreachable, match="certificate"):
                await send(opened(), receiver.url)
        assert receiver.heard == []


def self_signed(folder: Path) -> ssl.SSLContext:
    """TLS for 127.0.0.1 with a certificate of its own making."""
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

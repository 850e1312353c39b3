"""The JWK Set: fetched from a real server, cached while it is unavailable, and fetched at a bounded rate."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from penstock.access.errors import BadTokenSettings, InvalidToken, JwksUnavailable
from penstock.access.jwks import MAX_AGE, MIN_FETCH_SECONDS, REFRESH_SECONDS, JwkSet
from penstock.access.tokens import Tokens
from penstock.adapters.jwks import MAX_BYTES, jwks_over_http
from penstock.kernel.clock import ManualClock
from tests.access.signers import Signer
from tests.access.waiting import until

OLD, NEW = Signer.rsa("old"), Signer.ec("new")


class Publisher:
    """A server that publishes keys, and can misbehave."""

    def __init__(self) -> None:
        self.signers: list[Signer] = [OLD]
        self.answer: web.StreamResponse | None = None  # instead of the keys
        self.asked = 0
        self.url = ""

    async def publish(self, _request: web.Request) -> web.StreamResponse:
        self.asked += 1
        return self.answer or web.json_response({"keys": [signer.jwk for signer in self.signers]})

    def fail(self) -> None:
        self.answer = web.Response(status=500)


@pytest.fixture
async def publisher() -> AsyncIterator[Publisher]:
    published = Publisher()
    app = web.Application()
    app.router.add_get("/keys", published.publish)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    published.url = f"http://{host}:{port}/keys"
    yield published
    await runner.cleanup()


@pytest.fixture
def key_set(publisher: Publisher, clock: ManualClock) -> JwkSet:
    return JwkSet(jwks_over_http(publisher.url), clock, algorithms=["RS256", "ES256"])


@pytest.fixture
def tokens(key_set: JwkSet, clock: ManualClock) -> Tokens:
    return Tokens(clock, key_set=key_set)


def token_of(signer: Signer, clock: ManualClock) -> str:
    return signer.sign({"user_id": 5, "exp": clock.now().timestamp() + 60})


async def test_keys_are_fetched_once_and_cached(tokens: Tokens, publisher: Publisher, clock: ManualClock):
    for _ in range(5):
        assert (await tokens.verify(token_of(OLD, clock))).user_id == 5
        clock.advance(seconds=MIN_FETCH_SECONDS)
    assert publisher.asked == 1


async def test_an_algorithm_that_is_not_accepted_causes_no_fetch(
    tokens: Tokens, publisher: Publisher, clock: ManualClock
):
    for odd in (Signer.ed("new"), Signer.rsa("new", algorithm="PS256")):
        assert not await _taken(tokens, token_of(odd, clock))
    assert publisher.asked == 0


async def test_many_first_tokens_at_once_cause_one_fetch(tokens: Tokens, publisher: Publisher, clock: ManualClock):
    await asyncio.gather(*(tokens.verify(token_of(OLD, clock)) for _ in range(20)))
    assert publisher.asked == 1


async def test_an_unknown_key_causes_a_fetch_at_most_every_thirty_seconds(
    tokens: Tokens, publisher: Publisher, clock: ManualClock
):
    await tokens.verify(token_of(OLD, clock))
    publisher.signers = [OLD, NEW]
    clock.advance(seconds=MIN_FETCH_SECONDS - 0.001)
    for _ in range(5):
        with pytest.raises(InvalidToken):
            await tokens.verify(token_of(NEW, clock))
    assert publisher.asked == 1
    clock.advance(seconds=0.001)
    assert await _taken(tokens, token_of(NEW, clock))
    assert publisher.asked == 2


async def test_a_withdrawn_key_is_refused_after_the_next_fetch(
    tokens: Tokens, publisher: Publisher, clock: ManualClock
):
    keeping = asyncio.create_task(tokens.refresh_keys())
    await _asked(publisher, 1)
    assert await _taken(tokens, token_of(OLD, clock))
    publisher.signers = [NEW]
    clock.advance(seconds=REFRESH_SECONDS)
    await _asked(publisher, 2)

    async def is_refused() -> bool:
        return not await _taken(tokens, token_of(OLD, clock))

    await until(is_refused)
    keeping.cancel()
    await asyncio.wait([keeping])


async def test_keys_stay_valid_for_a_day_while_the_server_is_unavailable(
    tokens: Tokens, publisher: Publisher, clock: ManualClock
):
    await tokens.verify(token_of(OLD, clock))
    publisher.fail()
    clock.advance(seconds=MAX_AGE.total_seconds() - 1)
    assert await _taken(tokens, token_of(OLD, clock))
    with pytest.raises(InvalidToken):
        await tokens.verify(token_of(NEW, clock))
    clock.advance(seconds=MIN_FETCH_SECONDS)
    with pytest.raises(JwksUnavailable):
        await tokens.verify(token_of(OLD, clock))


async def test_without_any_keys_the_error_says_that_the_jwks_is_unavailable(
    tokens: Tokens, publisher: Publisher, clock: ManualClock
):
    publisher.fail()
    for _ in range(3):
        with pytest.raises(JwksUnavailable, match="answered 500"):
            await tokens.verify(token_of(OLD, clock))
    assert JwksUnavailable.internal_outage
    assert publisher.asked == 1
    publisher.answer = None
    clock.advance(seconds=MIN_FETCH_SECONDS)
    assert await _taken(tokens, token_of(OLD, clock))


async def test_an_unreachable_server(clock: ManualClock):
    tokens = Tokens(clock, key_set=JwkSet(jwks_over_http("http://127.0.0.1:1/keys"), clock, algorithms=["RS256"]))
    with pytest.raises(JwksUnavailable):
        await tokens.verify(token_of(OLD, clock))


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (b"not json", "not a JWK Set"),
        (b"[" * 100_000, "not a JWK Set"),
        (b"[]", "not a JWK Set"),
        (b"{}", "not a JWK Set"),
        (b'{"keys": 5}', "not a JWK Set"),
        (b'{"keys": []}', "no usable key"),
        (
            b'{"keys": [5, {}, {"kty": []}, {"kty": "RSA", "n": 5, "e": []}, {"kty": "EC", "alg": [], "kid": {}}]}',
            "no usable key",
        ),
        (b"x" * (MAX_BYTES + 1), "longer than"),
    ],
    ids=["words", "deep", "list", "empty", "number", "none", "odd", "long"],
)
async def test_an_invalid_document_is_reported(
    tokens: Tokens, publisher: Publisher, clock: ManualClock, document: bytes, told: str
):
    publisher.answer = web.Response(body=document)
    with pytest.raises(JwksUnavailable, match=told):
        await tokens.verify(token_of(OLD, clock))


async def test_redirects_are_not_followed(tokens: Tokens, publisher: Publisher, clock: ManualClock):
    publisher.answer = web.Response(status=302, headers={"Location": publisher.url})
    with pytest.raises(JwksUnavailable, match="answered 302"):
        await tokens.verify(token_of(OLD, clock))
    assert publisher.asked == 1


@pytest.mark.parametrize("more", [{"use": "enc"}, {"alg": "RS512"}, OLD.private_jwk], ids=["enc", "other", "private"])
async def test_keys_for_other_purposes_are_left_out(
    tokens: Tokens, publisher: Publisher, clock: ManualClock, more: dict[str, Any]
):
    publisher.answer = web.Response(body=json.dumps({"keys": [OLD.jwk | more, NEW.jwk]}).encode())
    with pytest.raises(InvalidToken):
        await tokens.verify(token_of(OLD, clock))
    assert await _taken(tokens, token_of(NEW, clock))


@pytest.mark.parametrize("url", ["", "keys.json", "file:///etc/passwd", "https://", "http://[", "ftp://x/y"])
def test_an_invalid_url_is_refused_at_start(url: str):
    with pytest.raises(BadTokenSettings, match="PENSTOCK_JWKS_URL"):
        jwks_over_http(url)


async def _asked(publisher: Publisher, times: int) -> None:
    async def was_asked() -> bool:
        return publisher.asked >= times

    await until(was_asked)


async def _taken(tokens: Tokens, token: str) -> bool:
    try:
        await tokens.verify(token)
    except InvalidToken:
        return False
    return True

"""JWTs: which are accepted, and that every forgery gets the same error."""

import asyncio
import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime
from typing import Any

import jwt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.access.domain import Caller, ProjectAccess, Scope
from penstock.access.errors import BadTokenSettings, InvalidToken
from penstock.access.jwks import JwkSet
from penstock.access.tokens import MAX_BYTES, Tokens, parse_algorithms
from penstock.kernel.clock import ManualClock
from tests.access.conftest import SECRET
from tests.access.signers import Signer

SKEW = 30
RSA = Signer.rsa()


def published(*signers: Signer, clock: ManualClock, algorithms: str = "RS256,ES256,EdDSA") -> JwkSet:
    document = json.dumps({"keys": [signer.jwk for signer in signers]}).encode()

    async def fetch() -> bytes:
        return document

    return JwkSet(fetch, clock, algorithms=parse_algorithms(algorithms))


def part(value: object) -> bytes:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def forged(header: object, claims: object, *, hmac_key: bytes | None = None) -> str:
    """A token put together by hand, signed with HS256 or not at all."""
    signed = part(header) + b"." + part(claims)
    signature = hmac.new(hmac_key, signed, hashlib.sha256).digest() if hmac_key is not None else b""
    return (signed + b"." + part(signature)).decode()


@pytest.fixture
def good(clock: ManualClock) -> dict[str, Any]:
    """Claims that are taken."""
    now = int(clock.now().timestamp())
    return {"user_id": 5, "exp": now + 60, "iat": now, "nbf": now}


@pytest.fixture
def tokens(clock: ManualClock) -> Tokens:
    """Takes both kinds, so that each could be passed off as the other."""
    return Tokens(clock, secret=SECRET, key_set=published(RSA, clock=clock), skew_seconds=SKEW)


def by_secret(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, SECRET, algorithm="HS256")


async def refused(tokens: Tokens, token: str) -> None:
    with pytest.raises(InvalidToken) as error:
        await tokens.verify(token)
    assert str(error.value) == "The token is not valid."
    assert error.value.values == {}


class TestAccepted:
    async def test_one_signed_with_the_secret(self, tokens: Tokens, good: dict[str, Any]):
        assert await tokens.verify(by_secret(good)) == Caller(
            name="user:5",
            user_id=5,
            scope=Scope.WRITE,
            projects=ProjectAccess(),
            task_scope=Scope.READ,
            may_pull=False,
        )

    @pytest.mark.parametrize("make", [Signer.rsa, Signer.ec, Signer.ed])
    async def test_one_signed_by_a_published_key(self, make: Any, clock: ManualClock, good: dict[str, Any]):
        signer = make()
        tokens = Tokens(clock, key_set=published(Signer.rsa("another"), signer, clock=clock))
        assert (await tokens.verify(signer.sign(good))).user_id == 5

    async def test_one_without_a_key_id_when_only_one_key_fits(self, clock: ManualClock, good: dict[str, Any]):
        signer = Signer.rsa(None)
        alone = Tokens(clock, key_set=published(signer, Signer.ec(None), clock=clock))
        assert (await alone.verify(signer.sign(good))).user_id == 5
        of_two = Tokens(clock, key_set=published(signer, Signer.rsa(None), clock=clock))
        await refused(of_two, signer.sign(good))

    async def test_all_the_claims_we_know(self, tokens: Tokens, good: dict[str, Any]):
        more = {"merchant_id": 9, "role": "editor", "scope": "read", "projects": ["a", "b"]}
        assert await tokens.verify(by_secret(good | more)) == Caller(
            name="user:5",
            user_id=5,
            scope=Scope.READ,
            merchant_id=9,
            role="editor",
            projects=ProjectAccess(ids=frozenset({"a", "b"}), merchant_id=9),
        )

    async def test_an_admin_who_is_kept_to_projects_is_an_admin_nowhere_else(
        self, tokens: Tokens, good: dict[str, Any]
    ):
        kept = await tokens.verify(by_secret(good | {"scope": "admin", "projects": ["a"]}))
        assert not kept.is_admin
        assert kept.covers(Scope.ADMIN, in_projects=True)
        assert not kept.covers(Scope.ADMIN, in_projects=False)
        assert kept.covers(Scope.WRITE, in_projects=False)

    async def test_the_role_admin_grants_nothing(self, tokens: Tokens, good: dict[str, Any]):
        plain = await tokens.verify(by_secret(good | {"role": "admin"}))
        assert (plain.role, plain.scope, plain.is_admin) == ("admin", Scope.WRITE, False)
        assert (await tokens.verify(by_secret(good | {"scope": "admin"}))).is_admin

    async def test_one_whose_clock_is_a_little_off(self, tokens: Tokens, good: dict[str, Any], clock: ManualClock):
        ahead = clock.now().timestamp() + SKEW
        assert (await tokens.verify(by_secret(good | {"nbf": ahead, "iat": ahead, "exp": ahead + 1}))).user_id == 5
        clock.advance(seconds=60 + SKEW - 0.001)
        assert (await tokens.verify(by_secret(good))).user_id == 5
        clock.advance(seconds=0.001)
        await refused(tokens, by_secret(good))

    async def test_issuer_and_audience_as_they_are_set(self, clock: ManualClock, good: dict[str, Any]):
        tokens = Tokens(clock, secret=SECRET, issuer="https://id.example", audience="penstock")
        fit = good | {"iss": "https://id.example", "aud": ["other", "penstock"]}
        assert (await tokens.verify(by_secret(fit))).user_id == 5
        assert (await tokens.verify(by_secret(fit | {"aud": "penstock"}))).user_id == 5
        others: list[tuple[str, object]] = [("iss", "https://evil.example"), ("iss", None), ("iss", ["x"])]
        others += [("aud", "other"), ("aud", []), ("aud", None), ("aud", 5), ("aud", "penstock2")]
        for claim, value in others:
            await refused(tokens, forged({"alg": "HS256"}, fit | {claim: value}, hmac_key=SECRET.encode()))


class TestForgeries:
    @pytest.mark.parametrize("none", ["none", "None", "NONE", "", None, 0, [], {}])
    async def test_no_algorithm_at_all(self, tokens: Tokens, good: dict[str, Any], none: object):
        await refused(tokens, forged({"alg": none}, good))
        await refused(tokens, forged({"alg": none, "kid": "rsa"}, good, hmac_key=b""))

    async def test_a_public_key_used_as_a_shared_secret(self, tokens: Tokens, good: dict[str, Any]):
        for text in (RSA.public_pem, RSA.public_pem.strip(), json.dumps(RSA.jwk).encode(), RSA.jwk["n"].encode()):
            await refused(tokens, forged({"alg": "HS256", "kid": "rsa"}, good, hmac_key=text))

    async def test_a_secret_token_where_only_published_keys_are_taken(self, clock: ManualClock, good: dict[str, Any]):
        tokens = Tokens(clock, key_set=published(RSA, clock=clock))
        await refused(tokens, by_secret(good))
        await refused(tokens, forged({"alg": "HS256", "kid": "rsa"}, good, hmac_key=b""))

    async def test_a_published_shared_key_is_no_key(self, clock: ManualClock, good: dict[str, Any]):
        shared = {"kty": "oct", "kid": "shared", "k": part(SECRET.encode()).decode(), "alg": "HS256"}
        document = json.dumps({"keys": [shared, RSA.jwk]}).encode()

        async def fetch() -> bytes:
            return document

        tokens = Tokens(clock, key_set=JwkSet(fetch, clock, algorithms=["RS256"]))
        await refused(tokens, forged({"alg": "HS256", "kid": "shared"}, good, hmac_key=SECRET.encode()))
        assert (await tokens.verify(RSA.sign(good))).user_id == 5

    async def test_an_algorithm_that_is_not_among_those_set(self, clock: ManualClock, good: dict[str, Any]):
        signer = Signer.rsa(algorithm="RS512")
        assert (
            await Tokens(clock, key_set=published(signer, clock=clock, algorithms="RS512")).verify(signer.sign(good))
        ).user_id == 5
        await refused(Tokens(clock, key_set=published(signer, clock=clock)), signer.sign(good))
        for algorithm in ("HS384", "HS512"):
            await refused(Tokens(clock, secret=SECRET * 2), jwt.encode(good, SECRET * 2, algorithm=algorithm))

    async def test_a_key_supplied_by_the_sender(self, tokens: Tokens, good: dict[str, Any]):
        mallory = Signer.rsa("rsa")
        await refused(tokens, mallory.sign(good))
        brought = {"jwk": mallory.jwk, "jku": "https://evil.example/keys", "x5u": "https://evil.example/x"}
        await refused(tokens, mallory.sign(good, **brought))
        assert (await tokens.verify(RSA.sign(good, **brought))).user_id == 5

    async def test_an_unpublished_key_id(self, tokens: Tokens, good: dict[str, Any]):
        for kid in ("other", "", "../../etc/passwd", "' OR 1=1 --", "0", "a" * 1000):
            await refused(tokens, RSA.sign(good, kid=kid))
        odd_ones: list[object] = [5, [], {}, True]
        for odd in odd_ones:
            await refused(tokens, forged({"alg": "RS256", "kid": odd}, good))

    async def test_a_signature_of_something_else(self, tokens: Tokens, good: dict[str, Any]):
        header, _, signature = by_secret(good).split(".")
        await refused(tokens, f"{header}.{part(good | {'scope': 'admin'}).decode()}.{signature}")
        await refused(tokens, f"{header}.{part(good).decode()}.")

    async def test_a_short_rsa_key_is_refused(self, clock: ManualClock, good: dict[str, Any]):
        weak = Signer.rsa(bits=1024)
        with pytest.warns(jwt.InsecureKeyLengthWarning):
            token = weak.sign(good)
        await refused(Tokens(clock, key_set=published(weak, clock=clock)), token)

    async def test_an_unknown_critical_header(self, tokens: Tokens, good: dict[str, Any]):
        header = {"alg": "HS256", "crit": ["exp"], "exp": 1}
        await refused(tokens, forged(header, good, hmac_key=SECRET.encode()))

    @pytest.mark.parametrize(
        "change",
        [
            {"exp": None}, {"exp": 0}, {"exp": -1}, {"exp": "tomorrow"}, {"exp": True}, {"exp": float("nan")},
            {"exp": float("inf")}, {"exp": 10**400}, {"exp": [1]}, {"exp": {}},
            {"nbf": 99_999_999_999}, {"iat": 99_999_999_999}, {"nbf": "now"}, {"iat": float("-inf")},
            {"user_id": None}, {"user_id": "5"}, {"user_id": 5.0}, {"user_id": True}, {"user_id": 0}, {"user_id": -1},
            {"user_id": 2**63}, {"merchant_id": "9"}, {"merchant_id": 0}, {"role": 5}, {"role": "a\nb"},
            {"role": "r" * 101}, {"scope": "root"}, {"scope": ["admin"]}, {"scope": ""}, {"scope": None},
            {"scope": "read write"}, {"projects": "a"}, {"projects": [1]}, {"projects": [""]},
            {"projects": ["a" * 256]}, {"projects": ["a"] * 101},
        ],
        ids=str,
    )  # fmt: skip
    async def test_invalid_claims(self, tokens: Tokens, good: dict[str, Any], change: dict[str, Any]):
        await refused(tokens, forged({"alg": "HS256"}, good | change, hmac_key=SECRET.encode()))

    async def test_an_expired_and_a_not_yet_valid_token(self, tokens: Tokens, good: dict[str, Any], clock: ManualClock):
        now = clock.now().timestamp()
        await refused(tokens, by_secret(good | {"exp": now - SKEW}))
        await refused(tokens, by_secret(good | {"nbf": now + SKEW + 0.001}))
        await refused(tokens, by_secret(good | {"iat": now + SKEW + 0.001}))

    async def test_one_that_never_expires(self, tokens: Tokens, good: dict[str, Any]):
        del good["exp"]
        await refused(tokens, by_secret(good))

    async def test_one_that_is_too_long(self, tokens: Tokens, good: dict[str, Any]):
        token = by_secret(good | {"role": "editor", "more": "x" * MAX_BYTES})
        await refused(tokens, token)

    async def test_one_that_is_nested_too_deep(self, tokens: Tokens, good: dict[str, Any]):
        deep = b"[" * 3000 + b"]" * 3000
        await refused(tokens, f"{part(deep).decode()}.{part(good).decode()}.x")
        await refused(tokens, forged({"alg": "HS256"}, deep, hmac_key=SECRET.encode()))

    @given(token=st.text(max_size=200) | st.from_regex(r"[\w-]{0,40}\.[\w-]{0,40}\.[\w-]{0,40}", fullmatch=True))
    @settings(max_examples=200, deadline=None)
    def test_garbage(self, token: str):
        clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        asyncio.run(refused(Tokens(clock, secret=SECRET, key_set=published(RSA, clock=clock)), token))

    async def test_any_token_where_none_is_accepted(self, clock: ManualClock, good: dict[str, Any]):
        await refused(Tokens(clock), by_secret(good))
        await refused(Tokens(clock), forged({"alg": "HS256"}, good, hmac_key=b""))
        await refused(Tokens(clock), RSA.sign(good))


class TestSettings:
    @pytest.mark.parametrize("secret", ["x", "a" * 31])
    def test_a_short_secret_is_refused_at_the_start_without_repeating_it(self, clock: ManualClock, secret: str):
        with pytest.raises(BadTokenSettings, match="PENSTOCK_JWT_SECRET") as refusal:
            Tokens(clock, secret=secret)
        assert secret * 2 not in str(refusal.value)

    def test_a_public_key_as_the_secret_is_refused(self, clock: ManualClock):
        with pytest.raises(BadTokenSettings, match="not secret"):
            Tokens(clock, secret=RSA.public_pem.decode())

    @pytest.mark.parametrize("listed", ["HS256", "none", "RS256,HS256", "", " , ", "rs256"])
    def test_algorithms_that_cannot_be_published_are_refused(self, listed: str):
        with pytest.raises(BadTokenSettings, match="PENSTOCK_JWT_ALGORITHMS"):
            parse_algorithms(listed)

    def test_spaces_between_algorithms_do_no_harm(self):
        assert parse_algorithms(" RS256 , ES256,") == ["RS256", "ES256"]

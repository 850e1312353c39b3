"""JWTs: whose signature we take, by which algorithm, and what a token has to say.

The algorithm decides which key may be tried, never the other way round: HS256 goes with the shared secret alone, the
configured asymmetric ones with published keys alone. So a public key cannot be passed off as a secret, and what a token
brings along in `jku`, `x5u` or `jwk` is never looked at. Times are measured by our clock, with some skew.

Claims: `exp` and `user_id` (a whole number) are needed; `merchant_id`, `role` and `scope` may be there. Without `scope`
a token may write. A `role` of "admin" opens nothing by itself: roles are words of the one who signs, scopes are ours.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import jwt

from penstock.access.domain import MOST_ID, Caller, Scope
from penstock.access.errors import BadTokenSettings, InvalidToken
from penstock.access.key_set import KeySet
from penstock.kernel.clock import Clock

log = logging.getLogger(__name__)

SECRET_ALGORITHM = "HS256"  # noqa: S105  (the name of an algorithm)
PUBLIC_ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
LEAST_SECRET_BYTES = 32  # as long as the hash: a shorter secret could be found from one token
MOST_BYTES = 8192
MOST_ROLE = 100
# Signatures are checked here; every claim is checked below, by our clock.
SIGNATURE_ONLY: Any = {
    "verify_signature": True,
    "enforce_minimum_key_length": True,
    **{f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")},
}


class Tokens:
    """Reads JWTs. Without a secret and a key set it takes none."""

    def __init__(
        self,
        clock: Clock,
        *,
        secret: str = "",
        key_set: KeySet | None = None,
        issuer: str = "",
        audience: str = "",
        skew_seconds: float = 30,
    ) -> None:
        self._clock = clock
        self._secret = _checked(secret)
        self._key_set = key_set
        self._issuer = issuer
        self._audience = audience
        self._skew_seconds = skew_seconds

    async def read(self, token: str) -> Caller:
        """Who calls with this token, or `InvalidToken`, which tells them nothing more."""
        try:
            return self._caller(await self._claims(token))
        except (jwt.PyJWTError, _Unfit) as error:
            log.debug("a token was refused: %s", error)
            raise InvalidToken from error

    async def keep_fresh(self) -> None:
        """Fetch published keys anew every so often, until cancelled."""
        if self._key_set is not None:
            await self._key_set.keep_fresh()

    async def _claims(self, token: str) -> Mapping[str, Any]:
        if len(token) > MOST_BYTES:
            raise _Unfit("it is too long")
        header = jwt.get_unverified_header(token)
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm == SECRET_ALGORITHM and self._secret:
            return jwt.decode(token, self._secret, algorithms=[SECRET_ALGORITHM], options=SIGNATURE_ONLY)
        if self._key_set is None or not isinstance(algorithm, str) or algorithm not in self._key_set.algorithms:
            raise _Unfit("its algorithm is not taken")
        key = await self._key_set.find(kid, algorithm)
        if key is None:
            raise _Unfit("its key is not known")
        return jwt.decode(token, key, algorithms=[algorithm], options=SIGNATURE_ONLY)

    def _caller(self, claims: Mapping[str, Any]) -> Caller:
        self._check_times(claims)
        self._check_parties(claims)
        user_id = _number(claims, "user_id")
        if user_id is None:
            raise _Unfit("it has no user_id")
        return Caller(
            name=f"user:{user_id}",
            user_id=user_id,
            scope=_scope(claims),
            merchant_id=_number(claims, "merchant_id"),
            role=_role(claims),
        )

    def _check_times(self, claims: Mapping[str, Any]) -> None:
        now, skew = self._clock.now().timestamp(), self._skew_seconds
        ends_at = _moment(claims, "exp")
        if ends_at is None or now >= ends_at + skew:
            raise _Unfit("it has expired, or never does")
        for claim in ("nbf", "iat"):
            begins_at = _moment(claims, claim)
            if begins_at is not None and begins_at > now + skew:
                raise _Unfit(f"its {claim} lies in the future")

    def _check_parties(self, claims: Mapping[str, Any]) -> None:
        if self._issuer and claims.get("iss") != self._issuer:
            raise _Unfit("it is from another issuer")
        given = claims.get("aud")
        if self._audience and self._audience not in (given if isinstance(given, list) else [given]):
            raise _Unfit("it is for another audience")


class _Unfit(Exception):
    """Why a token is refused; for our log only."""


def algorithms_of(listed: str) -> Sequence[str]:
    """The algorithms of a setting, by comma. A shared secret, or none at all, is not among what can be published."""
    names = [name for part in listed.split(",") if (name := part.strip())]
    if not names or (unknown := sorted(set(names) - PUBLIC_ALGORITHMS)):
        reason = f"{unknown[0]} is not one of {', '.join(sorted(PUBLIC_ALGORITHMS))}" if names else "it names none"
        raise BadTokenSettings(setting="PENSTOCK_JWT_ALGORITHMS", reason=reason)
    return names


def _checked(secret: str) -> bytes:
    """The secret's bytes. A weak one is refused at the start, not with the first forged token."""
    text = secret.encode()
    if 0 < len(text) < LEAST_SECRET_BYTES:
        raise BadTokenSettings(setting="PENSTOCK_JWT_SECRET", reason=f"it has {len(text)} bytes, too few to be safe")
    try:
        if text:
            jwt.get_algorithm_by_name(SECRET_ALGORITHM).prepare_key(text)
    except jwt.InvalidKeyError as error:
        reason = "it is a public key or a certificate, which anyone can have"
        raise BadTokenSettings(setting="PENSTOCK_JWT_SECRET", reason=reason) from error
    return text


def _moment(claims: Mapping[str, Any], claim: str) -> float | None:
    """A claim that is a time, in seconds since 1970."""
    value = claims.get(claim)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -MOST_ID < value < MOST_ID:
        raise _Unfit(f"its {claim} is no time")  # NaN and infinity end here too
    return float(value)


def _number(claims: Mapping[str, Any], claim: str) -> int | None:
    value = claims.get(claim)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MOST_ID:
        raise _Unfit(f"its {claim} is no whole number")
    return value


def _role(claims: Mapping[str, Any]) -> str | None:
    value = claims.get("role")
    if value is None:
        return None
    if not isinstance(value, str) or not value.isprintable() or len(value) > MOST_ROLE:
        raise _Unfit("its role is no word")
    return value


def _scope(claims: Mapping[str, Any]) -> Scope:
    value = claims.get("scope", Scope.WRITE)
    if value not in list(Scope):
        raise _Unfit("its scope is not one of ours")
    return Scope(value)

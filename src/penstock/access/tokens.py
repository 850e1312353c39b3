"""JWT verification: accepted signatures, algorithms and claims. Forged tokens are refused without details.

The algorithm decides which key is tried: HS256 only with the shared secret, the configured asymmetric algorithms only
with published keys. So a public key cannot be used as a secret, and the `jku`, `x5u` and `jwk` headers of a token are
ignored. Times are checked against our clock, with some skew.

Claims: `exp` and `user_id` (an integer) are required; `merchant_id`, `role`, `scope` and `projects` are optional.
Without `scope` a token has the scope `write`, but in the tasks module `read`, and it may not pull. A `role` of "admin"
grants nothing: roles are the issuer's words, scopes are ours. Of the tasks module, a token may use the projects that
its `projects` name and those of its merchant; an admin's token without `projects` may use all.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import jwt

from penstock.access.domain import MAX_ID, Caller, ProjectAccess, Scope
from penstock.access.errors import BadTokenSettings, InvalidToken
from penstock.access.jwks import JwkSet
from penstock.kernel.clock import Clock

log = logging.getLogger(__name__)

SECRET_ALGORITHM = "HS256"  # noqa: S105  (the name of an algorithm)
PUBLIC_ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
MIN_SECRET_BYTES = 32  # as long as the hash: a shorter secret could be brute-forced from one token
MAX_BYTES = 8192
MAX_ROLE = 100
MAX_PROJECTS, MAX_PROJECT_ID = 100, 255
# Signatures are checked here; every claim is checked below, by our clock.
SIGNATURE_ONLY: Any = {
    "verify_signature": True,
    "enforce_minimum_key_length": True,
    **{f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")},
}


class Tokens:
    """Verifies JWTs. Without a secret and a JWK Set it accepts none."""

    def __init__(
        self,
        clock: Clock,
        *,
        secret: str = "",
        key_set: JwkSet | None = None,
        issuer: str = "",
        audience: str = "",
        skew_seconds: float = 30,
        merchant_projects: bool = True,
    ) -> None:
        self._clock = clock
        self._secret = _check_secret(secret)
        self._key_set = key_set
        self._issuer = issuer
        self._audience = audience
        self._skew_seconds = skew_seconds
        self._merchant_projects = merchant_projects  # whether tokens may use the projects of their merchant

    async def verify(self, token: str) -> Caller:
        """The caller of a token; raises `InvalidToken`, which does not reveal the reason."""
        try:
            return self._caller(await self._claims(token))
        except (jwt.PyJWTError, _ClaimError) as error:
            log.debug("token refused: %s", error)
            raise InvalidToken from error

    async def refresh_keys(self) -> None:
        """Refresh the JWK Set until cancelled."""
        if self._key_set is not None:
            await self._key_set.refresh_periodically()

    async def _claims(self, token: str) -> Mapping[str, Any]:
        if len(token) > MAX_BYTES:
            raise _ClaimError("it is too long")
        header = jwt.get_unverified_header(token)
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm == SECRET_ALGORITHM and self._secret:
            return jwt.decode(token, self._secret, algorithms=[SECRET_ALGORITHM], options=SIGNATURE_ONLY)
        if self._key_set is None or not isinstance(algorithm, str) or algorithm not in self._key_set.algorithms:
            raise _ClaimError("its algorithm is not accepted")
        key = await self._key_set.find(kid, algorithm)
        if key is None:
            raise _ClaimError("its key is not known")
        return jwt.decode(token, key, algorithms=[algorithm], options=SIGNATURE_ONLY)

    def _caller(self, claims: Mapping[str, Any]) -> Caller:
        self._check_times(claims)
        self._check_parties(claims)
        user_id = _number(claims, "user_id")
        if user_id is None:
            raise _ClaimError("it has no user_id")
        scope, merchant_id = _scope(claims), _number(claims, "merchant_id")
        return Caller(
            name=f"user:{user_id}",
            user_id=user_id,
            scope=scope or Scope.WRITE,
            merchant_id=merchant_id,
            role=_role(claims),
            projects=self._project_access(claims, scope, merchant_id),
            task_scope=None if scope else Scope.READ,
            may_pull=scope is not None,
        )

    def _project_access(
        self, claims: Mapping[str, Any], scope: Scope | None, merchant_id: int | None
    ) -> ProjectAccess | None:
        named = _projects(claims)
        if named is None and scope is Scope.ADMIN:
            return None
        return ProjectAccess(ids=named or frozenset(), merchant_id=merchant_id if self._merchant_projects else None)

    def _check_times(self, claims: Mapping[str, Any]) -> None:
        now, skew = self._clock.now().timestamp(), self._skew_seconds
        expires_at = _time(claims, "exp")
        if expires_at is None or now >= expires_at + skew:
            raise _ClaimError("it has expired or has no exp")
        for claim in ("nbf", "iat"):
            valid_from = _time(claims, claim)
            if valid_from is not None and valid_from > now + skew:
                raise _ClaimError(f"its {claim} is in the future")

    def _check_parties(self, claims: Mapping[str, Any]) -> None:
        if self._issuer and claims.get("iss") != self._issuer:
            raise _ClaimError("it is from another issuer")
        given = claims.get("aud")
        if self._audience and self._audience not in (given if isinstance(given, list) else [given]):
            raise _ClaimError("it is for another audience")


class _ClaimError(Exception):
    """Why a token is refused, for the log only."""


def parse_algorithms(listed: str) -> Sequence[str]:
    """Parse a comma-separated list of algorithms; only asymmetric ones can be verified with published keys."""
    names = [name for part in listed.split(",") if (name := part.strip())]
    if not names or (unknown := sorted(set(names) - PUBLIC_ALGORITHMS)):
        reason = f"{unknown[0]} is not one of {', '.join(sorted(PUBLIC_ALGORITHMS))}" if names else "it is empty"
        raise BadTokenSettings(setting="PENSTOCK_JWT_ALGORITHMS", reason=reason)
    return names


def _check_secret(secret: str) -> bytes:
    """The secret as bytes. A weak one is refused at start, not with the first forged token."""
    text = secret.encode()
    if 0 < len(text) < MIN_SECRET_BYTES:
        raise BadTokenSettings(setting="PENSTOCK_JWT_SECRET", reason=f"it has {len(text)} bytes, too few to be safe")
    try:
        if text:
            jwt.get_algorithm_by_name(SECRET_ALGORITHM).prepare_key(text)
    except jwt.InvalidKeyError as error:
        reason = "it is a public key or a certificate, which is not secret"
        raise BadTokenSettings(setting="PENSTOCK_JWT_SECRET", reason=reason) from error
    return text


def _time(claims: Mapping[str, Any], claim: str) -> float | None:
    """A claim with a time, in seconds since 1970."""
    value = claims.get(claim)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -MAX_ID < value < MAX_ID:
        raise _ClaimError(f"its {claim} is not a time")  # also NaN and infinity
    return float(value)


def _number(claims: Mapping[str, Any], claim: str) -> int | None:
    value = claims.get(claim)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_ID:
        raise _ClaimError(f"its {claim} is not a positive integer")
    return value


def _role(claims: Mapping[str, Any]) -> str | None:
    value = claims.get("role")
    if value is None:
        return None
    if not isinstance(value, str) or not value.isprintable() or len(value) > MAX_ROLE:
        raise _ClaimError("its role is not a short printable string")
    return value


def _scope(claims: Mapping[str, Any]) -> Scope | None:
    if "scope" not in claims:
        return None
    value = claims["scope"]
    if value not in list(Scope):
        raise _ClaimError("its scope is not known")
    return Scope(value)


def _projects(claims: Mapping[str, Any]) -> frozenset[str] | None:
    value = claims.get("projects")
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > MAX_PROJECTS or not all(map(_is_project_id, value)):
        raise _ClaimError(f"its projects are not a list of at most {MAX_PROJECTS} project ids")
    return frozenset(value)


def _is_project_id(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_PROJECT_ID

"""The JWK Set: the public keys that verify JWTs, fetched from the issuer and refreshed.

A token signed by a known key never waits for the network: keys are refreshed in the background. An unknown key id may
cause a fetch, but only once per interval, since anyone can invent key ids. While the issuer is unavailable, cached keys
stay valid for a day; without any keys, requests fail with `JWKS_UNAVAILABLE`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm

from penstock.access.errors import JwksUnavailable
from penstock.kernel.clock import Clock

log = logging.getLogger(__name__)

REFRESH_SECONDS = 300.0  # a withdrawn key is accepted no longer than this
MIN_FETCH_SECONDS = 30.0  # between two fetches caused by unknown keys
MAX_AGE = timedelta(days=1)
MAX_KEYS = 100
PRIVATE_MEMBERS = ("d", "k")  # only a private or a shared key has them

Keys = Mapping[tuple[str | int, str], jwt.PyJWK]  # by key id, or position if there is none, and algorithm
Fetch = Callable[[], Awaitable[bytes]]  # returns the document, or raises `JwksUnavailable`


class JwkSet:
    """Finds keys by key id and algorithm."""

    def __init__(self, fetch: Fetch, clock: Clock, *, algorithms: Sequence[str]) -> None:
        self.algorithms = frozenset(algorithms)
        self._fetch = fetch
        self._clock = clock
        self._keys: Keys = {}
        self._fetched_at: datetime | None = None
        self._tried_at: datetime | None = None
        self._error: str | None = None  # why the last fetch failed
        self._fetch_lock = asyncio.Lock()

    async def find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        """The key that a token names, or without a key id the only key; `JwksUnavailable` if there are no keys."""
        if (key := self._find(kid, algorithm)) is not None:
            return key
        async with self._fetch_lock:
            if (key := self._find(kid, algorithm)) is not None:
                return key
            if self._may_fetch():
                await self._refresh()
        if self._error is not None and not self._usable():
            raise JwksUnavailable(reason=self._error)
        return self._find(kid, algorithm)

    async def refresh_periodically(self) -> None:
        """Refresh the keys until cancelled."""
        while True:
            async with self._fetch_lock:
                await self._refresh()
            await self._clock.sleep(REFRESH_SECONDS if self._error is None else MIN_FETCH_SECONDS)

    def _find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        if not self._usable():
            return None
        if kid is not None:
            return self._keys.get((kid, algorithm))
        candidates = [key for (_, known), key in self._keys.items() if known == algorithm]
        return candidates[0] if len(candidates) == 1 else None

    def _usable(self) -> bool:
        return self._fetched_at is not None and self._clock.now() < self._fetched_at + MAX_AGE

    def _may_fetch(self) -> bool:
        if self._tried_at is None:
            return True
        return self._clock.now() >= self._tried_at + timedelta(seconds=MIN_FETCH_SECONDS)

    async def _refresh(self) -> None:
        """Fetch once. A failed fetch keeps the current keys."""
        self._tried_at = self._clock.now()
        try:
            keys = _parse(await self._fetch(), self.algorithms)
        except JwksUnavailable as error:
            log.warning("%s", error)
            self._error = str(error.values["reason"])
            return
        self._keys, self._fetched_at, self._error = keys, self._clock.now(), None


def _parse(document: bytes, algorithms: frozenset[str]) -> Keys:
    """Every public key of the document that fits one of the algorithms."""
    try:
        listed = msgspec.json.decode(document, type=dict[str, Any])["keys"]
        entries = [entry for entry in listed if isinstance(entry, dict)]
    except (msgspec.MsgspecError, KeyError, TypeError, RecursionError) as error:
        raise JwksUnavailable(reason="the response is not a JWK Set") from error
    found: dict[tuple[str | int, str], jwt.PyJWK] = {}
    for number, entry in enumerate(entries[:MAX_KEYS]):
        kid = entry.get("kid")
        for algorithm in algorithms:
            key = _public_key(entry, algorithm)
            if key is not None:
                found[kid if isinstance(kid, str) else number, algorithm] = key
    if not found:
        raise JwksUnavailable(reason="the response has no usable key")
    return found


def _public_key(entry: dict[str, Any], algorithm: str) -> jwt.PyJWK | None:
    if entry.get("alg", algorithm) != algorithm or entry.get("use", "sig") != "sig":
        return None
    if any(member in entry for member in PRIVATE_MEMBERS):
        return None
    try:
        return jwt.PyJWK(entry, algorithm=algorithm)
    except (jwt.PyJWTError, UnsupportedAlgorithm):
        return None  # a key of another kind

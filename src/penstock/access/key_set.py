"""The published keys of whoever signs our JWTs (a JWKS), fetched, kept and fetched again.

A token by a known key never waits for the network: keys are fetched anew in the background. One by an unknown key may
cause a fetch, at most every so often, since anyone can invent key ids. While the server is away the keys we have stay
good for a day; without any, callers are told that a part of the house is away.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm

from penstock.access.errors import KeySetAway
from penstock.kernel.clock import Clock

log = logging.getLogger(__name__)

FRESH_SECONDS = 300.0  # how long a key that was withdrawn may go on being taken
LOOK_SECONDS = 30.0  # between two fetches that unknown keys ask for
STALE_TIME = timedelta(days=1)
MOST_KEYS = 100
PRIVATE = ("d", "k")  # members that only a private or shared key has

Keys = Mapping[tuple[str | int, str], jwt.PyJWK]  # by id, or by place where there is none, and by algorithm
Fetch = Callable[[], Awaitable[bytes]]  # the document as it is served, or `KeySetAway`


class KeySet:
    """The keys by id and algorithm."""

    def __init__(self, fetch: Fetch, clock: Clock, *, algorithms: Sequence[str]) -> None:
        self.algorithms = frozenset(algorithms)
        self._fetch = fetch
        self._clock = clock
        self._keys: Keys = {}
        self._fetched_at: datetime | None = None
        self._looked_at: datetime | None = None
        self._away: str | None = None  # why the last fetch failed
        self._one_at_a_time = asyncio.Lock()

    async def find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        """The key a token names; without a name the only one there is. Raises `KeySetAway` when we have none at all."""
        if (key := self._find(kid, algorithm)) is not None:
            return key
        async with self._one_at_a_time:
            if (key := self._find(kid, algorithm)) is not None:
                return key
            if self._may_look():
                await self._look()
        if self._away is not None and not self._usable():
            raise KeySetAway(reason=self._away)
        return self._find(kid, algorithm)

    async def keep_fresh(self) -> None:
        """Fetch anew every so often, until cancelled."""
        while True:
            async with self._one_at_a_time:
                await self._look()
            await self._clock.sleep(FRESH_SECONDS if self._away is None else LOOK_SECONDS)

    def _find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        if not self._usable():
            return None
        if kid is not None:
            return self._keys.get((kid, algorithm))
        fitting = [key for (_, known), key in self._keys.items() if known == algorithm]
        return fitting[0] if len(fitting) == 1 else None

    def _usable(self) -> bool:
        return self._fetched_at is not None and self._clock.now() < self._fetched_at + STALE_TIME

    def _may_look(self) -> bool:
        if self._looked_at is None:
            return True
        return self._clock.now() >= self._looked_at + timedelta(seconds=LOOK_SECONDS)

    async def _look(self) -> None:
        """Fetch once. What we have stays when the server is away or answers nonsense."""
        self._looked_at = self._clock.now()
        try:
            keys = _read(await self._fetch(), self.algorithms)
        except KeySetAway as error:
            log.warning("%s", error)
            self._away = str(error.values["reason"])
            return
        self._keys, self._fetched_at, self._away = keys, self._clock.now(), None


def _read(document: bytes, algorithms: frozenset[str]) -> Keys:
    """Every public key of the document that fits one of the algorithms; others are none of our business."""
    try:
        listed = msgspec.json.decode(document, type=dict[str, Any])["keys"]
        entries = [entry for entry in listed if isinstance(entry, dict)]
    except (msgspec.MsgspecError, KeyError, TypeError, RecursionError) as error:
        raise KeySetAway(reason="the answer is no key set") from error
    found: dict[tuple[str | int, str], jwt.PyJWK] = {}
    for number, entry in enumerate(entries[:MOST_KEYS]):
        kid = entry.get("kid")
        for algorithm in algorithms:
            key = _public_key(entry, algorithm)
            if key is not None:
                found[kid if isinstance(kid, str) else number, algorithm] = key
    if not found:
        raise KeySetAway(reason="the answer has no key that fits")
    return found


def _public_key(entry: dict[str, Any], algorithm: str) -> jwt.PyJWK | None:
    if entry.get("alg", algorithm) != algorithm or entry.get("use", "sig") != "sig":
        return None
    if any(member in entry for member in PRIVATE):
        return None
    try:
        return jwt.PyJWK(entry, algorithm=algorithm)
    except (jwt.PyJWTError, UnsupportedAlgorithm):
        return None  # a key of another kind

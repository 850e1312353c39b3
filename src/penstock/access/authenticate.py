"""Authentication: find the credential of a request, look it up, and return its `Caller`.

`X-API-Key` carries a key; `Authorization: Bearer` carries a key, a console login or a JWT. A request with two different
credentials is refused, since one of them would be ignored. A lookup is one indexed read and is cached for two seconds,
which is the worst case of how late a revocation takes effect: a change to a key, such as its revocation, or to a login
notifies every process, which then clears its cache. The last use of keys is written in the background, about once a
minute, and so are refused credentials, which are counted by address: a few lines of the audit log each time.
"""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request

from penstock.access import audit, store
from penstock.access.credentials import KEY_PREFIX, SESSION_PREFIX, hash_secret
from penstock.access.domain import Caller, Key, KeyState, ProjectAccess, Scope, Session
from penstock.access.errors import (
    InvalidApiKey,
    InvalidToken,
    KeyIsBound,
    NoCredential,
    ScopeTooSmall,
    SessionOver,
    TwoCredentials,
)
from penstock.access.keys import CHANNEL, JWT_DOTS
from penstock.access.tokens import Tokens
from penstock.kernel.cache import Cache
from penstock.kernel.db import Db
from penstock.kernel.errors import Unavailable

log = logging.getLogger(__name__)

CACHE_SECONDS = 2.0
MAX_CACHED, MAX_UNKNOWN = 10_000, 1_000  # credentials that exist, and made-up ones
LAST_USED_SECONDS = 60.0
MAX_PENDING_USES = 10_000  # keys whose last use is not written yet
USES_PER_STATEMENT = 500
REASONS = {
    KeyState.EXPIRED: ("it has expired", "已过期"),
    KeyState.REVOKED: ("it was revoked", "已被撤销"),
}
REFUSED_SECONDS = 60.0
MAX_REFUSED = 20  # lines about refused credentials per write; the rest is one line
OTHERS = ("", "others", "too many to list")
UNKNOWN_KEY = ("it is not known", "未知")
MAX_CHARACTERS = 1000  # of a key that are hashed; every valid key is shorter


@dataclass(frozen=True, kw_only=True)
class Credential:
    """The credential of a request."""

    text: str
    key_only: bool  # it came in X-API-Key

    @property
    def is_login(self) -> bool:
        """Whether it is a console login."""
        return not self.key_only and self.text.startswith(SESSION_PREFIX)

    @property
    def is_jwt(self) -> bool:
        """Whether it is a JWT; our keys contain no dots."""
        return not self.key_only and self.text.count(".") == JWT_DOTS and not self.text.startswith(KEY_PREFIX)


class Authenticator:
    """Identifies and authorizes callers. `run` must run in the background.

    With `confine_keys`, a key that has a merchant may use only the projects of that merchant, like a JWT.
    """

    def __init__(
        self, db: Db, *, tokens: Tokens, cache_seconds: float = CACHE_SECONDS, confine_keys: bool = False
    ) -> None:
        self._db = db
        self._tokens = tokens
        self._confine_keys = confine_keys
        self._keys: Cache[str, Key | None] = _credential_cache(db, cache_seconds)
        self._sessions: Cache[str, Session | None] = _credential_cache(db, cache_seconds)
        self._last_used: dict[str, datetime] = {}
        self._refused: Counter[tuple[str, str, str]] = Counter()  # by address, target and reason

    async def authorize(self, request: Request, scope: Scope, *, bound: bool) -> Caller:
        """The caller, if their scope is enough; `bound` also admits keys that are bound to a project."""
        try:
            caller = await self.identify(request.headers)
        except (InvalidApiKey, InvalidToken) as error:
            self._count_refused(address_of(request), error)
            raise
        if caller is None:
            raise NoCredential
        if caller.project is not None and not bound:
            raise KeyIsBound
        if not caller.covers(scope, in_projects=bound):
            held = caller.task_scope if bound and caller.task_scope is not None else caller.scope
            raise ScopeTooSmall(needed=str(scope), held=str(held))
        return replace(caller, request_id=getattr(request.state, "request_id", ""), address=address_of(request))

    async def identify(self, headers: Headers) -> Caller | None:
        """The caller of a request, or None without a credential; raises if the credential is not valid."""
        credential = find_credential(headers)
        if credential is None:
            return None
        if credential.is_login:
            return await self._by_login(credential.text)
        if credential.is_jwt:
            return await self._tokens.verify(credential.text)
        return await self._by_key(credential.text)

    async def run(self) -> None:
        """Clear the cache on notification, write the last use of keys, and refresh the JWKS, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._clear_on_notify())
            tasks.create_task(self._write_last_used_periodically())
            tasks.create_task(self._write_refused_periodically())
            tasks.create_task(self._tokens.refresh_keys())

    def clear_cache(self) -> None:
        """Look everything up again."""
        self._keys.clear()
        self._sessions.clear()

    async def write_last_used(self) -> None:
        """Write when keys were last used. If the database is unavailable, keep them for the next time."""
        used, self._last_used = self._last_used, {}
        try:
            for first in range(0, len(used), USES_PER_STATEMENT):
                batch = dict(list(used.items())[first : first + USES_PER_STATEMENT])
                async with self._db.tx(actor="access") as tx:
                    await store.move_last_used(tx, batch, apart=timedelta(seconds=LAST_USED_SECONDS))
        except Unavailable as error:
            self._last_used = used | self._last_used  # batches that were written are skipped next time
            log.warning("cannot write when keys were last used, retrying later: %s", error)

    async def write_refused(self) -> None:
        """Record in the audit log what was refused. If the database is unavailable, it is counted on."""
        refused, self._refused = self._refused, Counter()
        try:
            async with self._db.tx(actor="access") as tx:
                await audit.record_refused(tx, refused)
        except Unavailable as error:
            self._refused += refused
            log.warning("cannot record refused keys, retrying later: %s", error)

    def _count_refused(self, address: str, error: InvalidApiKey | InvalidToken) -> None:
        """Count instead of recording each: a stranger must not fill the audit log."""
        target = "token"
        if isinstance(error, InvalidApiKey):
            target = f"key:{error.key_id}" if error.key_id else "key"
        entry = (address, target, str(error.values.get("reason", "it is not valid")))
        full = entry not in self._refused and len(self._refused) >= MAX_REFUSED
        self._refused[OTHERS if full else entry] += 1

    async def _by_key(self, secret: str) -> Caller:
        hashed = hash_secret(secret[:MAX_CHARACTERS])
        key = (await self._keys.get(hashed, partial(self._find_key, hashed))).value
        now = self._db.clock.now()
        if key is None or (state := key.state(now)) is not KeyState.ACTIVE:
            reason, reason_zh = UNKNOWN_KEY if key is None else REASONS[state]
            error = InvalidApiKey(reason=reason, reason_zh=reason_zh)
            error.key_id = key.id if key is not None else None
            raise error
        if key.id in self._last_used or len(self._last_used) < MAX_PENDING_USES:
            self._last_used[key.id] = now
        caller = key.caller()
        if self._confine_keys and key.merchant_id is not None and not caller.is_admin:
            return replace(caller, projects=ProjectAccess(merchant_id=key.merchant_id))
        return caller

    async def _by_login(self, token: str) -> Caller:
        hashed = hash_secret(token)
        session = (await self._sessions.get(hashed, partial(self._find_session, hashed))).value
        if session is None or session.expires_at <= self._db.clock.now():
            raise SessionOver
        return session.user.caller()

    async def _find_key(self, hashed: str) -> Key | None:
        async with self._db.read() as tx:
            return await store.find_key(tx, hashed)

    async def _find_session(self, hashed: str) -> Session | None:
        async with self._db.read() as tx:
            return await store.find_session(tx, hashed)

    async def _clear_on_notify(self) -> None:
        with self._db.wakeups.on_wake(CHANNEL, self.clear_cache):
            await asyncio.Event().wait()

    async def _write_refused_periodically(self) -> None:
        while True:
            await self._db.clock.sleep(REFUSED_SECONDS)
            if self._refused:
                await self.write_refused()

    async def _write_last_used_periodically(self) -> None:
        while True:
            await self._db.clock.sleep(LAST_USED_SECONDS)
            if self._last_used:
                await self.write_last_used()


def _credential_cache(db: Db, seconds: float) -> Cache[str, Any]:
    return Cache(db.clock, max_entries=MAX_CACHED, max_missing=MAX_UNKNOWN, ttl=timedelta(seconds=seconds))


def find_credential(headers: Headers) -> Credential | None:
    """The credential of a request. Authorization schemes other than Bearer are for a proxy in front of us: ignored."""
    keys = {text for value in headers.getlist("x-api-key") if (text := value.strip())}
    bearers = {text for value in headers.getlist("authorization") if (text := _bearer(value))}
    if len(keys | bearers) > 1:
        raise TwoCredentials
    for text in keys | bearers:
        return Credential(text=text, key_only=not bearers)
    return None


def address_of(request: Request) -> str:
    """The address of the client: the peer of the connection, or whom a trusted proxy forwards for."""
    return request.client.host if request.client is not None else ""


def _bearer(value: str) -> str:
    scheme, _, text = value.strip().partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""

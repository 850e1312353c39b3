"""Who is calling: the credential of a request is found, looked up, and made into a `Caller`.

`X-API-Key` carries a key; `Authorization: Bearer` a key, a console login or a JWT. Two different ones are refused: one
of them would be ignored. A look-up is one read by an index and is remembered for two seconds at most; a change to a key
rings a bell, and every process that hears it forgets at once. When a key was last used is written down in the
background, about once a minute.
"""

import asyncio
import logging
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from starlette.datastructures import Headers
from starlette.requests import Request

from penstock.access import store
from penstock.access.domain import Caller, Key, KeyState, Scope, Session
from penstock.access.errors import (
    InitRefused,
    InvalidApiKey,
    KeyIsBound,
    NoCredential,
    ScopeTooSmall,
    SessionOver,
    TwoCredentials,
)
from penstock.access.keys import CHANNEL, JWT_DOTS
from penstock.access.memory import Memory
from penstock.access.secret import KEY_MARK, SESSION_MARK, hash_of
from penstock.access.tokens import Tokens
from penstock.kernel.db import Db
from penstock.kernel.errors import Unavailable

log = logging.getLogger(__name__)

REMEMBER_SECONDS = 2.0
USED_SECONDS = 60.0
MOST_USED = 10_000  # keys whose use waits to be written down
USED_AT_ONCE = 500
WHY_NOT = {
    KeyState.EXPIRED: ("it has expired", "已过期"),
    KeyState.REVOKED: ("it was revoked", "已被撤销"),
}
MOST_CHARACTERS = 1000  # of a key that are looked at; every key is shorter
HERE = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
UNKNOWN = ("it is not known", "未知")


@dataclass(frozen=True, kw_only=True)
class Credential:
    """What a request shows of itself."""

    text: str
    key_only: bool  # it came in X-API-Key

    @property
    def is_login(self) -> bool:
        """Whether it is a console login."""
        return not self.key_only and self.text.startswith(SESSION_MARK)

    @property
    def is_jwt(self) -> bool:
        """Whether it is a JWT; keys of ours have no dots."""
        return not self.key_only and self.text.count(".") == JWT_DOTS and not self.text.startswith(KEY_MARK)


class Access:
    """Knows callers by what they show. `run` has to run beside it."""

    def __init__(self, db: Db, *, tokens: Tokens, remember_seconds: float = REMEMBER_SECONDS) -> None:
        self._db = db
        self._tokens = tokens
        self._keys: Memory[Key] = Memory(db.clock, seconds=remember_seconds)
        self._sessions: Memory[Session] = Memory(db.clock, seconds=remember_seconds)
        self._used: dict[str, datetime] = {}

    async def admit(self, request: Request, scope: Scope, *, bound: bool) -> Caller:
        """The caller, if they may do what needs this scope; `bound` lets keys in that are bound to a project."""
        caller = await self.identify(request.headers)
        if caller is None:
            raise NoCredential
        if caller.project is not None and not bound:
            raise KeyIsBound
        if not caller.scope.covers(scope):
            raise ScopeTooSmall(needed=str(scope), held=str(caller.scope))
        return replace(caller, request_id=getattr(request.state, "request_id", ""), address=address_of(request))

    async def identify(self, headers: Headers) -> Caller | None:
        """Who shows these headers, or None when they show nothing; what is shown and not good raises."""
        credential = credential_of(headers)
        if credential is None:
            return None
        if credential.is_login:
            return await self._by_login(credential.text)
        if credential.is_jwt:
            return await self._tokens.read(credential.text)
        return await self._by_key(credential.text)

    async def run(self) -> None:
        """Forget when a bell rings, and write down which keys were used, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen())
            tasks.create_task(self._write_used())
            tasks.create_task(self._tokens.keep_fresh())

    def forget(self) -> None:
        """Remember nothing of what was looked up."""
        self._keys.forget()
        self._sessions.forget()

    async def write_used(self) -> None:
        """Write down when keys were last used; what cannot be written now waits for the next time."""
        used, self._used = self._used, {}
        try:
            for first in range(0, len(used), USED_AT_ONCE):
                some = dict(list(used.items())[first : first + USED_AT_ONCE])
                async with self._db.tx(actor="access") as tx:
                    await store.move_last_used(tx, some, apart=timedelta(seconds=USED_SECONDS))
        except Unavailable as error:
            self._used = used | self._used  # those that were written are found to be, next time
            log.warning("when keys were last used is written later: %s", error)

    async def _by_key(self, secret: str) -> Caller:
        key = await self._keys.get(hash_of(secret[:MOST_CHARACTERS]), self._find_key)
        now = self._db.clock.now()
        if key is None or (state := key.state(now)) is not KeyState.ACTIVE:
            reason, reason_zh = UNKNOWN if key is None else WHY_NOT[state]
            raise InvalidApiKey(reason=reason, reason_zh=reason_zh)
        if key.id in self._used or len(self._used) < MOST_USED:
            self._used[key.id] = now
        return key.caller()

    async def _by_login(self, token: str) -> Caller:
        session = await self._sessions.get(hash_of(token), self._find_session)
        if session is None or session.expires_at <= self._db.clock.now():
            raise SessionOver
        return session.user.caller()

    async def _find_key(self, hashed: str) -> Key | None:
        async with self._db.read() as tx:
            return await store.find_key(tx, hashed)

    async def _find_session(self, hashed: str) -> Session | None:
        async with self._db.read() as tx:
            return await store.find_session(tx, hashed)

    async def _listen(self) -> None:
        with self._db.wakeups.reflex(CHANNEL, self.forget):
            await asyncio.Event().wait()

    async def _write_used(self) -> None:
        while True:
            await self._db.clock.sleep(USED_SECONDS)
            if self._used:
                await self.write_used()


def credential_of(headers: Headers) -> Credential | None:
    """The one credential that a request shows. Other schemes than Bearer are for whoever stands before us."""
    keys = {text for value in headers.getlist("x-api-key") if (text := value.strip())}
    bearers = {text for value in headers.getlist("authorization") if (text := _bearer(value))}
    if len(keys | bearers) > 1:
        raise TwoCredentials
    for text in keys | bearers:
        return Credential(text=text, key_only=not bearers)
    return None


def address_of(request: Request) -> str:
    """Where a request comes from, as the connection says; headers could claim anything."""
    return request.client.host if request.client is not None else ""


async def refuse_far_stranger(request: Request) -> None:
    """Let pass who is on this machine and not behind a proxy, or shows an admin's credential: `InitRefused` for others.

    Whoever makes the first user is an admin, so a house that runs on keys alone must not leave that to strangers."""
    forwarded = any(name in request.headers for name in FORWARDED)
    if address_of(request) in HERE and not forwarded:
        return
    caller = await request.app.state.access.identify(request.headers)
    if caller is None or not caller.is_admin:
        raise InitRefused


def _bearer(value: str) -> str:
    scheme, _, text = value.strip().partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""

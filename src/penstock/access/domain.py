"""Who may do what: scopes, the caller, keys and logins as values, and what can be wrong with them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypedDict

MOST_ID = 2**63 - 1  # a user or a merchant is known by a number that every database can keep
MOST_GRACE_SECONDS = 30 * 86400  # for two keys to work side by side


class Scope(StrEnum):
    """What a caller may do; each scope includes those before it."""

    READ = "read"  # query, and pull
    WRITE = "write"  # also push
    ADMIN = "admin"  # everything, of everyone

    def covers(self, needed: "Scope") -> bool:
        """Whether this scope is enough for what is needed."""
        order = list(Scope)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who is calling, and from where. `name` is how records show them."""

    name: str
    user_id: int
    scope: Scope
    merchant_id: int | None = None
    role: str | None = None
    project: str | None = None  # bound to one project of the tasks room: opens nothing else
    key_id: str | None = None
    request_id: str = ""
    address: str = ""

    @property
    def is_admin(self) -> bool:
        """Whether they see everyone's things; who is bound to a project sees only what is in it, whatever the scope."""
        return self.scope is Scope.ADMIN and self.project is None

    @property
    def tenant(self) -> str:
        """Whose limits they share: their merchant's, or their own."""
        return f"merchant:{self.merchant_id}" if self.merchant_id is not None else f"user:{self.user_id}"

    @property
    def actor(self) -> str:
        """Who they are in the audit log: names may repeat, these do not."""
        return f"key:{self.key_id}" if self.key_id is not None else f"user:{self.user_id}"

    @property
    def audiences(self) -> tuple[str, ...]:
        """The event audiences they belong to."""
        own = [f"user:{self.user_id}"]
        if self.merchant_id is not None:
            own.append(f"merchant:{self.merchant_id}")
        if self.project is not None:
            return (f"project:{self.project}",)
        return tuple(own)


class KeyState(StrEnum):
    """Whether a key opens anything. It is worked out from its times, so nothing has to run when one expires."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, kw_only=True)
class Key:
    """An API key as it is kept: everything but the secret, which nobody can read again."""

    id: str
    name: str
    prefix: str
    user_id: int
    merchant_id: int | None
    role: str | None
    scope: Scope
    project: str | None
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    replaced_by: str | None  # the key that a rotation put in its place

    def state(self, now: datetime) -> KeyState:
        """What it is worth now."""
        if self.revoked_at is not None:
            return KeyState.REVOKED
        over = self.expires_at is not None and self.expires_at <= now
        return KeyState.EXPIRED if over else KeyState.ACTIVE

    def caller(self) -> Caller:
        """Who calls with it."""
        return Caller(
            name=self.name,
            user_id=self.user_id,
            scope=self.scope,
            merchant_id=self.merchant_id,
            role=self.role,
            project=self.project,
            key_id=self.id,
        )


@dataclass(frozen=True, kw_only=True)
class NewKey:
    """A key to be made. Without a `user_id` it belongs to its maker, or to a new user when a program makes it."""

    name: str
    scope: Scope
    project: str | None = None
    user_id: int | None = None
    merchant_id: int | None = None
    role: str | None = None
    expires_at: datetime | None = None


class KeyChanges(TypedDict, total=False):
    """What may be changed about a key; what is absent stays. Whose it is cannot change: things belong to them."""

    name: str
    scope: Scope
    project: str | None
    merchant_id: int | None
    role: str | None
    expires_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class IssuedKey:
    """A key with its secret, which is shown now and never again."""

    key: Key
    secret: str


@dataclass(frozen=True, kw_only=True)
class User:
    """Someone who logs in to the console."""

    id: str
    username: str
    password_hash: str
    user_id: int
    role: str
    scope: Scope
    created_at: datetime
    last_login_at: datetime | None

    def caller(self) -> Caller:
        """Who calls when they are logged in."""
        return Caller(name=self.username, user_id=self.user_id, scope=self.scope, role=self.role)


@dataclass(frozen=True, kw_only=True)
class Session:
    """A login that lasts until then, unless it is ended before."""

    user: User
    expires_at: datetime

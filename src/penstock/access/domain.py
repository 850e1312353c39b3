"""Scopes, callers, keys, users and sessions as values."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypedDict

MAX_ID = 2**63 - 1  # the largest id of users and merchants that both databases can store
MAX_GRACE_SECONDS = 30 * 86400  # both keys of a rotation work for at most 30 days


class Scope(StrEnum):
    """What a caller may do: read queries and pulls, write also pushes, admin also manages."""

    READ = "read"  # query, and pull
    WRITE = "write"  # also push
    ADMIN = "admin"  # everything, of everyone

    def covers(self, needed: "Scope") -> bool:
        """Whether this scope includes the needed one."""
        order = list(Scope)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True, kw_only=True)
class ProjectAccess:
    """The projects of the tasks module that a caller may use: those named, and those of a merchant."""

    ids: frozenset[str] = frozenset()
    merchant_id: int | None = None

    def covers(self, project_id: str, merchant_id: int | None) -> bool:
        """Whether a project, with the merchant that owns it, is among them."""
        return project_id in self.ids or (merchant_id is not None and merchant_id == self.merchant_id)


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who is calling, and from where. `name` is how records show the caller."""

    name: str
    user_id: int
    scope: Scope
    merchant_id: int | None = None
    role: str | None = None
    project: str | None = None  # bound to one project of the tasks module: gives access to nothing else
    projects: ProjectAccess | None = None  # of a token or a merchant's key: the only projects it may use; None for all
    task_scope: Scope | None = None  # the scope in the tasks module, where it is not `scope`
    may_pull: bool = True
    key_id: str | None = None
    request_id: str = ""
    address: str = ""

    @property
    def is_admin(self) -> bool:
        """Whether the caller sees all records. One who is kept to projects is no admin, whatever the scope."""
        return self.scope is Scope.ADMIN and self.project_access is None

    @property
    def project_access(self) -> ProjectAccess | None:
        """The projects that the caller may use; None for all."""
        return self.projects if self.project is None else ProjectAccess(ids=frozenset({self.project}))

    def covers(self, needed: Scope, *, in_projects: bool) -> bool:
        """Whether the scope is enough. An admin who is kept to projects is an admin there and nowhere else."""
        if in_projects:
            return (self.task_scope or self.scope).covers(needed)
        return self.scope.covers(needed) and (needed is not Scope.ADMIN or self.is_admin)

    @property
    def tenant(self) -> str:
        """The tenant whose limits apply: the merchant, or else the user."""
        return f"merchant:{self.merchant_id}" if self.merchant_id is not None else f"user:{self.user_id}"

    @property
    def actor(self) -> str:
        """The actor in the audit log; unlike names, it is unique."""
        return f"key:{self.key_id}" if self.key_id is not None else f"user:{self.user_id}"

    @property
    def audiences(self) -> tuple[str, ...]:
        """The event audiences the caller belongs to."""
        own = [f"user:{self.user_id}"]
        if self.merchant_id is not None:
            own.append(f"merchant:{self.merchant_id}")
        if self.project is not None:
            return (f"project:{self.project}",)
        named = self.projects.ids if self.projects is not None else ()
        return (*own, *(f"project:{project}" for project in sorted(named)))


class KeyState(StrEnum):
    """Whether a key is valid. Computed from its times, so that nothing has to run when one expires."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, kw_only=True)
class Key:
    """An API key as it is stored, without its secret."""

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
    replaced_by: str | None  # the key that replaced it in a rotation

    def state(self, now: datetime) -> KeyState:
        """Its state at this time."""
        if self.revoked_at is not None:
            return KeyState.REVOKED
        expired = self.expires_at is not None and self.expires_at <= now
        return KeyState.EXPIRED if expired else KeyState.ACTIVE

    def caller(self) -> Caller:
        """The caller that this key stands for."""
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
    """A key to create. Without a `user_id` it belongs to the caller, or to a new user if a program creates it."""

    name: str
    scope: Scope
    project: str | None = None
    user_id: int | None = None
    merchant_id: int | None = None
    role: str | None = None
    expires_at: datetime | None = None


class KeyChanges(TypedDict, total=False):
    """The fields of a key that may change; absent ones stay. Its owner cannot change: records belong to them."""

    name: str
    scope: Scope
    project: str | None
    merchant_id: int | None
    role: str | None
    expires_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class IssuedKey:
    """A new key with its secret, which is shown only once."""

    key: Key
    secret: str


@dataclass(frozen=True, kw_only=True)
class User:
    """A user of the console."""

    id: str
    username: str
    password_hash: str
    user_id: int
    role: str
    scope: Scope
    created_at: datetime
    last_login_at: datetime | None

    def caller(self) -> Caller:
        """The caller when this user is logged in."""
        return Caller(name=self.username, user_id=self.user_id, scope=self.scope, role=self.role)


@dataclass(frozen=True, kw_only=True)
class Session:
    """A console login."""

    user: User
    expires_at: datetime

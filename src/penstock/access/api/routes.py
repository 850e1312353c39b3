"""The routes of keys and of the audit log. They use the response envelope of the tasks API.

Field names are camelCase, as in the tasks API. A secret is only in the response that creates it.
"""

from datetime import datetime
from typing import Annotated, Self, cast

from fastapi import APIRouter, Path, Query
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StringConstraints, computed_field
from pydantic.alias_generators import to_camel

from penstock.access import audit, keys, store
from penstock.access.audit import AuditLine
from penstock.access.domain import (
    MAX_GRACE_SECONDS,
    MAX_ID,
    IssuedKey,
    Key,
    KeyChanges,
    KeyState,
    NewKey,
    Scope,
)
from penstock.access.errors import KeyNotActive
from penstock.access.guard import CurrentCaller, requires
from penstock.kernel.http.dependencies import DbHere
from penstock.kernel.http.envelope import (
    ERRORS,
    EnvelopeRoute,
    Paged,
    PageHere,
    Said,
    SayHere,
    Timestamp,
)
from penstock.kernel.http.fields import Moment

router = APIRouter(prefix="/api/v1", route_class=EnvelopeRoute, responses=ERRORS, tags=["access"])

NO_CONTROLS = r"^[^\x00-\x1f\x7f]+$"
Word = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=255, pattern=NO_CONTROLS)]
Number = Annotated[int, Field(ge=1, le=MAX_ID)]
KeyId = Annotated[str, Path(max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]


class AccessModel(BaseModel):
    """Base of requests and responses. Unknown fields are refused: a mistyped `expiresAt` must not go unnoticed."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


BoundProject = Field(
    default=None, validation_alias=AliasChoices("projectId", "project_id"), serialization_alias="projectId"
)


class KeyAsked(AccessModel):
    """A key to create; `projectId`, `userId`, `merchantId`, `role` and `expiresAt` are optional."""

    name: Word
    scope: Scope = Scope.ADMIN  # existing clients know no scopes
    project: Word | None = BoundProject
    user_id: Number | None = None
    merchant_id: Number | None = None
    role: Word | None = None
    expires_at: Moment | None = None

    def new_key(self) -> NewKey:
        """Convert to the domain value."""
        return NewKey(**self.model_dump())


class KeyEdit(AccessModel):
    """Changes to a key; absent fields stay."""

    name: Word = ""  # the defaults are never used: only fields that were sent count
    scope: Scope = Scope.READ
    project: Word | None = BoundProject
    is_active: bool | None = Field(
        default=None, validation_alias=AliasChoices("isActive", "is_active"), description="False revokes the key."
    )
    merchant_id: Number | None = None
    role: Word | None = None
    expires_at: Moment | None = None

    def changes(self) -> KeyChanges:
        """Only the fields that were sent."""
        return cast("KeyChanges", self.model_dump(exclude_unset=True, exclude={"is_active"}))


class Rotation(AccessModel):
    """How a key is rotated: `graceSeconds` is how long the old key stays valid."""

    grace_seconds: float = Field(default=0, ge=0, le=MAX_GRACE_SECONDS)


class KeyShown(AccessModel):
    """A key. `key` is the secret in the response that creates it, and masked everywhere else.

    Existing clients know `project_id`, `is_active`, `created_at`, `updated_at` and `key_masked`.
    """

    id: str
    name: str
    key: str
    prefix: str
    state: KeyState
    scope: Scope
    project: str | None = Field(alias="projectId")
    user_id: int
    merchant_id: int | None
    role: str | None
    created_at: Timestamp
    created_by: str
    expires_at: Timestamp | None
    last_used_at: Timestamp | None
    revoked_at: Timestamp | None
    replaced_by: str | None

    @classmethod
    def of(cls, key: Key, now: datetime) -> Self:
        """With its secret masked."""
        given = {name: getattr(key, name) for name in Key.__dataclass_fields__}
        return cls(**given, key=_masked(key.id), state=key.state(now))

    @computed_field(alias="project_id")  # type: ignore[prop-decorator]  # as Pydantic documents it
    @property
    def older_project(self) -> str | None:
        """The older name of `projectId`."""
        return self.project

    @computed_field(alias="is_active")  # type: ignore[prop-decorator]  # as Pydantic documents it
    @property
    def is_active(self) -> bool:
        """Whether it can be used."""
        return self.state is KeyState.ACTIVE

    @computed_field(alias="created_at")  # type: ignore[prop-decorator]  # as Pydantic documents it
    @property
    def older_created_at(self) -> Timestamp:
        """The older name of `createdAt`."""
        return self.created_at

    @computed_field(alias="updated_at")  # type: ignore[prop-decorator]  # as Pydantic documents it
    @property
    def updated_at(self) -> Timestamp:
        """When it was revoked, or else created."""
        return self.revoked_at or self.created_at

    @computed_field(alias="key_masked")  # type: ignore[prop-decorator]  # as Pydantic documents it
    @property
    def key_masked(self) -> str:
        """The key, masked."""
        return _masked(self.id)

    @classmethod
    def once(cls, issued: IssuedKey, now: datetime) -> Self:
        """With its secret."""
        return cls.of(issued.key, now).model_copy(update={"key": issued.secret})


def _masked(key_id: str) -> str:
    return f"sk-****{key_id[-4:]}"


class AuditLineShown(AccessModel):
    """One line of the audit log."""

    id: int
    at: Timestamp
    actor: str
    action: str
    target: str
    detail: dict[str, object]
    request_id: str
    address: str

    @classmethod
    def of(cls, line: AuditLine) -> Self:
        """Convert from the domain value."""
        return cls(**{name: getattr(line, name) for name in cls.model_fields})


class AuditPage(AccessModel):
    """Lines, newest first; pass `next` as `before` to get the next page."""

    items: list[AuditLineShown]
    next: int | None


@router.get("/api-keys", summary="List keys, newest first", **requires(Scope.ADMIN))
async def list_api_keys(
    db: DbHere, say: SayHere, asked: PageHere, is_active: bool | None = None, project_id: Word | None = None
) -> Said[Paged[KeyShown]]:
    async with db.read() as tx:
        keep = store.KeyFilter(is_active=is_active, project=project_id, now=tx.now)
        found = await store.list_keys(tx, keep, offset=asked.offset, limit=asked.size)
        total = await store.count_keys(tx, keep)
    return say.page([KeyShown.of(key, tx.now) for key in found], asked, total=total)


@router.post("/api-keys", status_code=201, summary="Create a key; its secret is shown once", **requires(Scope.ADMIN))
async def create_api_key(body: KeyAsked, caller: CurrentCaller, db: DbHere, say: SayHere) -> Said[KeyShown]:
    async with db.tx(actor=caller.name) as tx:
        issued = await keys.create(tx, body.new_key(), by=caller)
    return say(KeyShown.once(issued, tx.now), "The key is shown only once.", "密钥仅显示这一次。")


@router.get("/api-keys/{key_id}", summary="Get a key", **requires(Scope.ADMIN))
async def get_api_key(key_id: KeyId, db: DbHere, say: SayHere, show_key: bool = False) -> Said[KeyShown]:
    """The key stays masked also with `show_key`, which existing clients send: only its hash is stored."""
    del show_key
    async with db.read() as tx:
        key = await store.get_key(tx, key_id)
    return say(KeyShown.of(key, tx.now), "Found.", "已找到。")


@router.put("/api-keys/{key_id}", summary="Change a key", **requires(Scope.ADMIN))
async def edit_api_key(key_id: KeyId, body: KeyEdit, caller: CurrentCaller, db: DbHere, say: SayHere) -> Said[KeyShown]:
    async with db.tx(actor=caller.name) as tx:
        key = await keys.edit(tx, key_id, body.changes(), by=caller)
        if body.is_active is False:
            key = await keys.revoke(tx, key_id, by=caller)
        if body.is_active and key.state(tx.now) is not KeyState.ACTIVE:
            raise KeyNotActive(id=key_id)
    return say(KeyShown.of(key, tx.now), "Key updated.", "密钥已更新。")


@router.delete("/api-keys/{key_id}", summary="Revoke a key", **requires(Scope.ADMIN))
async def revoke_api_key(key_id: KeyId, caller: CurrentCaller, db: DbHere, say: SayHere) -> Said[KeyShown]:
    async with db.tx(actor=caller.name) as tx:
        key = await keys.revoke(tx, key_id, by=caller)
    return say(KeyShown.of(key, tx.now), "Key revoked.", "密钥已撤销。")


@router.post("/api-keys/{key_id}/rotate", summary="Replace a key with a new one", **requires(Scope.ADMIN))
async def rotate_api_key(
    key_id: KeyId, caller: CurrentCaller, db: DbHere, say: SayHere, body: Rotation | None = None
) -> Said[KeyShown]:
    grace_seconds = body.grace_seconds if body is not None else 0
    async with db.tx(actor=caller.name) as tx:
        issued = await keys.rotate(tx, key_id, by=caller, grace_seconds=grace_seconds)
    return say(KeyShown.once(issued, tx.now), "The key is shown only once.", "密钥仅显示这一次。")


@router.get("/audit", summary="List the audit log, newest first", **requires(Scope.ADMIN))
async def list_audit(
    db: DbHere,
    say: SayHere,
    actor: Word | None = None,
    action: Word | None = None,
    before: Annotated[int | None, Query(ge=1, le=MAX_ID)] = None,
    page_size: Annotated[int, Query(alias="pageSize", ge=1, le=100)] = 20,
) -> Said[AuditPage]:
    async with db.read() as tx:
        lines = await audit.list_lines(tx, before=before, actor=actor, action=action, limit=page_size)
    next_before = lines[-1].id if len(lines) == page_size else None
    page = AuditPage(items=[AuditLineShown.of(line) for line in lines], next=next_before)
    return say(page, f"{len(lines)} found.", f"共 {len(lines)} 条。")

"""The routes of access: keys, logins and the audit log. They use the response envelope of the tasks API.

Field names are camelCase, as in the tasks API. A secret is only in the response that creates it.
"""

from datetime import UTC, datetime
from typing import Annotated, Self, cast

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, SecretStr, StringConstraints
from pydantic.alias_generators import to_camel

from penstock.access import audit, keys, store
from penstock.access.audit import AuditLine
from penstock.access.authenticate import address_of, find_credential, require_local_or_admin
from penstock.access.domain import (
    MAX_GRACE_SECONDS,
    MAX_ID,
    Caller,
    IssuedKey,
    Key,
    KeyChanges,
    KeyState,
    NewKey,
    Scope,
    User,
)
from penstock.access.errors import NotALogin
from penstock.access.guard import CurrentCaller, public, requires
from penstock.access.login import Logins, Origin
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

router = APIRouter(prefix="/api/v1", route_class=EnvelopeRoute, responses=ERRORS, tags=["access"])

NO_CONTROLS = r"^[^\x00-\x1f\x7f]+$"
Word = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=255, pattern=NO_CONTROLS)]
Number = Annotated[int, Field(ge=1, le=MAX_ID)]
KeyId = Annotated[str, Path(max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("it is out of range") from error


Expiry = Annotated[AwareDatetime, AfterValidator(_in_utc)]


async def _logins(request: Request) -> Logins:
    logins: Logins = request.app.state.logins
    return logins


async def _origin(request: Request) -> Origin:
    return Origin(request_id=getattr(request.state, "request_id", ""), address=address_of(request))


LoginsHere = Annotated[Logins, Depends(_logins)]
OriginHere = Annotated[Origin, Depends(_origin)]


class AccessModel(BaseModel):
    """Base of requests and responses. Unknown fields are refused: a mistyped `expiresAt` must not go unnoticed."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class KeyAsked(AccessModel):
    """A key to create."""

    name: Word
    scope: Scope
    project: Word | None = Field(default=None, alias="projectId")
    user_id: Number | None = None
    merchant_id: Number | None = None
    role: Word | None = None
    expires_at: Expiry | None = None

    def new_key(self) -> NewKey:
        """Convert to the domain value."""
        return NewKey(**self.model_dump())


class KeyEdit(AccessModel):
    """Changes to a key; absent fields stay."""

    name: Word = ""  # the defaults are never used: only fields that were sent count
    scope: Scope = Scope.READ
    project: Word | None = Field(default=None, alias="projectId")
    merchant_id: Number | None = None
    role: Word | None = None
    expires_at: Expiry | None = None

    def changes(self) -> KeyChanges:
        """Only the fields that were sent."""
        return cast("KeyChanges", self.model_dump(exclude_unset=True))


class Rotation(AccessModel):
    """How a key is rotated."""

    grace_seconds: float = Field(default=0, ge=0, le=MAX_GRACE_SECONDS)


class KeyShown(AccessModel):
    """A key. `key` is the secret in the response that creates it, and masked everywhere else."""

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
        return cls(**given, key=key.prefix, state=key.state(now))

    @classmethod
    def once(cls, issued: IssuedKey, now: datetime) -> Self:
        """With its secret."""
        return cls.of(issued.key, now).model_copy(update={"key": issued.secret})


class LoginAsked(AccessModel):
    """A user name and a password."""

    username: Word
    password: SecretStr = Field(min_length=1, max_length=1024)


class FirstUser(AccessModel):
    """The first user to create."""

    username: Word
    password: SecretStr = Field(min_length=8, max_length=1024)


class UserShown(AccessModel):
    """A user of the console."""

    id: str
    username: str
    user_id: int
    role: str
    scope: Scope
    created_at: Timestamp
    last_login_at: Timestamp | None

    @classmethod
    def of(cls, user: User) -> Self:
        """Everything except the password hash."""
        return cls(**{name: getattr(user, name) for name in cls.model_fields})


class Initialised(AccessModel):
    """Whether the first user exists."""

    initialized: bool


class LoggedIn(AccessModel):
    """A new login."""

    token: str
    expires_at: Timestamp
    user: UserShown


class Me(AccessModel):
    """Who is calling."""

    name: str
    user_id: int
    merchant_id: int | None
    role: str | None
    scope: Scope

    @classmethod
    def of(cls, caller: Caller) -> Self:
        """The fields that callers may see of themselves."""
        return cls(**{name: getattr(caller, name) for name in cls.model_fields})


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
async def list_api_keys(db: DbHere, say: SayHere, asked: PageHere) -> Said[Paged[KeyShown]]:
    async with db.read() as tx:
        found = await store.list_keys(tx, offset=asked.offset, limit=asked.size)
        total = await store.count_keys(tx)
    return say.page([KeyShown.of(key, tx.now) for key in found], asked, total=total)


@router.post("/api-keys", status_code=201, summary="Create a key; its secret is shown once", **requires(Scope.ADMIN))
async def create_api_key(body: KeyAsked, caller: CurrentCaller, db: DbHere, say: SayHere) -> Said[KeyShown]:
    async with db.tx(actor=caller.name) as tx:
        issued = await keys.create(tx, body.new_key(), by=caller)
    return say(KeyShown.once(issued, tx.now), "The key is shown only once.", "密钥仅显示这一次。")


@router.get("/api-keys/{key_id}", summary="Get a key", **requires(Scope.ADMIN))
async def get_api_key(key_id: KeyId, db: DbHere, say: SayHere) -> Said[KeyShown]:
    async with db.read() as tx:
        key = await store.get_key(tx, key_id)
    return say(KeyShown.of(key, tx.now), "Found.", "已找到。")


@router.put("/api-keys/{key_id}", summary="Change a key", **requires(Scope.ADMIN))
async def edit_api_key(key_id: KeyId, body: KeyEdit, caller: CurrentCaller, db: DbHere, say: SayHere) -> Said[KeyShown]:
    async with db.tx(actor=caller.name) as tx:
        key = await keys.edit(tx, key_id, body.changes(), by=caller)
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


@router.get("/auth/check-init", summary="Does the first user exist?", **public())
async def check_init(logins: LoginsHere, say: SayHere) -> Said[Initialised]:
    done = await logins.is_initialised()
    if done:
        return say(Initialised(initialized=True), "The first user exists.", "首个用户已创建。")
    return say(Initialised(initialized=False), "The first user does not exist yet.", "尚未创建首个用户。")


@router.post("/auth/init", status_code=201, summary="Create the first user", **public())
async def init(
    body: FirstUser, request: Request, logins: LoginsHere, origin: OriginHere, say: SayHere
) -> Said[UserShown]:
    await require_local_or_admin(request)
    user = await logins.init(body.username, body.password.get_secret_value(), origin=origin)
    return say(UserShown.of(user), "First user created.", "首个用户已创建。")


@router.post("/auth/login", summary="Log in to the console", **public())
async def log_in(body: LoginAsked, logins: LoginsHere, origin: OriginHere, say: SayHere) -> Said[LoggedIn]:
    login = await logins.login(body.username, body.password.get_secret_value(), origin=origin)
    shown = LoggedIn(token=login.token, expires_at=login.expires_at, user=UserShown.of(login.user))
    return say(shown, "Logged in.", "登录成功。")


@router.post("/auth/logout", summary="End this login", **requires(Scope.READ))
async def log_out(request: Request, caller: CurrentCaller, logins: LoginsHere, say: SayHere) -> Said[None]:
    credential = find_credential(request.headers)
    if credential is None or not credential.is_login:
        raise NotALogin
    await logins.logout(credential.text, by=caller)
    return say(None, "Logged out.", "已退出登录。")


@router.get("/auth/me", summary="Who is calling?", **requires(Scope.READ))
async def me(caller: CurrentCaller, say: SayHere) -> Said[Me]:
    return say(Me.of(caller), "Current caller.", "当前调用者。")


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

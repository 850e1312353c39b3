"""The routes of access: keys, logins and the audit log. They speak the envelope of the tasks family.

Field names are camelCase, as that family's clients send them. A secret is in the answer that makes it and in no other.
"""

from datetime import UTC, datetime
from typing import Annotated, Self, cast

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, SecretStr, StringConstraints
from pydantic.alias_generators import to_camel

from penstock.access import audit, keys, store
from penstock.access.audit import AuditLine
from penstock.access.domain import (
    MOST_GRACE_SECONDS,
    MOST_ID,
    Caller,
    IssuedKey,
    Key,
    KeyChanges,
    KeyState,
    NewKey,
    Scope,
    User,
)
from penstock.access.door import CallerHere, open_to, open_to_all
from penstock.access.errors import NotALogin
from penstock.access.identify import address_of, credential_of, refuse_far_stranger
from penstock.access.login import Logins, Origin
from penstock.kernel.http.dependencies import DbHere
from penstock.kernel.http.envelope import (
    ERRORS,
    EnvelopeRoute,
    Moment,
    Paged,
    PageHere,
    Said,
    SayHere,
)

router = APIRouter(prefix="/api/v1", route_class=EnvelopeRoute, responses=ERRORS, tags=["access"])

NO_CONTROLS = r"^[^\x00-\x1f\x7f]+$"
Word = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=255, pattern=NO_CONTROLS)]
Number = Annotated[int, Field(ge=1, le=MOST_ID)]
KeyId = Annotated[str, Path(max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("it lies too far away") from error


Expiry = Annotated[AwareDatetime, AfterValidator(_in_utc)]


async def _logins(request: Request) -> Logins:
    logins: Logins = request.app.state.logins
    return logins


async def _origin(request: Request) -> Origin:
    return Origin(request_id=getattr(request.state, "request_id", ""), address=address_of(request))


LoginsHere = Annotated[Logins, Depends(_logins)]
OriginHere = Annotated[Origin, Depends(_origin)]


class Shape(BaseModel):
    """How things look on the wire. A field nobody knows is refused: a mistyped `expiresAt` must not go unnoticed."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")


class KeyAsked(Shape):
    """A key to be made."""

    name: Word
    scope: Scope
    project: Word | None = Field(default=None, alias="projectId")
    user_id: Number | None = None
    merchant_id: Number | None = None
    role: Word | None = None
    expires_at: Expiry | None = None

    def new_key(self) -> NewKey:
        """The same in our words."""
        return NewKey(**self.model_dump())


class KeyEdit(Shape):
    """What is to change about a key; what is absent stays."""

    name: Word = ""  # the defaults are never used: only what was sent counts
    scope: Scope = Scope.READ
    project: Word | None = Field(default=None, alias="projectId")
    merchant_id: Number | None = None
    role: Word | None = None
    expires_at: Expiry | None = None

    def changes(self) -> KeyChanges:
        """The same in our words."""
        return cast("KeyChanges", self.model_dump(exclude_unset=True))


class Rotation(Shape):
    """How a key is rotated."""

    grace_seconds: float = Field(default=0, ge=0, le=MOST_GRACE_SECONDS)


class KeyShown(Shape):
    """A key as everyone may see it; `key` is the secret where it was just made, and masked everywhere else."""

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
    created_at: Moment
    created_by: str
    expires_at: Moment | None
    last_used_at: Moment | None
    revoked_at: Moment | None
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


class LoginAsked(Shape):
    """A name and a password."""

    username: Word
    password: SecretStr = Field(min_length=1, max_length=1024)


class FirstUser(Shape):
    """The first user to be."""

    username: Word
    password: SecretStr = Field(min_length=8, max_length=1024)


class UserShown(Shape):
    """Someone who logs in."""

    id: str
    username: str
    user_id: int
    role: str
    scope: Scope
    created_at: Moment
    last_login_at: Moment | None

    @classmethod
    def of(cls, user: User) -> Self:
        """Everything but the password's hash."""
        return cls(**{name: getattr(user, name) for name in cls.model_fields})


class Initialised(Shape):
    """Whether the first user exists."""

    initialized: bool


class LoggedIn(Shape):
    """A login."""

    token: str
    expires_at: Moment
    user: UserShown


class Me(Shape):
    """Who is calling."""

    name: str
    user_id: int
    merchant_id: int | None
    role: str | None
    scope: Scope

    @classmethod
    def of(cls, caller: Caller) -> Self:
        """What they may know of themselves."""
        return cls(**{name: getattr(caller, name) for name in cls.model_fields})


class AuditLineShown(Shape):
    """One thing that was done."""

    id: int
    at: Moment
    actor: str
    action: str
    target: str
    detail: dict[str, object]
    request_id: str
    address: str

    @classmethod
    def of(cls, line: AuditLine) -> Self:
        """As it is."""
        return cls(**{name: getattr(line, name) for name in cls.model_fields})


class AuditPage(Shape):
    """Lines, newest first; `next` goes into `before` for the page after it."""

    items: list[AuditLineShown]
    next: int | None


@router.get("/api-keys", summary="The keys, newest first", **open_to(Scope.ADMIN))
async def list_api_keys(db: DbHere, say: SayHere, asked: PageHere) -> Said[Paged[KeyShown]]:
    async with db.read() as tx:
        found = await store.list_keys(tx, offset=asked.offset, limit=asked.size)
        total = await store.count_keys(tx)
    return say.page([KeyShown.of(key, tx.now) for key in found], asked, total=total)


@router.post("/api-keys", status_code=201, summary="Make a key; its secret is shown once", **open_to(Scope.ADMIN))
async def create_api_key(body: KeyAsked, caller: CallerHere, db: DbHere, say: SayHere) -> Said[KeyShown]:
    async with db.tx(actor=caller.name) as tx:
        issued = await keys.create(tx, body.new_key(), by=caller)
    return say(KeyShown.once(issued, tx.now), "The key is shown only this once.", "密钥仅显示这一次。")


@router.get("/api-keys/{key_id}", summary="One key", **open_to(Scope.ADMIN))
async def get_api_key(key_id: KeyId, db: DbHere, say: SayHere) -> Said[KeyShown]:
    async with db.read() as tx:
        key = await store.get_key(tx, key_id)
    return say(KeyShown.of(key, tx.now), "Found.", "已找到。")


@router.put("/api-keys/{key_id}", summary="Change a key", **open_to(Scope.ADMIN))
async def edit_api_key(key_id: KeyId, body: KeyEdit, caller: CallerHere, db: DbHere, say: SayHere) -> Said[KeyShown]:
    async with db.tx(actor=caller.name) as tx:
        key = await keys.edit(tx, key_id, body.changes(), by=caller)
    return say(KeyShown.of(key, tx.now), "The key was changed.", "密钥已修改。")


@router.delete("/api-keys/{key_id}", summary="Revoke a key", **open_to(Scope.ADMIN))
async def revoke_api_key(key_id: KeyId, caller: CallerHere, db: DbHere, say: SayHere) -> Said[KeyShown]:
    async with db.tx(actor=caller.name) as tx:
        key = await keys.revoke(tx, key_id, by=caller)
    return say(KeyShown.of(key, tx.now), "The key was revoked.", "密钥已撤销。")


@router.post("/api-keys/{key_id}/rotate", summary="Put a new key in its place", **open_to(Scope.ADMIN))
async def rotate_api_key(
    key_id: KeyId, caller: CallerHere, db: DbHere, say: SayHere, body: Rotation | None = None
) -> Said[KeyShown]:
    grace_seconds = body.grace_seconds if body is not None else 0
    async with db.tx(actor=caller.name) as tx:
        issued = await keys.rotate(tx, key_id, by=caller, grace_seconds=grace_seconds)
    return say(KeyShown.once(issued, tx.now), "The key is shown only this once.", "密钥仅显示这一次。")


@router.get("/auth/check-init", summary="Does the first user exist?", **open_to_all())
async def check_init(logins: LoginsHere, say: SayHere) -> Said[Initialised]:
    done = await logins.is_initialised()
    if done:
        return say(Initialised(initialized=True), "The first user exists.", "首个用户已创建。")
    return say(Initialised(initialized=False), "The first user is still to be made.", "尚未创建首个用户。")


@router.post("/auth/init", status_code=201, summary="Make the first user, once", **open_to_all())
async def init(
    body: FirstUser, request: Request, logins: LoginsHere, origin: OriginHere, say: SayHere
) -> Said[UserShown]:
    await refuse_far_stranger(request)
    user = await logins.init(body.username, body.password.get_secret_value(), origin=origin)
    return say(UserShown.of(user), "The first user was made.", "首个用户已创建。")


@router.post("/auth/login", summary="Log in to the console", **open_to_all())
async def log_in(body: LoginAsked, logins: LoginsHere, origin: OriginHere, say: SayHere) -> Said[LoggedIn]:
    made = await logins.login(body.username, body.password.get_secret_value(), origin=origin)
    shown = LoggedIn(token=made.token, expires_at=made.expires_at, user=UserShown.of(made.user))
    return say(shown, "Logged in.", "登录成功。")


@router.post("/auth/logout", summary="End this login", **open_to(Scope.READ))
async def log_out(request: Request, caller: CallerHere, logins: LoginsHere, say: SayHere) -> Said[None]:
    credential = credential_of(request.headers)
    if credential is None or not credential.is_login:
        raise NotALogin
    await logins.logout(credential.text, by=caller)
    return say(None, "Logged out.", "已退出登录。")


@router.get("/auth/me", summary="Who is calling?", **open_to(Scope.READ))
async def me(caller: CallerHere, say: SayHere) -> Said[Me]:
    return say(Me.of(caller), "This is you.", "这是您的身份。")


@router.get("/audit", summary="Who did what, newest first", **open_to(Scope.ADMIN))
async def list_audit(
    db: DbHere,
    say: SayHere,
    actor: Word | None = None,
    action: Word | None = None,
    before: Annotated[int | None, Query(ge=1, le=MOST_ID)] = None,
    page_size: Annotated[int, Query(alias="pageSize", ge=1, le=100)] = 20,
) -> Said[AuditPage]:
    async with db.read() as tx:
        lines = await audit.list_lines(tx, before=before, actor=actor, action=action, limit=page_size)
    following = lines[-1].id if len(lines) == page_size else None
    page = AuditPage(items=[AuditLineShown.of(line) for line in lines], next=following)
    return say(page, f"{len(lines)} found.", f"共 {len(lines)} 条。")

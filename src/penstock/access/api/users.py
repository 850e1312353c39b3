"""The routes of logins and of console users. They use the response envelope of the tasks API."""

from typing import Annotated, Self

from fastapi import APIRouter, Depends, Path, Request
from pydantic import Field, SecretStr

from penstock.access import store, users
from penstock.access.api.logins import Logins
from penstock.access.api.routes import AccessModel, Word
from penstock.access.authenticate import address_of, find_credential
from penstock.access.domain import Caller, Scope, User
from penstock.access.errors import NotALogin
from penstock.access.guard import CurrentCaller, public, requires
from penstock.access.login import Origin
from penstock.access.users import MIN_PASSWORD, generate_password
from penstock.kernel.http.dependencies import DbHere
from penstock.kernel.http.envelope import ERRORS, EnvelopeRoute, Paged, PageHere, Said, SayHere, Timestamp

router = APIRouter(prefix="/api/v1", route_class=EnvelopeRoute, responses=ERRORS, tags=["access"])

MAX_PASSWORD = 1024
NewPassword = Annotated[SecretStr, Field(min_length=MIN_PASSWORD, max_length=MAX_PASSWORD)]
GivenPassword = Annotated[SecretStr, Field(min_length=1, max_length=MAX_PASSWORD)]
UserId = Annotated[str, Path(max_length=64, pattern=r"^[A-Za-z0-9_-]+$", description="The `id` of a user.")]


async def _logins(request: Request) -> Logins:
    logins: Logins = request.app.state.logins
    return logins


async def _origin(request: Request) -> Origin:
    return Origin(request_id=getattr(request.state, "request_id", ""), address=address_of(request))


LoginsHere = Annotated[Logins, Depends(_logins)]
OriginHere = Annotated[Origin, Depends(_origin)]


class LoginAsked(AccessModel):
    """A user name and a password."""

    username: Word
    password: GivenPassword


class FirstUser(AccessModel):
    """The first user to create."""

    username: Word
    password: NewPassword
    setup_token: SecretStr | None = Field(
        default=None, max_length=1000, description="The token that the server printed at its start, or an admin key."
    )


class UserAsked(AccessModel):
    """A user to add."""

    username: Word
    password: NewPassword
    scope: Scope = Scope.READ


class PasswordChange(AccessModel):
    """The caller's password and the one to replace it: `oldPassword` and `newPassword`."""

    old_password: GivenPassword
    new_password: NewPassword


class PasswordReset(AccessModel):
    """A password for another user; without one, it is generated."""

    password: NewPassword | None = None


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
        return cls(**{name: getattr(user, name) for name in UserShown.model_fields})


class FirstUserShown(UserShown):
    """The first user, with the message that existing clients expect."""

    message: str = "First user created."


class NewPasswordShown(AccessModel):
    """A user and their new password, which is shown only once."""

    user: UserShown
    password: str


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


@router.get("/auth/check-init", summary="Does the first user exist?", **public())
async def check_init(logins: LoginsHere, say: SayHere) -> Said[Initialised]:
    done = await logins.is_initialised()
    if done:
        return say(Initialised(initialized=True), "The first user exists.", "首个用户已创建。")
    return say(Initialised(initialized=False), "The first user does not exist yet.", "尚未创建首个用户。")


@router.post("/auth/init", summary="Create the first user, with the setup token or an admin key", **public())
async def init(
    body: FirstUser, request: Request, logins: LoginsHere, origin: OriginHere, say: SayHere
) -> Said[FirstUserShown]:
    caller = await request.app.state.access.identify(request.headers)
    token = None if body.setup_token is None else body.setup_token.get_secret_value()
    user = await logins.init(body.username, body.password.get_secret_value(), by=caller, token=token, origin=origin)
    return say(FirstUserShown.of(user), "First user created.", "首个用户已创建。")


@router.post("/auth/login", summary="Log in to the console", **public())
async def log_in(body: LoginAsked, logins: LoginsHere, origin: OriginHere, say: SayHere) -> Said[LoggedIn]:
    login = await logins.login(body.username, body.password.get_secret_value(), origin=origin)
    shown = LoggedIn(token=login.token, expires_at=login.expires_at, user=UserShown.of(login.user))
    return say(shown, "Logged in.", "登录成功。")


@router.post("/auth/logout", summary="End this login", **requires(Scope.READ))
async def log_out(request: Request, caller: CurrentCaller, logins: LoginsHere, say: SayHere) -> Said[None]:
    await logins.logout(_login_token(request), by=caller)
    return say(None, "Logged out.", "已退出登录。")


@router.post("/auth/password", summary="Change your password; your other logins end", **requires(Scope.READ))
async def change_password(
    body: PasswordChange, request: Request, caller: CurrentCaller, logins: LoginsHere, say: SayHere
) -> Said[None]:
    old, new = body.old_password.get_secret_value(), body.new_password.get_secret_value()
    await logins.change_password(old, new, token=_login_token(request), by=caller)
    return say(None, "Password changed.", "密码已修改。")


@router.get("/auth/me", summary="Who is calling?", **requires(Scope.READ))
async def me(caller: CurrentCaller, say: SayHere) -> Said[Me]:
    return say(Me.of(caller), "Current caller.", "当前调用者。")


@router.get("/users", summary="List the users of the console, newest first", **requires(Scope.ADMIN))
async def list_users(db: DbHere, say: SayHere, asked: PageHere) -> Said[Paged[UserShown]]:
    async with db.read() as tx:
        found = await store.list_users(tx, offset=asked.offset, limit=asked.size)
        total = await store.count_users(tx)
    return say.page([UserShown.of(user) for user in found], asked, total=total)


@router.post("/users", status_code=201, summary="Add a user", **requires(Scope.ADMIN))
async def add_user(body: UserAsked, caller: CurrentCaller, logins: LoginsHere, say: SayHere) -> Said[UserShown]:
    user = await logins.add_user(body.username, body.password.get_secret_value(), scope=body.scope, by=caller)
    return say(UserShown.of(user), "User added.", "用户已添加。")


@router.post("/users/{user}/reset-password", summary="Set the password of a user", **requires(Scope.ADMIN))
async def reset_password(
    user: UserId, caller: CurrentCaller, logins: LoginsHere, say: SayHere, body: PasswordReset | None = None
) -> Said[NewPasswordShown]:
    given = body.password if body is not None else None
    password = generate_password() if given is None else given.get_secret_value()
    changed = await logins.reset_password(user, password, by=caller)
    shown = NewPasswordShown(user=UserShown.of(changed), password=password)
    return say(shown, "The password is shown only once.", "密码仅显示这一次。")


@router.delete("/users/{user}", summary="Remove a user and end their logins", **requires(Scope.ADMIN))
async def remove_user(user: UserId, caller: CurrentCaller, db: DbHere, say: SayHere) -> Said[UserShown]:
    async with db.tx(actor=caller.name) as tx:
        removed = await store.get_user(tx, user)
        await users.remove(tx, removed, by=caller)
    return say(UserShown.of(removed), "User removed.", "用户已移除。")


def _login_token(request: Request) -> str:
    """The token of the console login that this request uses, or `NotALogin`."""
    credential = find_credential(request.headers)
    if credential is None or not credential.is_login:
        raise NotALogin
    return credential.text

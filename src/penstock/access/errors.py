"""Errors of authentication, authorization and keys.

A caller with a complete key learns that it expired or was revoked: nobody can guess one. For a JWT or a login the error
reveals only that it is not valid.
"""

from typing import ClassVar

from penstock.kernel.errors import Conflict, Invalid, NotFound, Refused, TooMany, Unauthenticated, Unavailable

CHALLENGE = 'Bearer realm="penstock"'  # sent as WWW-Authenticate, which every 401 must carry
BAD_TOKEN = f'{CHALLENGE}, error="invalid_token"'


class NoCredential(Unauthenticated):
    """The request carries neither an API key nor a token."""

    code = "NO_CREDENTIAL"
    message = "This needs a key or a token, and the request carries none."
    message_zh = "此操作需要密钥或令牌，但请求中没有提供。"
    hint = "Send a key in X-API-Key, or a key or a token in Authorization: Bearer."
    hint_zh = "请在 X-API-Key 中提供密钥，或在 Authorization: Bearer 中提供密钥或令牌。"
    www_authenticate: ClassVar[str] = CHALLENGE


class InvalidApiKey(Unauthenticated):
    """The API key is not known, has expired or was revoked."""

    code = "INVALID_API_KEY"
    message = "The API key is not valid: {reason}."
    message_zh = "API 密钥无效：{reason_zh}。"
    hint = "Ask an admin for a new key, or create one with: penstock keys create"
    hint_zh = "请向管理员索取新的密钥，或用以下命令创建：penstock keys create"
    www_authenticate: ClassVar[str] = BAD_TOKEN
    key_id: str | None = None  # of a key that expired or was revoked, for the audit log


class InvalidToken(Unauthenticated):
    """The JWT is not valid."""

    code = "INVALID_TOKEN"
    message = "The token is not valid."
    message_zh = "令牌无效。"
    hint = "Get a new token. It needs a valid signature, `exp`, `user_id`, and the configured issuer and audience."
    hint_zh = "请获取新的令牌。令牌需有有效的签名、exp、user_id，以及所配置的签发者与受众。"
    www_authenticate: ClassVar[str] = BAD_TOKEN


class SessionOver(Unauthenticated):
    """The console login has ended."""

    code = "SESSION_OVER"
    message = "This login has ended."
    message_zh = "登录已失效。"
    hint = "Log in again."
    hint_zh = "请重新登录。"
    www_authenticate: ClassVar[str] = BAD_TOKEN


class WrongLogin(Unauthenticated):
    """The username or the password is wrong."""

    code = "WRONG_LOGIN"
    envelope_code = "VALIDATION_ERROR"  # as existing clients know it
    message = "The username or the password is wrong."
    message_zh = "用户名或密码错误。"
    hint = "After several wrong passwords in a row the account is locked for a while."
    hint_zh = "连续多次输错密码后，账户会被锁定一段时间。"
    www_authenticate: ClassVar[str] = CHALLENGE


class LoginLocked(TooMany):
    """Too many wrong passwords in a row; the account is locked for a while."""

    code = "LOGIN_LOCKED"
    message = "Too many wrong passwords in a row; try again in {whole_seconds} s."
    message_zh = "连续输错密码次数过多，请在 {whole_seconds} 秒后重试。"
    hint = "API keys still work."
    hint_zh = "API 密钥仍可使用。"


class LoginBusy(TooMany):
    """More logins are waiting for a password check than allowed."""

    code = "LOGIN_BUSY"
    message = "Too many logins at once; try again in {whole_seconds} s."
    message_zh = "同时登录的人过多，请在 {whole_seconds} 秒后重试。"
    hint = "This attempt was not counted. Try again."
    hint_zh = "此次尝试未计入次数，请重试。"


class AlreadyInitialised(Invalid):
    """The first console user exists already."""

    code = "ALREADY_INITIALISED"
    message = "The first user exists already."
    message_zh = "首个用户已存在。"
    hint = "Log in instead."
    hint_zh = "请直接登录。"


class NotALogin(Invalid):
    """Only a console login can be logged out."""

    code = "NOT_A_LOGIN"
    message = "The request uses a key or a JWT; only a console login can be logged out."
    message_zh = "请求使用的是密钥或 JWT；只有控制台登录才能注销。"
    hint = "Revoke a key with DELETE /api/v1/api-keys/{id}."
    hint_zh = "撤销密钥请用 DELETE /api/v1/api-keys/{id}。"


class TwoCredentials(Invalid):
    """The request carries two different credentials."""

    code = "TWO_CREDENTIALS"
    message = "The request carries two different keys or tokens."
    message_zh = "请求中提供了两个不同的密钥或令牌。"
    hint = "Send one credential, once: in X-API-Key or in Authorization."
    hint_zh = "请只提供一个凭证且只出现一次：用 X-API-Key 或 Authorization。"


class ScopeTooSmall(Refused):
    """The caller's scope does not include the scope that the route requires."""

    code = "SCOPE_TOO_SMALL"
    message = "This needs the scope {needed}; the caller has {held}."
    message_zh = "此操作需要 {needed} 权限；调用者只有 {held}。"
    hint = "Use a key with a larger scope."
    hint_zh = "请使用权限更大的密钥。"


class PullNotInScope(Refused):
    """A token may pull only if its scope claim says so."""

    code = "PULL_NOT_IN_SCOPE"
    message = "This token may read but not pull: it has no scope claim."
    message_zh = "此令牌只能查询，不能拉取：其中没有 scope 声明。"
    hint = "Use a token whose scope claim is read, write or admin, or an API key."
    hint_zh = "请使用 scope 声明为 read、write 或 admin 的令牌，或使用 API 密钥。"


class KeyIsBound(Refused):
    """The API key is bound to one project and gives access to nothing else."""

    code = "KEY_IS_BOUND"
    message = "This key is bound to one project and gives access to nothing else."
    message_zh = "此密钥只绑定一个项目，不能访问其他内容。"
    hint = "Use a key that is not bound to a project."
    hint_zh = "请使用未绑定项目的密钥。"


class NoSuchKey(NotFound):
    """No API key has this id."""

    code = "NO_SUCH_KEY"
    message = "There is no API key {id}."
    message_zh = "没有 API 密钥 {id}。"
    hint = "List the ids with GET /api/v1/api-keys or: penstock keys list"
    hint_zh = "可用 GET /api/v1/api-keys 或 penstock keys list 查看所有 id。"
    terminal_hint = "`penstock keys list` lists them."


class KeyNotActive(Conflict):
    """The API key was revoked, replaced or has expired, so it cannot be changed."""

    code = "KEY_NOT_ACTIVE"
    message = "The key {id} was revoked, replaced or has expired."
    message_zh = "密钥 {id} 已被撤销、替换或已过期。"
    hint = "Create a new one, or give an expired key a later expiry first."
    hint_zh = "请新建密钥；已过期的密钥可先延长有效期。"


class ExpiryInThePast(Invalid):
    """The expiry of an API key must be in the future."""

    code = "EXPIRY_IN_THE_PAST"
    message = "The expiry {expires_at} is not in the future."
    message_zh = "有效期 {expires_at} 不在未来。"
    hint = "Give a later time, or revoke the key to end it now."
    hint_zh = "请给出更晚的时间；要立即停用请撤销密钥。"

    def __init__(self, **values: object) -> None:
        super().__init__(field="expiresAt", **values)


class BadAdminKey(Invalid):
    """The preset admin key cannot be used."""

    code = "BAD_ADMIN_KEY"
    message = "PENSTOCK_ADMIN_KEY cannot be used: {reason}."
    message_zh = "PENSTOCK_ADMIN_KEY 无法使用：{reason}。"
    hint = "Choose at least 16 printable ASCII characters without spaces, for example from `openssl rand -hex 32`."
    hint_zh = "请使用至少 16 个不含空格的可打印 ASCII 字符，例如 openssl rand -hex 32 的输出。"


class BadTokenSettings(Invalid):
    """A JWT setting is not safe or not valid."""

    code = "BAD_TOKEN_SETTINGS"
    message = "{setting} cannot be used: {reason}."
    message_zh = "{setting} 无法使用：{reason}。"
    hint = (
        "PENSTOCK_JWT_SECRET needs 32 bytes; PENSTOCK_JWT_ALGORITHMS lists asymmetric algorithms such as RS256, ES256."
    )
    hint_zh = "PENSTOCK_JWT_SECRET 至少 32 字节；PENSTOCK_JWT_ALGORITHMS 列出非对称算法，例如 RS256、ES256。"


class InitRefused(Refused):
    """Only who has the setup token or an admin key can create the first user."""

    code = "INIT_REFUSED"
    message = "The first user can only be created with the setup token or an admin key."
    message_zh = "只能使用初始化令牌或管理员密钥创建首个用户。"
    hint = "Send the token that `penstock serve` printed at its start as setupToken, or an admin key in X-API-Key."
    hint_zh = "请以 setupToken 提供 penstock serve 启动时显示的令牌，或在 X-API-Key 中提供管理员密钥。"


class ForeignHost(Refused):
    """A request without a key names a host that is not ours."""

    code = "FOREIGN_HOST"
    message = "Requests without a key are refused for the host {host!r}."
    message_zh = "不接受以主机名 {host!r} 发来的无密钥请求。"
    hint = "Call the address that the server listens on. Behind a proxy, set PENSTOCK_ALLOWED_HOSTS to the public name."
    hint_zh = "请使用服务器监听的地址；若在反向代理之后，请将 PENSTOCK_ALLOWED_HOSTS 设为对外的主机名。"


class ForeignOrigin(Refused):
    """A request without a key comes from a web page of another site."""

    code = "FOREIGN_ORIGIN"
    message = "Requests without a key are refused from pages of {origin!r}."
    message_zh = "不接受来自 {origin!r} 页面的无密钥请求。"
    hint = "Allow the page with PENSTOCK_CORS_ORIGINS, or its host with PENSTOCK_ALLOWED_HOSTS."
    hint_zh = "请用 PENSTOCK_CORS_ORIGINS 允许该页面，或用 PENSTOCK_ALLOWED_HOSTS 允许其主机名。"


class UsernameTaken(Conflict):
    """A console user with this name exists."""

    code = "USERNAME_TAKEN"
    message = "There is a user named {username} already."
    message_zh = "用户名 {username} 已存在。"
    hint = "Choose another name, or reset the password of that user."
    hint_zh = "请换一个用户名，或重置该用户的密码。"


class NoSuchUser(NotFound):
    """There is no such console user."""

    code = "NO_SUCH_USER"
    message = "There is no user {user}."
    message_zh = "没有用户 {user}。"
    hint = "List the users with GET /api/v1/users or: penstock users list"
    hint_zh = "可用 GET /api/v1/users 或 penstock users list 查看所有用户。"
    terminal_hint = "`penstock users list` lists them."


class LastAdmin(Conflict):
    """The only admin cannot be removed."""

    code = "LAST_ADMIN"
    message = "{user} is the only admin."
    message_zh = "{user} 是唯一的管理员。"
    hint = "Add another admin first."
    hint_zh = "请先添加另一位管理员。"


class JwksUnavailable(Unavailable):
    """The keys that verify JWTs cannot be fetched, and none are cached."""

    code = "JWKS_UNAVAILABLE"
    message = "The keys that verify tokens cannot be fetched: {reason}."
    message_zh = "无法获取用于验证令牌的密钥：{reason}。"
    hint = "Check PENSTOCK_JWKS_URL and that its server responds. Retried automatically."
    hint_zh = "请检查 PENSTOCK_JWKS_URL 及其服务器是否可用；系统会自动重试。"
    internal_outage = True

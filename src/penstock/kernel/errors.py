"""What can go wrong, in nine kinds.

    PenstockError
    ├── Invalid          400   the caller sent something wrong
    ├── Unauthenticated  401   we do not know who is calling
    ├── Refused          403   we know, and they may not
    ├── NotFound         404   no such thing, or not theirs
    ├── Conflict         409   the thing is not in a state for this
    ├── Gone             410   it was here and is no longer
    ├── TooLarge         413   over a bound
    ├── TooMany          429   over a rate; try again after a wait
    └── Unavailable      503   something we need is away; try again

A room subclasses a kind and gives it a `code` (a promise to callers), a `message` and a `hint`, both also in Chinese.
The kind decides twice, in one place each: the HTTP status (`kernel/http`) and the retry (`kernel/retry.py`).
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar

MAX_ERROR_TEXT = 2000  # characters of an error that are kept in a row


def error_text(error: BaseException) -> str:
    """What an error says, in a form that every database can keep."""
    return storable_text(str(error) or type(error).__name__)


def storable_text(words: str) -> str:
    """A text as every database can keep it: no NUL, no half characters, not too long."""
    return words[:MAX_ERROR_TEXT].replace("\0", "\\0").encode(errors="backslashreplace").decode()


class PenstockError(Exception):
    """Any failure we can name. Values fill the message and stay readable for callers."""

    code: ClassVar[str] = "INTERNAL"
    message: ClassVar[str] = "Something went wrong."
    hint: ClassVar[str] = ""
    message_zh: ClassVar[str] = "出了问题。"
    hint_zh: ClassVar[str] = ""
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    is_shown_by_its_code: ClassVar[bool] = False  # also where a family of routes has codes of its own for each kind
    internal_outage: ClassVar[bool] = False  # a part of our own house is away: what fails by it has used up no attempt

    def __init__(self, **values: object) -> None:
        self.values = values
        super().__init__(self.message.format(**values))

    def in_chinese(self) -> str:
        """The message in Chinese; the values stay as they are."""
        return self.message_zh.format(**self.values)

    def __reduce__(self) -> tuple[Callable[..., "PenstockError"], tuple[object, ...]]:
        """Errors cross process borders, and they are made of names, not of places."""
        return partial(type(self), **self.values), ()


class Invalid(PenstockError):
    """The caller sent something wrong."""

    code = "INVALID"
    message = "{reason}"
    message_zh = "{reason}"
    status = 400


class Unauthenticated(PenstockError):
    """We do not know who is calling."""

    code = "UNAUTHENTICATED"
    message = "Who is calling is not known."
    message_zh = "无法确认调用者的身份。"
    hint = "Send a valid key in X-API-Key."
    hint_zh = "请在 X-API-Key 中提供有效的密钥。"
    status = 401


class Refused(PenstockError):
    """We know who is calling, and they may not."""

    code = "REFUSED"
    message = "{reason}"
    message_zh = "{reason}"
    status = 403


class NotFound(PenstockError):
    """No such thing, or not the caller's."""

    code = "NOT_FOUND"
    message = "There is no {thing} {id}."
    message_zh = "没有 {thing} {id}。"
    status = 404


class Conflict(PenstockError):
    """The thing is not in a state for this."""

    code = "CONFLICT"
    message = "{reason}"
    message_zh = "{reason}"
    status = 409


class Gone(PenstockError):
    """It was here and is no longer."""

    code = "GONE"
    message = "The {thing} {id} is no longer here."
    message_zh = "{thing} {id} 已不存在。"
    status = 410


class TooLarge(PenstockError):
    """Something is over a bound."""

    code = "TOO_LARGE"
    message = "{reason}"
    message_zh = "{reason}"
    status = 413


class TooMany(PenstockError):
    """Over a rate or a quota; worth another try after `wait_seconds`."""

    code = "TOO_MANY"
    message = "Too many at once; try again in {whole_seconds} s."
    message_zh = "请求过多，请在 {whole_seconds} 秒后重试。"
    status = 429
    retryable = True

    def __init__(self, *, wait_seconds: float, headers: Mapping[str, str] | None = None, **values: object) -> None:
        self.wait_seconds = wait_seconds
        self.headers = dict(headers or {})  # what an answer tells of the limit beside the wait
        values["whole_seconds"] = math.ceil(wait_seconds)  # rounded down, it would ask to come back too early
        super().__init__(wait_seconds=wait_seconds, **values)


class Unavailable(PenstockError):
    """Something we need is away for now."""

    code = "UNAVAILABLE"
    message = "{reason}"
    message_zh = "{reason}"
    status = 503
    retryable = True


class DiskFull(Unavailable):
    """There is no room left to write. Trying again at once cannot help, so it is final."""

    code = "DISK_FULL"
    message = "There is no space left to write {what}."
    message_zh = "没有剩余空间可写入 {what}。"
    hint = "Free some space on the disk, then try again; nothing half-written was kept."
    hint_zh = "请先释放磁盘空间再重试；没有留下写了一半的内容。"
    retryable = False

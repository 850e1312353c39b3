"""The error hierarchy: nine kinds.

    PenstockError
    ├── Invalid          400   the request is invalid
    ├── Unauthenticated  401   the caller is not authenticated
    ├── Refused          403   the caller lacks permission
    ├── NotFound         404   it does not exist, or belongs to another user
    ├── Conflict         409   its current state does not allow this
    ├── Gone             410   it existed and was deleted
    ├── TooLarge         413   over a size limit
    ├── TooMany          429   over a rate limit or quota; retry after a wait
    └── Unavailable      503   a dependency is down; retry

A module subclasses a kind and gives it a `code` (stable for callers), a `message` and a `hint`, both also in Chinese.
The kind decides the HTTP status (`kernel/http`) and whether to retry (`kernel/retry.py`), in one place each.
"""

import errno
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar

MAX_ERROR_TEXT = 2000  # characters of an error stored in a row
DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def error_text(error: BaseException) -> str:
    """The text of an error, in a form that every database can store."""
    return storable_text(str(error) or type(error).__name__)


def storable_text(text: str) -> str:
    """A text that every database can store: no NUL, no lone surrogates, bounded length."""
    return text[:MAX_ERROR_TEXT].replace("\0", "\\0").encode(errors="backslashreplace").decode()


class PenstockError(Exception):
    """Any expected failure that has no code of its own. `values` fill the message and stay accessible."""

    code: ClassVar[str] = "INTERNAL"
    message: ClassVar[str] = "Something went wrong."
    hint: ClassVar[str] = ""
    terminal_hint: ClassVar[str] = ""  # what the command line says instead of a hint that speaks of HTTP
    message_zh: ClassVar[str] = "出了问题。"
    hint_zh: ClassVar[str] = ""
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    retry_seconds: ClassVar[int | None] = None  # Retry-After, where a moment helps
    envelope_code: ClassVar[str | None] = None  # in the envelope, instead of the code of its kind
    internal_outage: ClassVar[bool] = False  # our own infrastructure is down, so a job that fails uses up no attempt

    def __init__(self, **values: object) -> None:
        self.values = values
        super().__init__(self.message.format(**values))

    def in_chinese(self) -> str:
        """The message in Chinese; the values stay as they are."""
        return self.message_zh.format(**self.values)

    def __reduce__(self) -> tuple[Callable[..., "PenstockError"], tuple[object, ...]]:
        """Pickle by keyword arguments: errors cross process boundaries."""
        return partial(type(self), **self.values), ()


class Invalid(PenstockError):
    """The request is invalid."""

    code = "INVALID"
    message = "{reason}"
    message_zh = "{reason}"
    status = 400


class Unauthenticated(PenstockError):
    """The caller is not authenticated."""

    code = "UNAUTHENTICATED"
    message = "The caller could not be authenticated."
    message_zh = "无法确认调用者的身份。"
    hint = "Send a valid key in X-API-Key."
    hint_zh = "请在 X-API-Key 中提供有效的密钥。"
    status = 401


class Refused(PenstockError):
    """The caller is authenticated and lacks permission."""

    code = "REFUSED"
    message = "{reason}"
    message_zh = "{reason}"
    status = 403


class NotFound(PenstockError):
    """The requested object does not exist, or belongs to another user."""

    code = "NOT_FOUND"
    message = "There is no {thing} {id}."
    message_zh = "没有 {thing} {id}。"
    status = 404


class Conflict(PenstockError):
    """The current state of the object does not allow the request."""

    code = "CONFLICT"
    message = "{reason}"
    message_zh = "{reason}"
    status = 409


class Gone(PenstockError):
    """The requested object existed and was deleted."""

    code = "GONE"
    message = "The {thing} {id} no longer exists."
    message_zh = "{thing} {id} 已不存在。"
    status = 410


class TooLarge(PenstockError):
    """The content exceeds a size limit."""

    code = "TOO_LARGE"
    message = "{reason}"
    message_zh = "{reason}"
    status = 413


class TooMany(PenstockError):
    """Over a rate limit or quota; may succeed after `wait_seconds`."""

    code = "TOO_MANY"
    message = "Too many requests; try again in {whole_seconds} s."
    message_zh = "请求过多，请在 {whole_seconds} 秒后重试。"
    status = 429
    retryable = True

    def __init__(self, *, wait_seconds: float, headers: Mapping[str, str] | None = None, **values: object) -> None:
        self.wait_seconds = wait_seconds
        self.headers = dict(headers or {})  # response headers that describe the limit
        values["whole_seconds"] = math.ceil(wait_seconds)  # rounded down, a caller would retry too early
        super().__init__(wait_seconds=wait_seconds, **values)


class Unavailable(PenstockError):
    """A dependency is down."""

    code = "UNAVAILABLE"
    message = "{reason}"
    message_zh = "{reason}"
    status = 503
    retryable = True
    retry_seconds = 2  # most dependencies recover within it


class DiskFull(Unavailable):
    """The blob store, the database or a data folder is full; nothing is lost, and jobs wait until there is space."""

    code = "DISK_FULL"
    message = "There is no space left to write {what}."
    message_zh = "没有剩余空间可写入 {what}。"
    hint = "Free some disk space, then try again; no partial data was kept, and waiting jobs continue by themselves."
    hint_zh = "请先释放磁盘空间再重试；没有留下写了一半的内容，等待中的任务会自动继续。"
    internal_outage = True
    retry_seconds = 30  # space is freed by people or by cleaning, not within a moment


class FolderFull(DiskFull):
    """The folder of this process for temporary files is full. Another process may have space in its own."""


def folder_full_from(error: BaseException) -> FolderFull | None:
    """The outage that an operating system error stands for, if it says that a disk is full."""
    if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS:
        return FolderFull(what="a temporary file")
    return None

"""Request headers that the middleware needs, and headers that every response carries.

A client's `X-Request-Id` is used if it has 1 to 64 letters, digits, dots, hyphens or underscores. A request's headers
are walked once. Headers that a route sets itself are never replaced, such as its caching or its content security
policy.
"""

import itertools
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from starlette.types import Scope

from penstock.kernel.errors import TooLarge

RawHeader = tuple[bytes, bytes]

MAX_HEADER_BYTES = 64 * 1024  # the server reads up to 416 KiB: that is also its buffer for bodies

VALID_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
JSON_TYPE = re.compile(rb"application/(?:.*\+)?json", re.IGNORECASE)  # no narrower than the framework's own rule

# The API returns data and never a page: nothing may be loaded, framed, sniffed or cached.
DEFAULT_HEADERS: tuple[RawHeader, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)
WARNINGS = "penstock.warnings"  # key in the scope of what `add_warning` was told
MAX_WARNING_LENGTH = 300
UNQUOTED = str.maketrans({'"': "'", "\\": "/"})  # the text stands in quotes
DEFAULT_HEADER_NAMES = frozenset(name for name, _ in DEFAULT_HEADERS)


class HeadersTooLarge(TooLarge):
    """The headers of the request are too large in all."""

    code = "HEADERS_TOO_LARGE"
    message = "The headers have {size_bytes} bytes in all; the limit is {most_bytes}."
    message_zh = "请求头共 {size_bytes} 字节，超过上限 {most_bytes}。"
    hint = "Send fewer or shorter headers; check for a cookie that grows."
    hint_zh = "请减少或缩短请求头；检查是否有不断变大的 Cookie。"
    status = 431


class RequestIds:
    """Generates request ids: a prefix unique to the process, and a counter."""

    def __init__(self) -> None:
        self._prefix = f"req_{secrets.token_hex(6)}"
        self._numbers = itertools.count(1)

    def new(self) -> str:
        """A new id."""
        return f"{self._prefix}{next(self._numbers):x}"


@dataclass(kw_only=True, slots=True)
class RequestHead:
    """What the middleware needs of a request's headers. Not frozen: that would double the cost of making one, and each
    request makes one."""

    request_id: str = ""
    header_bytes: int = 0
    is_json: bool = False
    has_body: bool = False
    body_bytes: int = 0  # as announced; 0 for a chunked body
    accept_encoding: bytes = b""


def parse_headers(headers: Iterable[RawHeader], new_id: Callable[[], str]) -> RequestHead:
    """Read a request's headers; an invalid request id is replaced by a new one."""
    head = RequestHead()
    for name, value in headers:
        head.header_bytes += len(name) + len(value)
        if name == b"accept-encoding":
            head.accept_encoding = value
        elif name == b"content-length" and value.isdigit():
            head.body_bytes = int(value[:19])  # more digits change nothing: it is too large
            head.has_body = head.has_body or head.body_bytes > 0
        elif name == b"transfer-encoding":
            head.has_body = True
        elif name == b"content-type":
            # Of two headers, one must not be checked here and the other used by the framework.
            head.is_json = head.is_json or JSON_TYPE.fullmatch(value.partition(b";")[0].strip()) is not None
        elif name == b"x-request-id" and not head.request_id and VALID_REQUEST_ID.fullmatch(value):
            head.request_id = value.decode("ascii")
    head.request_id = head.request_id or new_id()
    return head


def check_headers(head: RequestHead) -> None:
    """Raise `HeadersTooLarge` when the headers of a request are too large in all."""
    if head.header_bytes > MAX_HEADER_BYTES:
        raise HeadersTooLarge(size_bytes=head.header_bytes, most_bytes=MAX_HEADER_BYTES)


def with_default_headers(own: Sequence[RawHeader], request_id: str) -> list[RawHeader]:
    """The headers of a response, the defaults that it does not set itself, and the request id."""
    overridden = DEFAULT_HEADER_NAMES.intersection([name for name, _ in own])
    defaults = [pair for pair in DEFAULT_HEADERS if pair[0] not in overridden] if overridden else DEFAULT_HEADERS
    return [*own, *defaults, (b"x-request-id", request_id.encode("ascii"))]


def add_warning(scope: Scope, text: str) -> None:
    """Add a `Warning` header to the response: the request was served, and a part of it was ignored."""
    plain = text.encode("ascii", "backslashreplace").decode().translate(UNQUOTED)[:MAX_WARNING_LENGTH]
    shown = "".join(character if character.isprintable() else " " for character in plain)
    scope.setdefault(WARNINGS, []).append((b"warning", f'299 - "{shown}"'.encode("ascii")))

"""Request headers that the middleware needs, and headers that every response carries.

A request's headers are walked once. Headers that a route sets itself are never replaced, such as its caching or its
content security policy.
"""

import itertools
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

RawHeader = tuple[bytes, bytes]

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
DEFAULT_HEADER_NAMES = frozenset(name for name, _ in DEFAULT_HEADERS)


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
    is_json: bool = False
    has_body: bool = False
    body_bytes: int = 0  # as announced; 0 for a chunked body
    accept_encoding: bytes = b""


def parse_headers(headers: Iterable[RawHeader], new_id: Callable[[], str]) -> RequestHead:
    """Read a request's headers; an invalid request id is replaced by a new one."""
    head = RequestHead()
    for name, value in headers:
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


def with_default_headers(own: Sequence[RawHeader], request_id: str) -> list[RawHeader]:
    """The headers of a response, the defaults that it does not set itself, and the request id."""
    overridden = DEFAULT_HEADER_NAMES.intersection([name for name, _ in own])
    defaults = [pair for pair in DEFAULT_HEADERS if pair[0] not in overridden] if overridden else DEFAULT_HEADERS
    return [*own, *defaults, (b"x-request-id", request_id.encode("ascii"))]

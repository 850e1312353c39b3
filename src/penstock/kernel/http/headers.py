"""Headers: what we read of a request before anyone else does, and what every answer carries.

A request's headers are walked once and what matters is kept. Of an answer's own headers none is replaced: what a route
says about caching or about what a page may load holds.
"""

import itertools
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

Raw = tuple[bytes, bytes]

CLEAN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
JSON_TYPE = re.compile(rb"application/(?:.*\+)?json", re.IGNORECASE)  # no narrower than the framework's own rule
NOT_AT_ALL = frozenset((b"q=0", b"q=0.", b"q=0.0", b"q=0.00", b"q=0.000"))

# The API answers with data and never with a page: nothing may be loaded, framed, guessed at or kept.
FOR_EVERYONE: tuple[Raw, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)
NAMES_FOR_EVERYONE = frozenset(name for name, _ in FOR_EVERYONE)


class RequestIds:
    """Ids of requests: a start that no other process has, and a number."""

    def __init__(self) -> None:
        self._start = f"req_{secrets.token_hex(6)}"
        self._numbers = itertools.count(1)

    def new(self) -> str:
        """A new id."""
        return f"{self._start}{next(self._numbers):x}"


@dataclass(kw_only=True, slots=True)
class Asked:
    """What a request says about itself. Not frozen: one is made for every request, and that would double its cost."""

    request_id: str = ""
    is_json: bool = False
    has_body: bool = False
    body_bytes: int = 0  # as announced; a body that comes in chunks announces nothing
    encodings: bytes = b""


def read_headers(headers: Iterable[Raw], new_id: Callable[[], str]) -> Asked:
    """What matters of a request's headers; an id that is not clean is replaced by one of ours."""
    asked = Asked()
    for name, value in headers:
        if name == b"accept-encoding":
            asked.encodings = value
        elif name == b"content-length" and value.isdigit():
            asked.body_bytes = int(value[:19])  # more digits would say nothing new: it is too large
            asked.has_body = asked.has_body or asked.body_bytes > 0
        elif name == b"transfer-encoding":
            asked.has_body = True
        elif name == b"content-type":
            # Whoever sends two must not have one of them checked and the other believed.
            asked.is_json = asked.is_json or JSON_TYPE.fullmatch(value.partition(b";")[0].strip()) is not None
        elif name == b"x-request-id" and not asked.request_id and CLEAN_ID.fullmatch(value):
            asked.request_id = value.decode("ascii")
    asked.request_id = asked.request_id or new_id()
    return asked


def takes_gzip(encodings: bytes) -> bool:
    """Whether Accept-Encoding lists gzip."""
    for part in encodings.lower().split(b","):
        coding, _, weight = part.partition(b";")
        if coding.strip() == b"gzip":
            return weight.replace(b" ", b"") not in NOT_AT_ALL
    return False


def with_ours(own: Sequence[Raw], request_id: str) -> list[Raw]:
    """The headers of an answer and, where it says nothing itself, ours."""
    said = NAMES_FOR_EVERYONE.intersection([name for name, _ in own])
    ours = [pair for pair in FOR_EVERYONE if pair[0] not in said] if said else FOR_EVERYONE
    return [*own, *ours, (b"x-request-id", request_id.encode("ascii"))]

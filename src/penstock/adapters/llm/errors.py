"""Map error responses of model servers to the errors of `documents/chat_model.py`.

Servers report errors in several shapes, so a body is read defensively: as OpenAI's format, a variant of it, or plain
text. Messages are truncated and redacted; our API key is removed whatever it looks like.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from http.client import responses
from typing import Any

import msgspec

from penstock.documents.chat_model import ModelBusy, ModelCallRejected, ModelUnavailable, PromptTooLong
from penstock.kernel.errors import PenstockError
from penstock.kernel.redact import REDACTED, redact

MAX_WORDS = 300  # characters of a server's message in our errors
MAX_TEXT = 20_000  # characters searched for known phrases
MAX_WAIT_SECONDS = 3600.0
DEFAULT_WAIT_SECONDS = 5.0  # for a 429 without a Retry-After
SHORTEST_KEY = 4  # replacing anything shorter would garble every message

TRANSIENT_STATUSES = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY})
BAD_REQUEST_STATUSES = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
NOT_READY_STATUSES = frozenset(
    {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE}
)  # the server restarts or loads its model
HIGHEST_STATUS = 599
NO_QUOTA = "insufficient_quota"
TOO_LONG = (
    "context_length_exceeded",
    "exceed_context_size",  # llama.cpp
    "context length",
    "context size",
    "context window",
    "prompt is too long",
)
DURATION = re.compile(r"(\d{1,9}(?:\.\d{0,9})?)(ms|h|m|s)")
DURATION_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


@dataclass(frozen=True, kw_only=True)
class LlmErrorResponse:
    """An error response: `words` is redacted for display, `text` is in lower case for searching."""

    status: int
    words: str
    text: str
    code: str = ""
    param: str = ""
    wait_seconds: float | None = None

    @property
    def is_unavailable(self) -> bool:
        """Whether the server itself fails, which may pass."""
        return self.status >= HTTPStatus.INTERNAL_SERVER_ERROR or self.status in TRANSIENT_STATUSES

    @property
    def is_bad_request(self) -> bool:
        """Whether the server rejects the request; another response mode may help."""
        return self.status in BAD_REQUEST_STATUSES and not self.is_too_long

    @property
    def is_too_long(self) -> bool:
        """Whether the prompt exceeds the context length."""
        if self.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return True
        searched = f"{self.code} {self.text}"
        return self.status in BAD_REQUEST_STATUSES and any(words in searched for words in TOO_LONG)

    def error(self) -> PenstockError:
        """The corresponding error of the model port."""
        if self.is_unavailable:
            reason = f"HTTP {self.status}"
            detailed = f"{reason}: {self.words}" if self.words else reason
            return ModelUnavailable(reason=detailed, in_short=reason, unheard=self.status in NOT_READY_STATUSES)
        if self.is_too_long:
            return PromptTooLong(reason=self.words)
        if self.status == HTTPStatus.TOO_MANY_REQUESTS and self.code != NO_QUOTA:
            return ModelBusy(wait_seconds=DEFAULT_WAIT_SECONDS if self.wait_seconds is None else self.wait_seconds)
        return ModelCallRejected(status=self.status, reason=self.words)


def read_error_response(
    status: int, headers: Mapping[str, str], body: bytes, *, key: str, now: datetime
) -> LlmErrorResponse:
    """Parse an unsuccessful response."""
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return LlmErrorResponse(status=status, words="redirects are not followed", text="")
    error = _read_fields(_error_object(body), body[:MAX_TEXT].decode(errors="replace"), status=status, key=key)
    return replace(error, wait_seconds=wait_of(headers, now=now))


def error_in_body(error: Mapping[str, Any], *, key: str) -> LlmErrorResponse:
    """Parse an error in the body of a successful response, as some proxies send it."""
    code = error.get("code")
    known = isinstance(code, int) and HTTPStatus.BAD_REQUEST <= code <= HIGHEST_STATUS
    status = code if isinstance(code, int) and known else HTTPStatus.BAD_GATEWAY
    return _read_fields(error, "", status=status, key=key)


def _read_fields(fields: Mapping[str, Any], otherwise: str, *, status: int, key: str) -> LlmErrorResponse:
    """Read the message from known fields. Fields that echo the request are ignored."""
    message = _first_text(fields, "message", "error", "detail") or _slots(fields.get("detail"))
    text = message or ("" if otherwise.lstrip().startswith("<") else otherwise)  # not an HTML error page
    return LlmErrorResponse(
        status=status,
        words=redacted(text, key) or responses.get(status, "no reason given"),
        text=text[:MAX_TEXT].lower(),
        code=_first_text(fields, "code") or _first_text(fields, "type"),
        param=_first_text(fields, "param").lower(),
    )


def _slots(detail: Any) -> str:
    """The validation errors of a FastAPI server: location and message of each."""
    rows = [row for row in detail if isinstance(row, dict)] if isinstance(detail, list) else []
    return "; ".join(f"{row.get('loc')}: {_first_text(row, 'msg')}" for row in rows)


def redacted(words: str, key: str) -> str:
    """A server's message for display: one line, bounded, without secrets."""
    words = " ".join(words[:MAX_TEXT].split())
    if len(key) >= SHORTEST_KEY:
        words = words.replace(key, REDACTED)
    # Truncated after redaction: half a key no longer looks like one.
    words = redact(words[: 4 * MAX_WORDS])
    return words if len(words) <= MAX_WORDS else f"{words[:MAX_WORDS]}…"


def wait_of(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """How long the server asks us to wait, bounded; None if it does not say."""
    wait = _milliseconds(headers.get("Retry-After-Ms", ""))
    wait = wait if wait is not None else _retry_after(headers.get("Retry-After", ""), now)
    wait = wait if wait is not None else _reset(headers)
    return None if wait is None else min(max(wait, 0.0), MAX_WAIT_SECONDS)


def _milliseconds(text: str) -> float | None:
    seconds = _seconds(text)
    return None if seconds is None else seconds / 1000


def _retry_after(text: str, now: datetime) -> float | None:
    if (seconds := _seconds(text)) is not None:
        return seconds
    try:
        date = parsedate_to_datetime(text.strip())
        return ((date if date.tzinfo else date.replace(tzinfo=UTC)) - now).total_seconds()
    except (ValueError, OverflowError):
        return None


def _reset(headers: Mapping[str, str]) -> float | None:
    """The longest reset time of an exhausted limit: requests or tokens. Without a remaining count, both may be."""
    waits = []
    for what in ("requests", "tokens"):
        left = _seconds(headers.get(f"x-ratelimit-remaining-{what}", ""))
        wait = _duration(headers.get(f"x-ratelimit-reset-{what}", ""))
        if wait is not None and not left:
            waits.append(wait)
    return max(waits, default=None)


def _duration(text: str) -> float | None:
    """Seconds of a duration such as 1s, 6m0s, 120ms or 17."""
    text = text.strip()
    if (seconds := _seconds(text)) is not None:
        return seconds
    parts = DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * DURATION_SECONDS[unit] for number, unit in parts)


def _seconds(text: str) -> float | None:
    """A plain non-negative number."""
    return float(text) if re.fullmatch(r"\s*\d{1,12}(?:\.\d{0,12})?\s*", text, re.ASCII) else None


def _error_object(body: bytes) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    inner = found.get("error")
    return inner if isinstance(inner, dict) else found


def _first_text(fields: Mapping[str, Any], *names: str) -> str:
    return next((value for name in names if isinstance(value := fields.get(name), str)), "")

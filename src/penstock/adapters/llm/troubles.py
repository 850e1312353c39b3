"""What a server says when it does not answer, and which error of `documents/chat_model.py` that is.

Servers tell of errors in several shapes, so a body is read without trust: as OpenAI's, as what others made of it, or as
plain text. Of their words a bounded part is kept, without secrets; our key is blotted out whatever it looks like.
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

from penstock.documents.chat_model import ModelAway, ModelBusy, ModelRefusedCall, QuestionTooLong
from penstock.kernel.errors import PenstockError
from penstock.kernel.redact import BLOT, redact

MOST_WORDS = 300  # characters of a server's words that people see
MOST_TEXT = 20_000  # characters that are looked at to find out what is meant
MOST_WAIT_SECONDS = 3600.0
SILENT_WAIT_SECONDS = 5.0  # when a server wants fewer calls and does not say for how long
SHORTEST_KEY = 4  # what is shorter would blot out half of every sentence

MAY_PASS = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY})
ABOUT_THE_QUESTION = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
NOBODY_THERE = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE})  # it restarts, or loads its model
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
SPAN = re.compile(r"(\d{1,9}(?:\.\d{0,9})?)(ms|h|m|s)")
SPAN_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What a server said instead of an answer: `words` as they may be shown, `text` in lower case to look into."""

    status: int
    words: str
    text: str
    code: str = ""
    param: str = ""
    wait_seconds: float | None = None

    @property
    def is_away(self) -> bool:
        """Whether the server has a fault of its own, which may pass."""
        return self.status >= HTTPStatus.INTERNAL_SERVER_ERROR or self.status in MAY_PASS

    @property
    def is_about_the_question(self) -> bool:
        """Whether it does not take what it was sent; another way of asking may help."""
        return self.status in ABOUT_THE_QUESTION and not self.is_too_long

    @property
    def is_too_long(self) -> bool:
        """Whether the question is longer than the model can take in."""
        if self.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return True
        told = f"{self.code} {self.text}"
        return self.status in ABOUT_THE_QUESTION and any(words in told for words in TOO_LONG)

    def error(self) -> PenstockError:
        """The error that this is."""
        if self.is_away:
            reason = f"it answered {self.status}"
            told = f"{reason}: {self.words}" if self.words else reason
            return ModelAway(reason=told, in_short=reason, unheard=self.status in NOBODY_THERE)
        if self.is_too_long:
            return QuestionTooLong(reason=self.words)
        if self.status == HTTPStatus.TOO_MANY_REQUESTS and self.code != NO_QUOTA:
            return ModelBusy(wait_seconds=SILENT_WAIT_SECONDS if self.wait_seconds is None else self.wait_seconds)
        return ModelRefusedCall(status=self.status, reason=self.words)


def read_trouble(status: int, headers: Mapping[str, str], body: bytes, *, key: str, now: datetime) -> Trouble:
    """What a server says with a status that is no success."""
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return Trouble(status=status, words="it sends us elsewhere, and we do not follow", text="")
    trouble = _told(_error_object(body), body[:MOST_TEXT].decode(errors="replace"), status=status, key=key)
    return replace(trouble, wait_seconds=wait_of(headers, now=now))


def trouble_in(error: Mapping[str, Any], *, key: str) -> Trouble:
    """An error that came in a body whose status says that all is well; some relays do so."""
    code = error.get("code")
    known = isinstance(code, int) and HTTPStatus.BAD_REQUEST <= code <= HIGHEST_STATUS
    status = code if isinstance(code, int) and known else HTTPStatus.BAD_GATEWAY
    return _told(error, "", status=status, key=key)


def _told(fields: Mapping[str, Any], otherwise: str, *, status: int, key: str) -> Trouble:
    """The words of an error. What they quote of our question is left aside where they come in fields."""
    message = _first_text(fields, "message", "error", "detail") or _places(fields.get("detail"))
    text = message or ("" if otherwise.lstrip().startswith("<") else otherwise)  # pages are for people with browsers
    return Trouble(
        status=status,
        words=shown(text, key) or responses.get(status, "no reason given"),
        text=text[:MOST_TEXT].lower(),
        code=_first_text(fields, "code") or _first_text(fields, "type"),
        param=_first_text(fields, "param").lower(),
    )


def _places(detail: Any) -> str:
    """The list of wrong fields that servers built on FastAPI give: where, and what is wrong there."""
    rows = [row for row in detail if isinstance(row, dict)] if isinstance(detail, list) else []
    return "; ".join(f"{row.get('loc')}: {_first_text(row, 'msg')}" for row in rows)


def shown(words: str, key: str) -> str:
    """A server's words as people may see them: in one line, bounded, and without a secret."""
    words = " ".join(words[:MOST_TEXT].split())
    if len(key) >= SHORTEST_KEY:
        words = words.replace(key, BLOT)
    # Cut after the secrets are out: half a key no longer looks like one.
    words = redact(words[: 4 * MOST_WORDS])
    return words if len(words) <= MOST_WORDS else f"{words[:MOST_WORDS]}…"


def wait_of(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """How long a server wants us to wait, bounded; none when it does not say."""
    wait = _milliseconds(headers.get("Retry-After-Ms", ""))
    wait = wait if wait is not None else _retry_after(headers.get("Retry-After", ""), now)
    wait = wait if wait is not None else _reset(headers)
    return None if wait is None else min(max(wait, 0.0), MOST_WAIT_SECONDS)


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
    """The longest of what has run out: requests or tokens. With nothing said to be left, both may have."""
    waits = []
    for what in ("requests", "tokens"):
        left = _seconds(headers.get(f"x-ratelimit-remaining-{what}", ""))
        wait = _span(headers.get(f"x-ratelimit-reset-{what}", ""))
        if wait is not None and not left:
            waits.append(wait)
    return max(waits, default=None)


def _span(text: str) -> float | None:
    """Seconds of a span such as 1s, 6m0s, 120ms or 17."""
    text = text.strip()
    if (seconds := _seconds(text)) is not None:
        return seconds
    parts = SPAN.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * SPAN_SECONDS[unit] for number, unit in parts)


def _seconds(text: str) -> float | None:
    """A plain number from 0."""
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

"""Parse a chat completion, any field of which may be missing or of the wrong type.

A malformed response raises `ModelUnavailable`: the server or a proxy before it is faulty. A truncated or filtered
completion is an error and never repaired, and reasoning content is not part of the answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.adapters.llm.errors import LlmErrorResponse, error_in_body, redacted
from penstock.documents.chat_model import AnswerTruncated, ModelDeclined, ModelUnavailable

CUT_OFF = frozenset({"length", "max_tokens", "model_length"})  # the first is OpenAI's, the others are variants
FILTERED = frozenset({"content_filter", "safety"})
MAX_NAME = 200  # characters of an id or a model name


@dataclass(frozen=True, kw_only=True)
class Completion:
    """The answer of a model, its finish reason and token usage."""

    text: str
    finish_reason: str = ""
    refusal: str = ""
    id: str = ""
    model: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None

    def whole(self, *, key: str) -> str:
        """The text of a complete answer; raises if it was refused, cut off or blank."""
        if self.refusal or self.finish_reason in FILTERED:
            raise ModelDeclined(reason=redacted(self.refusal, key) or "the server filtered the answer")
        if self.finish_reason in CUT_OFF:
            raise AnswerTruncated
        if not self.text.strip():
            raise ModelUnavailable(reason="the answer is blank")
        return self.text


def read_completion(body: bytes, *, key: str) -> Completion | LlmErrorResponse:
    """Parse the body of a successful response."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _malformed("the response is not JSON") from error
    if not isinstance(found, dict):
        raise _malformed("the response is not an object")
    choice = _first_choice(found.get("choices"))
    if not choice:
        reported = found.get("error")
        if isinstance(reported, dict):
            return error_in_body(reported, key=key)
        raise _malformed("the response contains no choice")
    message, usage = _object(choice.get("message")), _object(found.get("usage"))
    return Completion(
        text=_content(message.get("content")),
        finish_reason=_text(choice.get("finish_reason")),
        refusal=_text(message.get("refusal")),
        id=_text(found.get("id"))[:MAX_NAME],
        model=_text(found.get("model"))[:MAX_NAME],
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(_object(usage.get("prompt_tokens_details")).get("cached_tokens")),
    )


def _malformed(reason: str) -> ModelUnavailable:
    return ModelUnavailable(reason=reason, in_short=reason)


def _first_choice(choices: Any) -> Mapping[str, Any]:
    return _object(choices[0]) if isinstance(choices, list) and choices else {}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _content(content: Any) -> str:
    """The text of a message content, which a few servers return in parts."""
    if isinstance(content, list):
        return "".join(_text(_object(part).get("text")) for part in content)
    return _text(content)

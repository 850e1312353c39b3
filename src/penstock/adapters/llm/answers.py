"""Reading an answer: every field of it may be missing or of the wrong type.

What is no answer at all is `ModelAway`, since the server, or something before it, has a fault. What is an answer is
judged by how it ended: half of one is none, and what the model thought on its way is not what it says.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.adapters.llm.troubles import Trouble, shown, trouble_in
from penstock.documents.chat_model import AnswerCutOff, ModelAway, ModelDeclined

CUT_OFF = frozenset({"length", "max_tokens", "model_length"})  # the first is OpenAI's, others say it in their own words
FILTERED = frozenset({"content_filter", "safety"})
MOST_NAME = 200  # characters of an id or of a model's name


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a model said, and how it ended."""

    text: str
    finish: str = ""
    refusal: str = ""
    id: str = ""
    model: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None

    def whole(self, *, key: str) -> str:
        """The words of a whole answer; an error when it is none."""
        if self.refusal or self.finish in FILTERED:
            raise ModelDeclined(reason=shown(self.refusal, key) or "its server filtered the answer")
        if self.finish in CUT_OFF:
            raise AnswerCutOff
        if not self.text.strip():
            raise ModelAway(reason="its answer is blank")
        return self.text


def read_answer(body: bytes, *, key: str) -> Said | Trouble:
    """What came with a status that says that all is well."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _garbled("its answer is no JSON") from error
    if not isinstance(found, dict):
        raise _garbled("its answer is no object")
    choice = _first(found.get("choices"))
    if not choice:
        told = found.get("error")
        if isinstance(told, dict):
            return trouble_in(told, key=key)
        raise _garbled("its answer holds no choice")
    message, usage = _object(choice.get("message")), _object(found.get("usage"))
    return Said(
        text=_content(message.get("content")),
        finish=_text(choice.get("finish_reason")),
        refusal=_text(message.get("refusal")),
        id=_text(found.get("id"))[:MOST_NAME],
        model=_text(found.get("model"))[:MOST_NAME],
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(_object(usage.get("prompt_tokens_details")).get("cached_tokens")),
    )


def _garbled(reason: str) -> ModelAway:
    return ModelAway(reason=reason, in_short=reason)


def _first(choices: Any) -> Mapping[str, Any]:
    return _object(choices[0]) if isinstance(choices, list) and choices else {}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _content(content: Any) -> str:
    """The words of a content, which a few servers give in parts."""
    if isinstance(content, list):
        return "".join(_text(_object(part).get("text")) for part in content)
    return _text(content)

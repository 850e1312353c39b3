"""The behaviours of `LlmServer`: what its models do to a good answer, or instead of one. Its docstring lists them."""

import email.utils
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web

GOOD: dict[str, Any] = {"title": "Invoice 7", "total": 12.5}


@dataclass(frozen=True, kw_only=True)
class Call:
    """A received request."""

    body: dict[str, Any]
    headers: Mapping[str, str]
    at: float  # seconds of time.perf_counter

    @property
    def model(self) -> str:
        """The requested model."""
        return str(self.body.get("model", ""))

    @property
    def key(self) -> str:
        """The API key."""
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    @property
    def mode(self) -> str:
        """The response mode, as named in `documents/chat_model.py`."""
        asked = self.body.get("response_format", {})
        strict = asked.get("json_schema", {}).get("strict")
        return "json_schema_strict" if strict else str(asked.get("type", "plain"))

    @property
    def schema(self) -> dict[str, Any] | None:
        """The schema of the response format, if there is one."""
        found: dict[str, Any] | None = self.body.get("response_format", {}).get("json_schema", {}).get("schema")
        return found

    @property
    def prompt(self) -> str:
        """The text of all messages."""
        return "\n\n".join(str(message["content"]) for message in self.body.get("messages", []))


Body = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """An error response."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] | None = None

    def response(self) -> web.Response:
        """The body in OpenAI's error format, or HTML as it is."""
        if self.message.startswith("<"):
            return web.Response(status=self.status, text=self.message, content_type="text/html", headers=self.headers)
        error = {"message": self.message, "type": "stub_error", "param": self.param, "code": self.code}
        return web.json_response({"error": error}, status=self.status, headers=self.headers)


def as_text(value: Any) -> str:
    """A value as a model writes it; a string stays as it is."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _changed_first(value: Any, change: Callable[[Any], Any]) -> str:
    first = next(iter(value))
    return as_text(value | {first: change(value[first])})


def _schema_of(value: Any) -> str:
    return as_text({"type": "object", "properties": {name: {"type": "string"} for name in value}})


WORDS: dict[str, Callable[[Any], str]] = {
    "good": as_text,
    "fenced": lambda value: f"```json\n{as_text(value)}\n```",
    "prose": lambda value: f"Sure! Here is what I found:\n\n{as_text(value)}\n\nLet me know if {{you}} need more.",
    "only-prose": lambda value: "I looked at the document, and it is a nice one.",
    "think": lambda value: f'<think>Could it be {{"title": "wrong"}}? No.</think>\n{as_text(value)}',
    "open-think": lambda value: f'Could it be {{"title": "wrong"}}? No.\n</think>\n{as_text(value)}',
    "half-json": lambda value: as_text(value)[:-1],
    "two-objects": lambda value: f'{{"draft": [1, 2]}}\n{as_text(value)}',
    "schema-echo": _schema_of,
    "wrong-type": lambda value: _changed_first(value, lambda old: [[old]]),
    "missing-field": lambda value: as_text(dict(list(value.items())[1:])),
    "extra-field": lambda value: as_text(value | {"surprise": True}),
    "nulls": lambda value: as_text(dict.fromkeys(value)),
    "in-a-list": lambda value: as_text([value]),
    "not-a-number": lambda value: _changed_first(value, lambda old: float("nan")),
}


def _message(body: Body, **changes: Any) -> Body:
    [choice] = body["choices"]
    finish = changes.pop("finish_reason", choice["finish_reason"])
    changed = choice | {"message": choice["message"] | changes, "finish_reason": finish}
    return body | {"choices": [changed]}


def content_of(body: Body) -> str:
    return str(body["choices"][0]["message"]["content"])


BODIES: dict[str, Callable[[Body], Any]] = {
    "length": lambda body: _message(body, content=content_of(body)[:-2], finish_reason="length"),
    "refusal": partial(_message, content=None, refusal="I cannot help with that."),
    "filtered": partial(_message, content="", finish_reason="content_filter"),
    "blank": partial(_message, content=" \n\t "),
    "null": partial(_message, content=None),
    "tool-call": partial(_message, content=None, tool_calls=[{"id": "c1"}], finish_reason="tool_calls"),
    "reasoning": partial(_message, reasoning_content='{"title": "a thought"}'),
    "only-reasoning": partial(_message, content=None, reasoning_content='{"title": "a thought"}'),
    "parts": lambda body: _message(body, content=[{"type": "text", "text": content_of(body)}]),
    "no-usage": lambda body: {name: part for name, part in body.items() if name != "usage"},
    "odd-usage": lambda body: body | {"usage": {"prompt_tokens": "many", "completion_tokens": -3}},
    "odd-types": lambda body: body | {"id": 7, "model": None, "usage": [], "choices": body["choices"] * 2},
    "no-choices": lambda body: body | {"choices": []},
    "error-in-200": lambda body: {"error": {"message": "the backend fell over", "code": 502}},
    "garbled": lambda body: "<html>welcome</html>",
    "list-body": lambda body: [body],
}


def _format_refused(*modes: str, status: int = 400) -> Callable[[Call], Refusal | None]:
    def refuse(call: Call) -> Refusal | None:
        message = f"Invalid parameter: 'response_format' of type '{call.mode}' is not supported with this model."
        return Refusal(status=status, message=message, param="response_format") if call.mode in modes else None

    return refuse


def _field_refused(name: str, words: str) -> Callable[[Call], Refusal | None]:
    def refuse(call: Call) -> Refusal | None:
        refusal = Refusal(status=400, message=words, param=name, code="unsupported_parameter")
        return refusal if name in call.body else None

    return refuse


def _without_json_word(call: Call) -> Refusal | None:
    words = "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."
    missing = call.mode == "json_object" and "json" not in call.prompt.lower()
    return Refusal(status=400, message=words, param="messages") if missing else None


def _system_refused(call: Call) -> Refusal | None:
    roles = [message["role"] for message in call.body["messages"]]
    return Refusal(status=400, message="System role not supported", param="messages") if "system" in roles else None


def _always(status: int, message: str, code: str | None = None, **headers: str) -> Callable[[Call], Refusal]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda call: Refusal(status=status, message=message, code=code, headers=named)


def busy(**headers: str) -> Callable[[Call], Refusal]:
    return _always(429, "Rate limit reached for requests", "rate_limit_exceeded", **headers)


def _busy_until_a_date(call: Call) -> Refusal:
    return busy(Retry_After=email.utils.formatdate(time.time() + 120, usegmt=True))(call)


STRICT, SCHEMA, OBJECT = "json_schema_strict", "json_schema", "json_object"
TOO_LONG = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
REFUSALS: dict[str, Callable[[Call], Refusal | None]] = {
    "no-strict": _format_refused(STRICT),
    "no-json-schema": _format_refused(STRICT, SCHEMA),
    "no-json-object": _format_refused(OBJECT),
    "no-response-format": _format_refused(STRICT, SCHEMA, OBJECT),
    "no-response-format-422": _format_refused(STRICT, SCHEMA, OBJECT, status=422),
    "needs-json-word": _without_json_word,
    "no-temperature": _field_refused("temperature", "Unsupported value: 'temperature' does not support 0 here."),
    "no-max-tokens": _field_refused("max_tokens", "'max_tokens' is not supported: use 'max_completion_tokens'."),
    "no-system-role": _system_refused,
    "too-long": _always(400, TOO_LONG, "context_length_exceeded"),
    "too-large": _always(413, "Request Entity Too Large"),
    "bad-key": _always(401, "Incorrect API key provided", "invalid_api_key"),
    "no-balance": _always(402, "Insufficient Balance"),
    "forbidden": _always(403, "You may not use this model"),
    "no-such-model": _always(404, "The model does not exist", "model_not_found"),
    "bad-fields": _always(422, "max_tokens must be less than 4096"),
    "repeats-key": lambda call: Refusal(status=400, message=f"I do not like {dict(call.headers)} or {call.key}"),
    "repeats-schema": _always(400, "Your request, with its schema, makes no sense to me"),
    "bad-schema": _always(400, "Invalid schema for response_format 'answer': 'format' is not permitted."),
    "teapot": _always(418, "I am a teapot"),
    "redirect": _always(307, "over there", None, Location="/elsewhere/chat/completions"),
    "no-quota": _always(429, "You exceeded your current quota", "insufficient_quota"),
    "busy-date": _busy_until_a_date,
    "busy-reset": busy(x_ratelimit_reset_requests="6m0s", x_ratelimit_remaining_requests="0"),
    "busy-silent": busy(),
    "timeout": _always(408, "Request timed out"),
    "conflict": _always(409, "Conflict"),
    "error": _always(500, "The server had an error"),
    "gateway": _always(502, "<html><h1>502 Bad Gateway</h1></html>"),
    "unavailable": _always(503, "Loading model"),
    "overloaded": _always(529, "Overloaded"),
}
WIRES = frozenset({"busy", "waits", "hang", "hang-up", "cut", "huge"})
BEHAVIOURS = frozenset({*WORDS, *BODIES, *REFUSALS, *WIRES})

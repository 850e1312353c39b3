"""Structured output modes: the strictest mode a server supports, without fields that it rejects.

The modes form a ladder: strict `json_schema`, `json_schema`, `json_object`, plain text. A server that rejects a
response format by name is asked in the next mode, and what it accepted is cached per server and model for an hour, so
that an upgraded server is discovered.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal

from penstock.adapters.llm.errors import LlmErrorResponse
from penstock.adapters.llm.servers import ChatConfig, FirstMode
from penstock.documents.chat_model import ChatMessage, ChatRequest, ResponseMode
from penstock.kernel.cache import Cache
from penstock.kernel.clock import Clock
from penstock.kernel.json_object import JsonObject

RESPONSE_MODES: tuple[ResponseMode, ...] = ("json_schema_strict", "json_schema", "json_object", "plain")
FORMAT_FIELDS = ("response_format", "json_schema", "json_object", "schema")
SCHEMA_ERRORS = (
    "invalid schema",
    "invalid_json_schema",
    "json schema error",  # llama.cpp, as are the next two, from older versions
    "schema conversion failed",
    "unrecognized schema",
    "features not supported by",  # vLLM
)
SCHEMA_NAME = "answer"
JSON_INSTRUCTION = "Answer with one JSON object and nothing else."
MAX_CACHED = 1000
CACHE_TTL = timedelta(hours=1)

TokensField = Literal["max_tokens", "max_completion_tokens"]


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a model on a server supports, as far as it is known."""

    mode: ResponseMode = RESPONSE_MODES[0]
    takes_temperature: bool = True
    tokens_field: TokensField = "max_tokens"

    def mode_for(self, request: ChatRequest) -> ResponseMode:
        """The strictest mode for this request."""
        if request.schema is None:
            return "plain"
        if self.mode == "json_schema_strict" and request.strict_schema is None:
            return "json_schema"
        return self.mode

    def after(self, error: LlmErrorResponse, body: JsonObject) -> "Capabilities | None":
        """The capabilities to try after this error response; None if nothing is left to change.

        Each change can be made once, so the retries end.
        """
        if not error.is_bad_request:
            return None
        named = _rejected_field(error)
        if "temperature" in body and "temperature" in named:
            return replace(self, takes_temperature=False)
        if "max_tokens" in body and "max_completion_tokens" in error.text:
            return replace(self, tokens_field="max_completion_tokens")
        if "response_format" in body and any(word in named for word in FORMAT_FIELDS):
            return replace(self, mode=RESPONSE_MODES[RESPONSE_MODES.index(mode_of(body)) + 1])
        return None


def _rejected_field(error: LlmErrorResponse) -> str:
    """Where the response names the rejected field: its `param` if we know it, else its message."""
    known = any(word in error.param for word in ("temperature", *FORMAT_FIELDS))
    return error.param if known else error.text


def rejects_schema(error: LlmErrorResponse) -> bool:
    """Whether the server rejected this particular schema: another one may be accepted."""
    return any(words in error.text for words in SCHEMA_ERRORS)


def capability_cache(clock: Clock) -> Cache[tuple[str, str], Capabilities]:
    """A cache of what servers accepted, by base URL and model."""
    return Cache(clock, max_entries=MAX_CACHED, ttl=CACHE_TTL)


def default_capabilities(first: FirstMode) -> Capabilities:
    """The capabilities to try first."""
    return Capabilities(mode=RESPONSE_MODES[0] if first == "auto" else first)


def request_body(request: ChatRequest, model: str, capabilities: Capabilities, config: ChatConfig) -> JsonObject:
    """The JSON body of a request."""
    mode = capabilities.mode_for(request)
    messages = _with_json_instruction(request.messages) if mode == "json_object" else request.messages
    body: JsonObject = {"model": model, "messages": [{"role": turn.role, "content": turn.text} for turn in messages]}
    if capabilities.takes_temperature:
        given = request.which.temperature
        body["temperature"] = config.temperature if given is None else given
    if config.max_tokens:
        body[capabilities.tokens_field] = config.max_tokens
    if mode == "json_object":
        body["response_format"] = {"type": "json_object"}
    elif mode != "plain":
        strict = mode == "json_schema_strict"
        schema = {
            "name": SCHEMA_NAME,
            "strict": strict,
            "schema": request.strict_schema if strict else request.schema,
        }
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def mode_of(body: JsonObject) -> ResponseMode:
    """The response mode of a request body."""
    response_format = body.get("response_format", {"type": "plain"})
    if response_format["type"] == "json_schema":
        return "json_schema_strict" if response_format["json_schema"]["strict"] else "json_schema"
    return "json_object" if response_format["type"] == "json_object" else "plain"


def _with_json_instruction(messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
    """The messages with the word JSON in them: several servers refuse this mode, or never stop, without it.

    It is appended to the first system message, since some servers accept only one, at the beginning.
    """
    if any("json" in message.text.lower() for message in messages):
        return messages
    if messages and messages[0].role == "system":
        return (replace(messages[0], text=f"{messages[0].text}\n\n{JSON_INSTRUCTION}"), *messages[1:])
    return (ChatMessage(role="system", text=JSON_INSTRUCTION), *messages)

"""The chat model port: a request to a language model, and its reply.

A temporary failure is `Unavailable` or `TooMany`, and the stage is retried. A failure caused by the request itself is
one of the errors below and is not retried, since the same request would fail and cost the same again. The content of a
reply is not validated here; the caller does that (see `extract/llm/`).
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from penstock.kernel.errors import Invalid, TooLarge, TooMany, Unavailable
from penstock.kernel.json_object import JsonObject

Role = Literal["system", "user", "assistant"]
ResponseMode = Literal["json_schema_strict", "json_schema", "json_object", "plain"]  # strictest first


@dataclass(frozen=True, kw_only=True)
class ChatMessage:
    """One message of a chat."""

    role: Role
    text: str


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """Which model to call. None means the default of the installation."""

    server: str | None = None
    model: str | None = None
    temperature: float | None = None


@dataclass(frozen=True, kw_only=True)
class ChatRequest:
    """A chat request. With a schema the reply is JSON, enforced as strictly as the server supports; without one, text.

    `strict_schema` is its variant for strict mode, if there is one (see `extract/llm/schema_variants.py`).
    """

    messages: tuple[ChatMessage, ...]
    which: ModelChoice = ModelChoice()
    schema: JsonObject | None = None
    strict_schema: JsonObject | None = None


@dataclass(frozen=True, kw_only=True)
class ChatReply:
    """The reply of a model, and what it cost. Token counts are None when the server does not report them."""

    text: str
    model: str
    mode: ResponseMode
    seconds: float
    id: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost: float | None = None  # by the prices in the settings


class ChatModel(Protocol):
    """Servers with OpenAI's chat completions API."""

    def identity(self, which: ModelChoice) -> JsonObject:
        """What a reply depends on besides the request: server, model, temperature. Raises `ModelNotConfigured`."""
        ...

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Send the request once and return the complete reply."""
        ...


class ModelNotConfigured(Invalid):
    """A rule needs a model that is not configured."""

    code = "MODEL_NOT_SET"
    message = "No language model is configured{which}."
    message_zh = "此系统未配置语言模型{which}。"
    hint = "Set LLM_BASE_URL and LLM_MODEL (see docs/reference/settings.md), or use postprocess_mode fields or skip."
    hint_zh = "请设置 LLM_BASE_URL 和 LLM_MODEL（见 docs/reference/settings.md），或改用 fields 或 skip 模式。"


class ModelCallRejected(Invalid):
    """The model server rejects the call: its key, model or parameters."""

    code = "MODEL_REFUSED_CALL"
    message = "The model server rejected the call ({status}): {reason}"
    message_zh = "模型服务拒绝了调用（{status}）：{reason}"
    hint = "Check LLM_API_KEY, LLM_MODEL and the options of the rule. A retry does not help."
    hint_zh = "请检查 LLM_API_KEY、LLM_MODEL 以及规则的 options；重试无济于事。"


class ModelDeclined(Invalid):
    """The model refuses to answer, or the server filtered the answer."""

    code = "MODEL_DECLINED"
    message = "The model refused to answer: {reason}"
    message_zh = "模型拒绝回答：{reason}"
    hint = "Check the document and the system_prompt of the rule, or use another model."
    hint_zh = "请检查文档和规则的 system_prompt，或换用其他模型。"


class AnswerTruncated(Invalid):
    """The answer reached the token limit. A truncated answer is discarded."""

    code = "ANSWER_CUT_OFF"
    message = "The answer of the model was truncated at the token limit."
    message_zh = "模型的回答因达到 token 上限而被截断。"
    hint = "Raise LLM_MAX_TOKENS, ask for fewer fields, or choose a chunked strategy."
    hint_zh = "请提高 LLM_MAX_TOKENS、减少字段，或选择分块策略。"


class PromptTooLong(TooLarge):
    """The request exceeds the context length of the model."""

    code = "QUESTION_TOO_LONG"
    message = "The request exceeds the context length of the model: {reason}"
    message_zh = "请求超出模型的上下文长度：{reason}"
    hint = "Lower ETL_POSTPROCESS_CHUNK_SIZE_CHARS, or choose a chunked strategy in the rule."
    hint_zh = "请降低 ETL_POSTPROCESS_CHUNK_SIZE_CHARS，或在规则中选择分块策略。"


class ModelBusy(TooMany):
    """The model server answered 429: too many calls."""

    code = "MODEL_BUSY"
    message = "The model server limits the rate of calls. Retry in {whole_seconds} s."
    message_zh = "模型服务限制了调用频率，请在 {whole_seconds} 秒后重试。"
    hint = "Retried automatically."
    hint_zh = "系统会自动重试。"


class ModelRateLimited(TooMany):
    """Our own rate limit or a pause that the server asked for delays the call; nothing was sent."""

    code = "MODEL_GATE_SHUT"
    message = "The rate limit allows no call to the model server for {whole_seconds} s."
    message_zh = "受速率限制，{whole_seconds} 秒内不能调用模型服务。"
    hint = "Retried automatically. The server asked for a pause, or LLM_CALLS_PER_SECOND is reached."
    hint_zh = "系统会自动重试。原因是模型服务要求暂停，或已达到 LLM_CALLS_PER_SECOND。"
    internal_outage = True  # nothing was sent, so no attempt is counted


class ModelUnavailable(Unavailable):
    """The model server does not answer, or answers with a server error."""

    code = "MODEL_AWAY"
    message = "The model server is unavailable: {reason}"
    message_zh = "模型服务不可用：{reason}"
    hint = "Retried automatically. If it persists, check LLM_BASE_URL."
    hint_zh = "系统会自动重试；如持续出现，请检查 LLM_BASE_URL。"

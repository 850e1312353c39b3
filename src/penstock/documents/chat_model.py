"""The model port: a question to a language model, and its reply.

Whoever asks needs to know three kinds of trouble. What may pass is `Unavailable` or `TooMany`: the stage is tried
again. What the question itself causes is one of the errors below: asking the same again would cost the same again. What
is wrong with the words of a reply is none of the model's business and is settled by whoever asked (see `asking/`).
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from penstock.kernel.errors import Invalid, TooLarge, TooMany, Unavailable
from penstock.kernel.plain import Plain

Role = Literal["system", "user", "assistant"]
Mode = Literal["json_schema_strict", "json_schema", "json_object", "plain"]  # from the most a server can promise


@dataclass(frozen=True, kw_only=True)
class Message:
    """One turn of a talk."""

    role: Role
    text: str


@dataclass(frozen=True, kw_only=True)
class Which:
    """Which model is asked; what is not said is the installation's default."""

    server: str | None = None
    model: str | None = None
    temperature: float | None = None


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a model is asked. With a schema, its answer is wanted as JSON, as firmly as the server can promise.

    `strict_schema` is the copy that the strictest mode wants, when there is one (see `asking/strict.py`). Without a
    schema, prose is wanted.
    """

    messages: tuple[Message, ...]
    which: Which = Which()
    schema: Plain | None = None
    strict_schema: Plain | None = None


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a model said, and what it cost. Tokens are none where the server does not tell."""

    text: str
    model: str
    mode: Mode
    seconds: float
    id: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost: float | None = None  # by the prices that the settings give


class ChatModel(Protocol):
    """The port: servers that speak OpenAI's chat completions."""

    def identity(self, which: Which) -> Plain:
        """What an answer depends on beside the question: server, model, temperature. `ModelNotSet` when nobody is."""
        ...

    async def ask(self, question: Question) -> Reply:
        """Ask once; whole answers only."""
        ...


class ModelNotSet(Invalid):
    """A rule wants a model, and the installation has none by that name."""

    code = "MODEL_NOT_SET"
    message = "No language model is set up here{which}."
    message_zh = "此系统未配置语言模型{which}。"
    hint = "Set LLM_BASE_URL and LLM_MODEL (see docs/reference/settings.md), or use postprocess_mode fields or skip."
    hint_zh = "请设置 LLM_BASE_URL 和 LLM_MODEL（见 docs/reference/settings.md），或改用 fields 或 skip 模式。"


class ModelRefusedCall(Invalid):
    """A model's server does not take the call: its key, its model or its fields."""

    code = "MODEL_REFUSED_CALL"
    message = "The model's server refuses the call ({status}): {reason}"
    message_zh = "模型服务拒绝了调用（{status}）：{reason}"
    hint = "Check LLM_API_KEY, LLM_MODEL and the rule's options; trying again does not help."
    hint_zh = "请检查 LLM_API_KEY、LLM_MODEL 以及规则的 options；重试无济于事。"


class ModelDeclined(Invalid):
    """A model does not want to answer, or its server filtered the answer."""

    code = "MODEL_DECLINED"
    message = "The model declines to answer: {reason}"
    message_zh = "模型拒绝回答：{reason}"
    hint = "Look at the document and at the rule's system_prompt, or use another model."
    hint_zh = "请检查文档和规则的 system_prompt，或换用其他模型。"


class AnswerCutOff(Invalid):
    """A model's answer ended for its length; half an answer is none."""

    code = "ANSWER_CUT_OFF"
    message = "The model's answer was cut off for its length."
    message_zh = "模型的回答因长度被截断。"
    hint = "Raise LLM_MAX_TOKENS, ask for fewer fields, or choose a chunked strategy."
    hint_zh = "请提高 LLM_MAX_TOKENS、减少字段，或选择分块策略。"


class QuestionTooLong(TooLarge):
    """A question is longer than the model can take in."""

    code = "QUESTION_TOO_LONG"
    message = "The question is longer than the model can take in: {reason}"
    message_zh = "问题超出模型的上下文长度：{reason}"
    hint = "Lower ETL_POSTPROCESS_CHUNK_SIZE_CHARS, or choose a chunked strategy in the rule."
    hint_zh = "请降低 ETL_POSTPROCESS_CHUNK_SIZE_CHARS，或在规则中选择分块策略。"


class ModelBusy(TooMany):
    """A model's server wants fewer calls."""

    code = "MODEL_BUSY"
    message = "The model's server wants fewer calls; try again in {whole_seconds} s."
    message_zh = "模型服务要求降低调用频率，请在 {whole_seconds} 秒后重试。"
    hint = "It is tried again by itself."
    hint_zh = "系统会自动重试。"


class ModelGateShut(TooMany):
    """Our own gate before a model's server gives no token for now, so nothing was asked."""

    code = "MODEL_GATE_SHUT"
    message = "No call may be made to the model's server for {whole_seconds} s."
    message_zh = "{whole_seconds} 秒内不能调用模型服务。"
    hint = "It is tried again by itself. The server asked for a pause, or LLM_CALLS_PER_SECOND is used up."
    hint_zh = "系统会自动重试。原因是模型服务要求暂停，或 LLM_CALLS_PER_SECOND 已用尽。"
    ours = True  # nothing was tried, so no attempt is used up


class ModelAway(Unavailable):
    """A model's server does not answer, or answers with a fault of its own."""

    code = "MODEL_AWAY"
    message = "The model's server gives no answer: {reason}"
    message_zh = "模型服务没有响应：{reason}"
    hint = "It is tried again by itself; check LLM_BASE_URL when it lasts."
    hint_zh = "系统会自动重试；如持续出现，请检查 LLM_BASE_URL。"

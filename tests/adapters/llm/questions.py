"""Questions and rate limits shared by the tests of the model client."""

from datetime import datetime

from penstock.adapters.llm import DEFAULT, ModelServer
from penstock.documents.chat_model import ChatMessage, ChatRequest, ModelChoice
from penstock.kernel.json_object import JsonObject
from penstock.kernel.rate_limits import Bucket, RateLimitResult

KEY = "sk-4f9a1c7e2b8d"
SCHEMA: JsonObject = {"type": "object", "properties": {"title": {"type": "string"}, "total": {"type": "number"}}}
STRICT: JsonObject = SCHEMA | {"required": ["title", "total"], "additionalProperties": False}


class OpenLimits:
    """Rate limits that allow everything and record the keys and pauses."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.cooled: list[tuple[str, float]] = []

    async def take(self, key: str, bucket: Bucket, *, amount: float = 1) -> RateLimitResult:
        self.taken.append(key)
        return RateLimitResult(allowed=True, remaining=1, wait_seconds=0)

    async def cool(self, key: str, bucket: Bucket, *, seconds: float) -> None:
        self.cooled.append((key, seconds))

    async def reserve(self, key: str, *, until: datetime, limit: int, block: int) -> int:
        raise AssertionError("models have no quota")

    async def give_back(self, key: str, *, until: datetime, amount: int) -> None:
        raise AssertionError("models have no quota")

    async def left(self, key: str, *, until: datetime, limit: int) -> int:
        raise AssertionError("models have no quota")


def asking(model: str | None = None, text: str = "What is it?", **options: object) -> ChatRequest:
    """A question to that model, with a schema and its strict copy by default."""
    which = options.pop("which", ModelChoice(model=model))
    given = {"schema": SCHEMA, "strict_schema": STRICT} | options
    return ChatRequest(messages=(ChatMessage(role="user", text=text),), which=which, **given)  # type: ignore[arg-type]  # fields of a question


def server_at(base_url: str, name: str = DEFAULT, **fields: object) -> ModelServer:
    """A server that has a key."""
    given = {"api_key": KEY, "model": "good"} | fields
    return ModelServer(name=name, base_url=base_url, **given)  # type: ignore[arg-type]  # fields of a server

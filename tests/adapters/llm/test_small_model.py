"""A real model: whatever it generates satisfies the schema."""

import jsonschema_rs
import msgspec
import pytest

from penstock.documents.chat_model import ChatMessage, ChatRequest, ModelCallRejected, ModelChoice, PromptTooLong
from tests.adapters.llm.conftest import Open
from tests.adapters.llm.questions import server_at
from tests.servers.small_model import CONTEXT_TOKENS, SmallModel

pytestmark = pytest.mark.storm

SCHEMA = {
    "type": "object",
    "properties": {
        "vendor": {"type": "string", "maxLength": 40},
        "currency": {"enum": ["EUR", "USD", "CNY"]},
        "paid": {"type": "boolean"},
    },
    "required": ["vendor", "currency", "paid"],
    "additionalProperties": False,
}
TEXT = "Invoice 4711 of Brook & Sons Ltd. The total is 12.50 EUR and was paid on 3 March 2026."


def question(text: str) -> ChatRequest:
    demand = ChatMessage(role="system", text="Give vendor, currency and paid of the invoice as JSON.")
    return ChatRequest(
        messages=(demand, ChatMessage(role="user", text=text)),
        which=ModelChoice(temperature=0),
        schema=SCHEMA,
        strict_schema=SCHEMA,
    )


async def test_its_answer_is_json_under_the_schema(opened: Open, small_model: SmallModel):
    chat = opened(server_at(small_model.base_url, api_key=small_model.api_key, model=small_model.model))
    reply = await chat.complete(question(TEXT))
    value = msgspec.json.decode(reply.text)
    assert jsonschema_rs.is_valid(SCHEMA, value), reply.text
    assert (reply.mode, reply.model) == ("json_schema_strict", small_model.model)
    assert reply.prompt_tokens is not None
    assert reply.prompt_tokens > 20
    assert reply.completion_tokens


async def test_a_wrong_key_is_refused(opened: Open, small_model: SmallModel):
    with pytest.raises(ModelCallRejected, match="401"):
        await opened(server_at(small_model.base_url, api_key="sk-wrong", model="m")).complete(question(TEXT))


async def test_what_it_cannot_take_in_is_too_long(opened: Open, small_model: SmallModel):
    chat = opened(server_at(small_model.base_url, api_key=small_model.api_key, model=small_model.model))
    with pytest.raises(PromptTooLong, match="context size"):
        await chat.complete(question("word " * 2 * CONTEXT_TOKENS))

"""Response modes, unsupported fields, and the cache of both."""

import pytest

from penstock.adapters.llm import ChatCompletions
from penstock.adapters.llm.errors import LlmErrorResponse
from penstock.adapters.llm.response_modes import (
    CACHE_TTL,
    JSON_INSTRUCTION,
    MAX_CACHED,
    Capabilities,
    capability_cache,
    rejects_schema,
)
from penstock.documents.chat_model import ChatMessage, ChatRequest, ModelCallRejected, ModelChoice
from penstock.kernel.clock import ManualClock
from tests.adapters.llm.conftest import Open
from tests.adapters.llm.questions import SCHEMA, STRICT, OpenLimits, asking, server_at
from tests.fakes.llm_server import LlmServer

STRICTEST, LOOSER, OBJECT, PLAIN = "json_schema_strict", "json_schema", "json_object", "plain"


async def modes(chat: ChatCompletions, server: LlmServer, question: ChatRequest) -> list[str]:
    """The modes in which a question was sent until it was answered."""
    before = len(server.calls)
    reply = await chat.complete(question)
    asked = [call.mode for call in server.calls[before:]]
    assert reply.mode == asked[-1]
    return asked


class TestSteps:
    @pytest.mark.parametrize(
        ("model", "asked"),
        [
            ("good", [STRICTEST]),
            ("no-strict", [STRICTEST, LOOSER]),
            ("no-json-schema", [STRICTEST, LOOSER, OBJECT]),
            ("no-response-format", [STRICTEST, LOOSER, OBJECT, PLAIN]),
            ("no-response-format-422", [STRICTEST, LOOSER, OBJECT, PLAIN]),
            ("no-json-schema+needs-json-word", [STRICTEST, LOOSER, OBJECT]),
            ("no-json-schema+no-json-object", [STRICTEST, LOOSER, OBJECT, PLAIN]),
        ],
    )
    async def test_a_refused_format_is_followed_by_the_next(
        self, chat: ChatCompletions, server: LlmServer, model: str, asked: list[str]
    ):
        assert await modes(chat, server, asking(model)) == asked

    @pytest.mark.parametrize("first", [STRICTEST, LOOSER, OBJECT, PLAIN])
    async def test_the_setting_says_which_comes_first(self, opened: Open, server: LlmServer, first: str):
        assert await modes(opened(response_mode=first), server, asking("good")) == [first]

    async def test_without_a_strict_copy_the_strictest_mode_is_left_out(self, chat: ChatCompletions, server: LlmServer):
        assert await modes(chat, server, asking("good", strict_schema=None)) == [LOOSER]

    async def test_without_a_schema_no_format_is_asked_for(self, chat: ChatCompletions, server: LlmServer):
        assert await modes(chat, server, asking("no-response-format", schema=None, strict_schema=None)) == [PLAIN]

    async def test_each_mode_sends_its_own_schema(self, chat: ChatCompletions, server: LlmServer):
        await chat.complete(asking("no-json-schema"))
        assert [call.schema for call in server.calls] == [STRICT, SCHEMA, None]
        wanted = server.calls[0].body["response_format"]["json_schema"]
        assert (wanted["name"], wanted["strict"]) == ("answer", True)
        assert server.calls[1].body["response_format"]["json_schema"]["strict"] is False

    async def test_an_unrelated_rejection_changes_no_mode(self, chat: ChatCompletions, server: LlmServer):
        with pytest.raises(ModelCallRejected):
            await chat.complete(asking("bad-fields"))
        assert len(server.calls) == 1

    async def test_every_step_takes_a_token(self, chat: ChatCompletions, limits: OpenLimits):
        await chat.complete(asking("no-response-format"))
        assert limits.taken == ["llm:default"] * 4


class TestWordJson:
    async def sent(self, opened: Open, server: LlmServer, *messages: ChatMessage) -> list[dict[str, str]]:
        question = ChatRequest(messages=messages, which=ModelChoice(model="needs-json-word"), schema=SCHEMA)
        await opened(response_mode=OBJECT).complete(question)
        found: list[dict[str, str]] = server.calls[0].body["messages"]
        return found

    async def test_it_is_added_before_messages_that_lack_it(self, opened: Open, server: LlmServer):
        sent = await self.sent(opened, server, ChatMessage(role="user", text="hello"))
        assert sent == [{"role": "system", "content": JSON_INSTRUCTION}, {"role": "user", "content": "hello"}]

    async def test_it_joins_a_system_message_that_is_there(self, opened: Open, server: LlmServer):
        sent = await self.sent(
            opened, server, ChatMessage(role="system", text="Be."), ChatMessage(role="user", text="hello")
        )
        assert sent == [
            {"role": "system", "content": f"Be.\n\n{JSON_INSTRUCTION}"},
            {"role": "user", "content": "hello"},
        ]

    async def test_messages_that_hold_it_stay_as_they_are(self, opened: Open, server: LlmServer):
        assert await self.sent(opened, server, ChatMessage(role="user", text="as Json, please")) == [
            {"role": "user", "content": "as Json, please"}
        ]


class TestFields:
    async def test_the_temperature_is_the_settings_unless_a_rule_says_otherwise(self, opened: Open, server: LlmServer):
        chat = opened(temperature=0.2)
        await chat.complete(asking("good"))
        await chat.complete(asking(which=ModelChoice(model="good", temperature=0.0)))
        assert [call.body["temperature"] for call in server.calls] == [0.2, 0.0]

    async def test_a_refused_temperature_is_dropped_and_the_format_stays(
        self, chat: ChatCompletions, server: LlmServer
    ):
        assert await modes(chat, server, asking("no-temperature")) == [STRICTEST, STRICTEST]
        assert ["temperature" in call.body for call in server.calls] == [True, False]

    async def test_the_most_tokens_are_sent_only_when_set(self, opened: Open, server: LlmServer):
        await opened().complete(asking("good"))
        await opened(max_tokens=77).complete(asking("good"))
        assert [call.body.get("max_tokens") for call in server.calls] == [None, 77]

    async def test_a_server_that_names_the_newer_field_for_them_gets_it(self, opened: Open, server: LlmServer):
        await opened(max_tokens=77).complete(asking("no-max-tokens"))
        first, second = (call.body for call in server.calls)
        assert (first["max_tokens"], second["max_completion_tokens"], "max_tokens" in second) == (77, 77, False)

    async def test_several_unsupported_fields_are_dropped_one_by_one(self, opened: Open, server: LlmServer):
        chat = opened(max_tokens=77)
        question = asking("no-temperature+no-max-tokens+no-response-format")
        assert len(await modes(chat, server, question)) == 6
        assert await modes(chat, server, question) == [PLAIN]

    async def test_nothing_streams(self, chat: ChatCompletions, server: LlmServer):
        await chat.complete(asking("good"))
        assert "stream" not in server.calls[0].body


class TestCapabilityCache:
    async def test_what_a_server_accepted_is_cached_per_model(self, chat: ChatCompletions, server: LlmServer):
        await chat.complete(asking("no-json-schema+no-temperature"))
        assert await modes(chat, server, asking("no-json-schema+no-temperature")) == [OBJECT]
        assert await modes(chat, server, asking("no-json-schema")) == [STRICTEST, LOOSER, OBJECT]

    async def test_another_server_with_the_same_model_is_cached_separately(self, opened: Open, server: LlmServer):
        async with LlmServer() as other:
            chat = opened(server_at(server.base_url), server_at(other.base_url, "other"))
            await chat.complete(asking("no-strict"))
            assert await modes(chat, other, asking(which=ModelChoice(server="other", model="no-strict"))) == [
                STRICTEST,
                LOOSER,
            ]

    async def test_a_cached_mode_expires(self, chat: ChatCompletions, server: LlmServer, clock: ManualClock):
        await chat.complete(asking("no-strict"))
        clock.advance(seconds=CACHE_TTL.total_seconds())
        assert await modes(chat, server, asking("no-strict")) == [STRICTEST, LOOSER]

    async def test_a_call_that_failed_in_every_mode_is_not_cached(self, chat: ChatCompletions, server: LlmServer):
        """The message named the schema, but that was not the reason."""
        model = "repeats-schema"
        with pytest.raises(ModelCallRejected):
            await chat.complete(asking(model))
        assert [call.mode for call in server.calls] == [STRICTEST, LOOSER, OBJECT, PLAIN]
        server.calls.clear()
        with pytest.raises(ModelCallRejected):
            await chat.complete(asking(model))
        assert server.calls[0].mode == STRICTEST

    async def test_one_rejected_schema_does_not_change_the_cached_mode(self, chat: ChatCompletions, server: LlmServer):
        assert await modes(chat, server, asking("bad-schema-once")) == [STRICTEST, LOOSER]
        assert await modes(chat, server, asking("bad-schema-once")) == [STRICTEST]

    @pytest.mark.parametrize(
        ("words", "blamed"),
        [
            ("Invalid schema for response_format 'answer': In context=(), 'format' is not permitted.", True),
            ("Automatic parser generation failed: JSON schema error at #: unrecognized type foo", True),
            ("The provided JSON schema contains features not supported by xgrammar.", True),
            ("Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.", False),
            ("'response_format.type' must be 'json_schema' or 'text'", False),
        ],
    )
    def test_a_rejected_schema_is_told_from_a_rejected_mode(self, words: str, blamed: bool):
        assert rejects_schema(LlmErrorResponse(status=400, words=words, text=words.lower())) is blamed

    def test_it_holds_a_bounded_number_and_forgets_the_oldest(self, clock: ManualClock):
        cache = capability_cache(clock)
        for number in range(MAX_CACHED + 1):
            cache.put(("http://a/v1", f"m{number}"), Capabilities(mode="plain"))
        assert cache.find(("http://a/v1", "m0")) is None
        assert cache.find(("http://a/v1", "m1")) is not None

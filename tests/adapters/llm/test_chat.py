"""The model client: requests, replies, concurrency and metrics."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from penstock.adapters.llm import ChatCompletions
from penstock.adapters.llm.completions import Completion, read_completion
from penstock.documents.chat_model import ModelCallRejected, ModelChoice, ModelUnavailable
from penstock.kernel.errors import PenstockError
from tests.adapters.llm.conftest import Open
from tests.adapters.llm.questions import KEY, asking, server_at
from tests.fakes.llm_server import LlmServer

GOOD = '{"title": "Invoice 7", "total": 12.5}'


class TestReply:
    async def test_the_answer_comes_with_its_tokens_its_cost_and_its_name(self, opened: Open, server: LlmServer):
        chat = opened(server_at(server.base_url, input_price=1.0, output_price=3.0))
        reply = await chat.complete(asking("good", text="x" * 4000))
        assert (reply.text, reply.model, reply.id) == (GOOD, "good-2026", "chatcmpl-1")
        assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens) == (1001, 10, 500)
        assert reply.cost == pytest.approx((1001 + 3 * 10) / 1_000_000)
        assert 0 < reply.seconds < 20

    @pytest.mark.parametrize("model", ["no-usage", "odd-usage", "odd-types"])
    async def test_tokens_that_are_not_reported_are_unknown(self, opened: Open, server: LlmServer, model: str):
        chat = opened(server_at(server.base_url, input_price=1.0))
        reply = await chat.complete(asking(model))
        assert (reply.text, reply.prompt_tokens, reply.completion_tokens, reply.cost) == (GOOD, None, None, None)
        assert reply.model.startswith(model)

    @pytest.mark.parametrize("model", ["reasoning", "parts"])
    async def test_reasoning_is_not_part_of_the_answer(self, chat: ChatCompletions, model: str):
        assert (await chat.complete(asking(model))).text == GOOD

    @pytest.mark.parametrize("model", ["prose", "fenced", "think", "half-json", "two-objects"])
    async def test_an_answer_is_returned_without_judging_its_content(self, chat: ChatCompletions, model: str):
        assert "Invoice 7" in (await chat.complete(asking(model))).text

    async def test_every_language_arrives_as_it_was_sent(self, chat: ChatCompletions, server: LlmServer):
        server.answers(lambda call: call.prompt)
        words = "发票 №7 — \u200fمرحبا \U0001f469\u200d\U0001f467 \u0000 \\u0041"
        assert (await chat.complete(asking("good", text=words))).text == words

    @pytest.mark.parametrize(
        "body",
        [
            b'{"choices": [{"message": {"content": "yes"}}]}',
            b'{"choices": [{"message": {"content": "yes", "refusal": null}, "finish_reason": null}], "usage": null}',
            b'{"choices": [{"message": {"content": "yes", "refusal": 7}, "finish_reason": 7}], "usage": 7, "id": []}',
            b'{"choices": [{"message": {"content": "yes"}}], "usage": {"prompt_tokens": true, "total_tokens": 1e99}}',
            b'{"choices": [{"message": {"content": "yes"}}], "usage": {"completion_tokens": 1.5, "prompt_tokens": -1}}',
        ],
    )
    def test_every_field_but_the_content_may_be_missing_or_malformed(self, body: bytes):
        assert read_completion(body, key="") == Completion(text="yes")

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"null",
            b'"yes"',
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b"\xff",
            b'{"choices": {"a": 1}}',
            b'{"choices": [1]}',
        ],
    )
    def test_a_malformed_response_is_a_fault_of_the_server(self, body: bytes):
        with pytest.raises(ModelUnavailable):
            read_completion(body, key="")


class TestSending:
    async def test_the_key_goes_to_its_own_server_only(self, opened: Open, server: LlmServer):
        async with LlmServer() as other:
            chat = opened(server_at(server.base_url), server_at(other.base_url, "other", api_key=""))
            await chat.complete(asking("good"))
            await chat.complete(asking(which=ModelChoice(server="other")))
        assert (server.calls[0].key, "Authorization" in other.calls[0].headers) == (KEY, False)

    async def test_a_redirect_is_not_followed(self, chat: ChatCompletions, server: LlmServer):
        with pytest.raises(ModelCallRejected):
            await chat.complete(asking("redirect"))
        assert server.elsewhere == 0

    async def test_a_proxy_in_the_environment_is_not_used(
        self, chat: ChatCompletions, server: LlmServer, monkeypatch: pytest.MonkeyPatch
    ):
        async with LlmServer() as proxy:
            for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
                monkeypatch.setenv(name, proxy.base_url)
            await chat.complete(asking("good"))
            assert (len(proxy.calls), len(server.calls)) == (0, 1)

    async def test_a_closed_client_opens_again_when_it_is_asked(self, chat: ChatCompletions):
        await chat.complete(asking("good"))
        await chat.close()
        await chat.close()
        assert (await chat.complete(asking("good"))).text == GOOD

    async def test_concurrent_calls_are_limited(self, opened: Open, server: LlmServer):
        chat = opened(server_at(server.base_url), server_at(server.base_url, "other"), concurrency=3)
        asked = [
            chat.complete(asking(which=ModelChoice(server=name, model="waits"))) for name in ("default", "other") * 4
        ]
        answers = asyncio.gather(*asked)
        await server.until_asked(3)
        server.go.set()
        await answers
        assert (server.most_at_once, len(server.calls)) == (3, 8)

    async def test_a_cancelled_call_releases_its_slot(self, opened: Open, server: LlmServer):
        chat = opened(concurrency=1)
        stuck = asyncio.create_task(chat.complete(asking("hang")))
        await server.until_asked()
        stuck.cancel()
        await asyncio.wait([stuck])
        assert (await chat.complete(asking("good"))).text == GOOD
        assert not chat.breakers[0].open


class TestIdentity:
    def test_it_names_what_an_answer_depends_on(self, opened: Open):
        chat = opened(
            server_at("http://127.0.0.1:1/v1", model="m"),
            server_at("http://127.0.0.1:2/v1", "other", model="n"),
            temperature=0.5,
        )
        default, warmer = chat.identity(ModelChoice()), chat.identity(ModelChoice(temperature=1))
        assert default == {"server": "default", "address": "http://127.0.0.1:1/v1", "model": "m", "temperature": 0.5}
        assert warmer["temperature"] == 1
        assert chat.identity(ModelChoice(server="other"))["model"] == "n"
        assert chat.identity(ModelChoice(model="x"))["model"] == "x"
        assert KEY not in str(default)


class TestMetrics:
    async def shown(self, chat: ChatCompletions) -> dict[str, float]:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(chat.metrics)
        lines = generate_latest(registry).decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name.removeprefix("penstock_llm_"): float(number) for name, number in pairs}

    async def test_calls_are_counted_by_outcome(self, opened: Open):
        chat = opened(timeout=5)
        asked = ["good", "no-strict", "busy", "error", "bad-key", "too-long", "refusal", "length", "blank"]
        for model in asked:
            await asyncio.gather(chat.complete(asking(model)), return_exceptions=True)
        shown = await self.shown(chat)
        outcomes = {
            "answered": 2, "stepped_down": 1, "busy": 1, "away": 2, "refused": 1, "too_long": 1, "declined": 1,
            "cut_off": 1,
        }  # fmt: skip
        for outcome, number in outcomes.items():
            assert shown[f'calls_total{{outcome="{outcome}",server="default"}}'] == number
        assert shown['call_seconds_count{server="default"}'] == sum(outcomes.values()) == len(asked) + 1
        assert shown['call_seconds_sum{server="default"}'] > 0

    async def test_tokens_are_counted_even_for_an_unusable_answer(self, opened: Open, server: LlmServer):
        chat = opened(server_at(server.base_url, input_price=1e6, output_price=0))
        await chat.complete(asking("good", text="x" * 40))
        with pytest.raises(PenstockError):
            await chat.complete(asking("length", text="x" * 40))
        await chat.complete(asking("no-usage"))
        shown = await self.shown(chat)
        assert shown['tokens_total{kind="prompt",server="default"}'] == 22
        assert shown['tokens_total{kind="completion",server="default"}'] == 20
        assert shown['tokens_total{kind="cached",server="default"}'] == 10
        assert shown['cost_total{server="default"}'] == 22

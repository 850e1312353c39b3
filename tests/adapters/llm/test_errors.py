"""How failures of a model server are mapped to errors."""

from datetime import UTC, datetime

import pytest

from penstock.adapters.llm import ChatCompletions
from penstock.adapters.llm.errors import MAX_WORDS, read_error_response, wait_of
from penstock.documents.chat_model import (
    AnswerTruncated,
    ModelBusy,
    ModelCallRejected,
    ModelChoice,
    ModelDeclined,
    ModelNotConfigured,
    ModelUnavailable,
    PromptTooLong,
)
from penstock.kernel.circuit_breaker import CircuitBreakerOpen
from penstock.kernel.clock import ManualClock, SystemClock
from penstock.kernel.errors import PenstockError
from tests.adapters.llm.conftest import Open
from tests.adapters.llm.questions import KEY, OpenLimits, asking, server_at
from tests.fakes.llm_server import LlmServer
from tests.fakes.receivers import PlainSocket

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class TestKinds:
    @pytest.mark.parametrize(
        ("model", "kind", "words"),
        [
            ("bad-key", ModelCallRejected, r"\(401\): Incorrect API key"),
            ("no-balance", ModelCallRejected, r"\(402\): Insufficient Balance"),
            ("forbidden", ModelCallRejected, r"\(403\)"),
            ("no-such-model", ModelCallRejected, r"\(404\): The model does not exist"),
            ("bad-fields", ModelCallRejected, r"\(422\): max_tokens"),
            ("teapot", ModelCallRejected, r"\(418\)"),
            ("redirect", ModelCallRejected, r"\(307\): redirects are not followed"),
            ("no-quota", ModelCallRejected, r"\(429\): You exceeded"),
            ("no-system-role+no-json-schema", ModelCallRejected, r"\(400\): System role"),
            ("too-long", PromptTooLong, "8192 tokens"),
            ("too-large", PromptTooLong, "Too Large"),
            ("timeout", ModelUnavailable, "HTTP 408"),
            ("conflict", ModelUnavailable, "HTTP 409"),
            ("error", ModelUnavailable, "HTTP 500: The server had an error"),
            ("gateway", ModelUnavailable, "HTTP 502: Bad Gateway"),
            ("unavailable", ModelUnavailable, "HTTP 503: Loading model"),
            ("overloaded", ModelUnavailable, "HTTP 529"),
            ("error-in-200", ModelUnavailable, "HTTP 502: the backend fell over"),
            ("garbled", ModelUnavailable, "not JSON"),
            ("list-body", ModelUnavailable, "not an object"),
            ("no-choices", ModelUnavailable, "no choice"),
            ("huge", ModelUnavailable, "longer than 8388608 bytes"),
            ("cut", ModelUnavailable, "the connection broke"),
            ("hang-up", ModelUnavailable, "the connection broke"),
            ("blank", ModelUnavailable, "blank"),
            ("null", ModelUnavailable, "blank"),
            ("tool-call", ModelUnavailable, "blank"),
            ("only-reasoning", ModelUnavailable, "blank"),
            ("refusal", ModelDeclined, "I cannot help with that"),
            ("filtered", ModelDeclined, "filtered"),
            ("length", AnswerTruncated, "truncated"),
            ("length+blank", AnswerTruncated, "truncated"),
        ],
    )
    async def test_each_unusual_response_is_mapped_to_an_error(
        self, opened: Open, server: LlmServer, model: str, kind: type[PenstockError], words: str
    ):
        with pytest.raises(kind, match=words) as failed:
            await opened(response_mode="plain" if "system" not in model else "json_object").complete(asking(model))
        assert type(failed.value) is kind
        assert len(server.calls) == 1
        assert server.elsewhere == 0

    async def test_a_slow_answer_times_out(self, opened: Open):
        with pytest.raises(ModelUnavailable, match=r"within 0\.2 s"):
            await opened(timeout=0.2).complete(asking("hang"))

    async def test_a_closed_port_is_unavailable(self, opened: Open):
        async with LlmServer() as gone:
            url = gone.base_url
        with pytest.raises(ModelUnavailable, match="cannot connect"):
            await opened(server_at(url)).complete(asking())

    @pytest.mark.parametrize("says", [b"220 mail.example ESMTP\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 100_000])
    async def test_a_response_that_is_not_http_is_unavailable(self, opened: Open, says: bytes):
        async with PlainSocket(says) as odd:
            with pytest.raises(ModelUnavailable, match="not HTTP"):
                await opened(server_at(odd.url)).complete(asking())

    async def test_the_key_is_not_logged_with_a_response_that_is_not_http(
        self, opened: Open, caplog: pytest.LogCaptureFixture
    ):
        async with PlainSocket(b"220 mail.example ESMTP\r\n") as odd:
            with pytest.raises(ModelUnavailable):
                await opened(server_at(odd.url)).complete(asking())
        told = [record.getMessage() for record in caplog.records]
        assert any("not HTTP" in words for words in told)
        assert not any(KEY in words for words in told)

    async def test_a_server_without_tls_is_unavailable(self, opened: Open, server: LlmServer):
        with pytest.raises(ModelUnavailable, match="TLS"):
            await opened(server_at(server.base_url.replace("http:", "https:"))).complete(asking())

    async def test_an_unconfigured_server_or_model_is_an_error(self, opened: Open, server: LlmServer):
        nameless = opened(server_at(server.base_url, "fast", model=""))
        for which, shown in [
            (ModelChoice(), "configured."),
            (ModelChoice(server="slow"), "(slow)"),
            (ModelChoice(server="fast"), "(fast)"),
        ]:
            with pytest.raises(ModelNotConfigured) as asked:
                await nameless.complete(asking(which=which))
            with pytest.raises(ModelNotConfigured):
                nameless.identity(which)
            assert shown in str(asked.value)
        assert server.calls == []


class TestWaits:
    @pytest.mark.parametrize(
        ("retry_after", "seconds"), [("7", 7), (" 0 ", 0), ("1.5", 1.5), ("86400", 3600), ("soon", 5), ("-3", 5)]
    )
    async def test_retry_after_pauses_every_worker(
        self, chat: ChatCompletions, server: LlmServer, limits: OpenLimits, retry_after: str, seconds: float
    ):
        server.retry_after = retry_after
        with pytest.raises(ModelBusy) as busy:
            await chat.complete(asking("busy"))
        assert busy.value.wait_seconds == seconds
        assert limits.cooled == [("llm:default", seconds)]

    async def test_retry_after_may_be_a_date_or_a_duration(self, opened: Open):
        chat = opened(by=SystemClock())
        with pytest.raises(ModelBusy) as busy:
            await chat.complete(asking("busy-date"))
        assert 60 < busy.value.wait_seconds <= 120
        with pytest.raises(ModelBusy) as busy:
            await chat.complete(asking("busy-reset"))
        assert busy.value.wait_seconds == 360

    async def test_without_a_retry_after_the_default_wait_holds(self, chat: ChatCompletions):
        with pytest.raises(ModelBusy) as busy:
            await chat.complete(asking("busy-silent"))
        assert busy.value.wait_seconds == 5

    @pytest.mark.parametrize(
        ("headers", "seconds"),
        [
            ({}, None),
            ({"Retry-After": ""}, None),
            ({"Retry-After": "Thu, 01 Jan 2026 00:00:30 GMT"}, 30),
            ({"Retry-After": "Thu, 01 Jan 2026 00:00:30 -0000"}, 30),
            ({"Retry-After": "Wed, 31 Dec 2025 00:00:00 GMT"}, 0),
            ({"Retry-After": "Thu, 01 Jan 2099 00:00:00 GMT"}, 3600),
            ({"Retry-After": "Thu, 01 Jan 99999999 00:00:00 GMT"}, None),
            ({"Retry-After": "٧"}, None),
            ({"Retry-After-Ms": "1500", "Retry-After": "9"}, 1.5),
            ({"Retry-After": "9", "x-ratelimit-reset-requests": "1s"}, 9),
            ({"x-ratelimit-reset-requests": "1s"}, 1),
            ({"x-ratelimit-reset-requests": "120ms"}, 0.12),
            ({"x-ratelimit-reset-requests": "1h2m3.5s"}, 3600),
            ({"x-ratelimit-reset-requests": "2m3.5s"}, 123.5),
            ({"x-ratelimit-reset-requests": "17"}, 17),
            ({"x-ratelimit-reset-requests": "1 fortnight"}, None),
            ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"}, 360),
            (
                {
                    "x-ratelimit-reset-requests": "1s",
                    "x-ratelimit-remaining-requests": "0",
                    "x-ratelimit-reset-tokens": "6m0s",
                    "x-ratelimit-remaining-tokens": "900",
                },
                1,
            ),
        ],
    )
    def test_every_form_of_retry_after_is_parsed(self, headers: dict[str, str], seconds: float | None):
        assert wait_of(headers, now=NOW) == seconds


class TestMessages:
    @pytest.mark.parametrize("key", [KEY, "plain-and-unlike-a-key"])
    async def test_the_key_is_in_no_error(self, opened: Open, server: LlmServer, key: str):
        with pytest.raises(ModelCallRejected) as refused:
            await opened(server_at(server.base_url, api_key=key)).complete(asking("repeats-key"))
        assert server.calls[0].key == key
        assert "I do not like" in str(refused.value)
        assert key not in f"{refused.value} {refused.value.in_chinese()} {refused.value.values}"

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            (b'{"error": {"message": "no good", "type": "x"}}', "no good"),
            (b'{"error": "model not found"}', "model not found"),
            (b'{"object": "error", "message": "too hot"}', "too hot"),
            (b'{"detail": "Not Found"}', "Not Found"),
            (
                b'{"detail": [{"loc": ["body", "seed"], "msg": "must be positive", "input": {"schema": 1}}]}',
                "['body', 'seed']: must be positive",
            ),
            (b"plain\n  words", "plain words"),
            (b"<html><body>Bad</body></html>", "Bad Request"),
            (b"", "Bad Request"),
            (b"\xff\xfe", "\N{REPLACEMENT CHARACTER}" * 2),
            (b'{"error": {"message": 7}}', '{"error": {"message": 7}}'),
            (b"[" * 100_000, "[" * MAX_WORDS + "…"),
            (b"write to anna.meier@example.com", "write to a***@example.com"),
        ],
    )
    def test_messages_are_found_in_every_format_bounded_and_redacted(self, body: bytes, words: str):
        assert read_error_response(400, {}, body, key=KEY, now=NOW).words == words

    def test_a_key_is_redacted_before_truncation(self):
        body = ("x" * (MAX_WORDS - 5) + " " + "abcdefgh" * 4).encode()
        assert "abcd" not in read_error_response(400, {}, body, key="abcdefgh" * 4, now=NOW).words

    def test_echoes_of_the_question_are_not_the_reason(self):
        body = (
            b'{"detail": [{"loc": ["body", "seed"], "msg": "bad", "input": {"temperature": 1, "response_format": 1}}]}'
        )
        assert "temperature" not in read_error_response(422, {}, body, key="", now=NOW).text


class TestBreaker:
    async def test_the_breaker_opens_after_some_failures(self, opened: Open, server: LlmServer, clock: ManualClock):
        chat = opened(server_at(server.base_url), server_at(server.base_url, "other"))
        first, other = chat.breakers
        assert (first.name, other.name) == ("llm:default", "llm:other")
        for _ in range(3):
            with pytest.raises(ModelUnavailable):
                await chat.complete(asking("error"))
        assert (first.open, other.open, first.reason) == (True, False, "HTTP 500")
        with pytest.raises(PenstockError, match="not called for now") as rested:
            await chat.complete(asking("good"))
        assert rested.value.internal_outage
        assert len(server.calls) == 3
        await chat.complete(asking(which=ModelChoice(server="other", model="good")))
        clock.advance(seconds=5)
        await chat.complete(asking("good"))
        assert not first.open

    @pytest.mark.parametrize(("model", "costs"), [("unavailable", False), ("gateway", False), ("error", True)])
    async def test_a_failed_probe_of_an_open_breaker_costs_no_attempt_but_a_server_error_does(
        self, chat: ChatCompletions, server: LlmServer, clock: ManualClock, model: str, costs: bool
    ):
        for _ in range(3):
            with pytest.raises(ModelUnavailable):
                await chat.complete(asking(model))
        for _ in range(4):
            clock.advance(seconds=5)
            with pytest.raises(ModelUnavailable if costs else CircuitBreakerOpen) as looked:
                await chat.complete(asking(model))
            assert looked.value.internal_outage is not costs
        assert len(server.calls) == 7
        assert chat.breakers[0].open

    async def test_a_probe_of_a_closed_port_costs_no_attempt(self, opened: Open, clock: ManualClock):
        async with LlmServer() as gone:
            url = gone.base_url
        chat = opened(server_at(url))
        for _ in range(3):
            with pytest.raises(ModelUnavailable):
                await chat.complete(asking())
        clock.advance(seconds=5)
        with pytest.raises(CircuitBreakerOpen, match="cannot connect"):
            await chat.complete(asking())

    @pytest.mark.parametrize("model", ["busy", "bad-key", "too-long", "refusal", "length", "blank"])
    async def test_a_rejected_question_does_not_count_for_the_breaker(self, chat: ChatCompletions, model: str):
        for _ in range(4):
            with pytest.raises(PenstockError):
                await chat.complete(asking(model))
        assert not chat.breakers[0].open

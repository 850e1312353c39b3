"""`ChatCompletions`: the model port on any OpenAI-compatible chat completions server.

Every POST takes a rate limit token, including those that only discover what a server supports. Nothing is retried
here: transient errors are raised and the caller decides when to retry. A 429 pauses all workers for as long as the
server asks.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.adapters.llm.completions import Completion, read_completion
from penstock.adapters.llm.errors import LlmErrorResponse, read_error_response
from penstock.adapters.llm.http import LlmHttp
from penstock.adapters.llm.metrics import LlmMetrics
from penstock.adapters.llm.rate_limit import CallRateLimiter
from penstock.adapters.llm.response_modes import (
    capability_cache,
    default_capabilities,
    mode_of,
    rejects_schema,
    request_body,
)
from penstock.adapters.llm.servers import DEFAULT, ChatConfig, ModelServer
from penstock.documents.chat_model import (
    AnswerTruncated,
    ChatReply,
    ChatRequest,
    ModelBusy,
    ModelCallRejected,
    ModelChoice,
    ModelDeclined,
    ModelNotConfigured,
    ModelUnavailable,
    PromptTooLong,
)
from penstock.kernel.circuit_breaker import CircuitBreaker, CircuitBreakerOpen
from penstock.kernel.clock import Clock
from penstock.kernel.errors import PenstockError
from penstock.kernel.json_object import JsonObject
from penstock.kernel.rate_limits import RateLimits

OUTCOMES: dict[type[PenstockError], str] = {
    AnswerTruncated: "cut_off",
    ModelUnavailable: "away",
    ModelBusy: "busy",
    ModelDeclined: "declined",
    ModelCallRejected: "refused",
    PromptTooLong: "too_long",
}
ANSWERED, STEPPED_DOWN = "answered", "stepped_down"
HIGHEST_SUCCESS = 299


@dataclass(frozen=True, kw_only=True)
class _Endpoint:
    """A server with its rate limiter and circuit breaker."""

    server: ModelServer
    rate_limiter: CallRateLimiter
    breaker: CircuitBreaker


class ChatCompletions:
    """Calls the configured servers. Create it anywhere, use it in one event loop, and close it afterwards."""

    def __init__(self, servers: Sequence[ModelServer], config: ChatConfig, *, limits: RateLimits, clock: Clock) -> None:
        self.metrics = LlmMetrics()
        self._config = config
        self._clock = clock
        self._endpoints = {one.name: _endpoint(one, config, limits, clock) for one in servers}
        self._capabilities = capability_cache(clock)
        self._slots = asyncio.Semaphore(config.concurrency)
        self._http = LlmHttp(seconds=config.timeout)

    @property
    def breakers(self) -> list[CircuitBreaker]:
        """The circuit breakers, one per server."""
        return [endpoint.breaker for endpoint in self._endpoints.values()]

    def identity(self, which: ModelChoice) -> JsonObject:
        """What an answer depends on besides the request. The base URL counts: another server is another model."""
        endpoint, model = self._choose(which)
        given = which.temperature
        return {
            "server": endpoint.server.name,
            "address": endpoint.server.base_url,
            "model": model,
            "temperature": self._config.temperature if given is None else given,
        }

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Ask once; returns complete answers only."""
        endpoint, model = self._choose(request.which)
        address = endpoint.server.base_url
        cached = self._capabilities.find((address, model))
        known = capabilities = cached.value if cached else default_capabilities(self._config.response_mode)
        reusable = True
        while True:
            body = request_body(request, model, capabilities, self._config)
            outcome, seconds = await self._call(endpoint, body)
            if isinstance(outcome, Completion):
                break
            changed = capabilities.after(outcome, body)
            if changed is None:
                raise await self._refused(endpoint, outcome, seconds)
            self.metrics.count_call(endpoint.server.name, STEPPED_DOWN, seconds)
            capabilities, reusable = changed, reusable and not rejects_schema(outcome)
        if reusable and capabilities != known:  # only after a success: a call that fails in every mode proves nothing
            self._capabilities.put((address, model), capabilities)
        return self._reply(endpoint, model, body, outcome, seconds)

    async def close(self) -> None:
        """Close the HTTP session."""
        await self._http.close()

    def _choose(self, which: ModelChoice) -> tuple[_Endpoint, str]:
        name = which.server or DEFAULT
        endpoint = self._endpoints.get(name)
        if endpoint is None:
            raise ModelNotConfigured(which=f" ({name})" if which.server else "")
        model = which.model or endpoint.server.model
        if not model:
            raise ModelNotConfigured(which=f" ({name})")
        return endpoint, model

    async def _call(self, endpoint: _Endpoint, body: JsonObject) -> tuple[Completion | LlmErrorResponse, float]:
        """One POST. Raises if the server is unavailable, which the breaker counts; returns any other response."""
        async with endpoint.rate_limiter.acquire(self._slots):
            began, was_open = time.perf_counter(), endpoint.breaker.open
            try:
                # Inside the rate limiter: waiting there says nothing about the server and must not close its breaker.
                with endpoint.breaker.guard(ModelUnavailable, describe=_in_short):
                    outcome = await self._post(endpoint.server, body)
            except ModelUnavailable as error:
                self.metrics.count_call(endpoint.server.name, OUTCOMES[ModelUnavailable], time.perf_counter() - began)
                if was_open and error.values.get("unheard"):  # a probe by the open breaker, which uses up no attempt
                    raise CircuitBreakerOpen(name=endpoint.breaker.name, reason=_in_short(error)) from error
                raise
        return outcome, time.perf_counter() - began

    async def _post(self, server: ModelServer, body: JsonObject) -> Completion | LlmErrorResponse:
        response = await self._http.post(server, body)
        if response.status <= HIGHEST_SUCCESS:
            outcome = read_completion(response.body, key=server.api_key)
        else:
            now = self._clock.now()
            outcome = read_error_response(response.status, response.headers, response.body, key=server.api_key, now=now)
        if isinstance(outcome, LlmErrorResponse) and outcome.is_unavailable:
            raise outcome.error()
        return outcome

    async def _refused(self, endpoint: _Endpoint, response: LlmErrorResponse, seconds: float) -> PenstockError:
        """The error for a response that no other response mode would change."""
        error = response.error()
        if isinstance(error, ModelBusy):
            await endpoint.rate_limiter.pause(error.wait_seconds)
        self.metrics.count_call(endpoint.server.name, OUTCOMES[type(error)], seconds)
        return error

    def _reply(
        self, endpoint: _Endpoint, model: str, body: JsonObject, completion: Completion, seconds: float
    ) -> ChatReply:
        """The reply, if the completion is complete. Its tokens are counted either way."""
        server = endpoint.server
        cost = server.cost(completion.prompt_tokens, completion.completion_tokens)
        self.metrics.count_usage(server.name, completion, cost)
        try:
            text = completion.whole(key=server.api_key)
        except PenstockError as error:
            self.metrics.count_call(server.name, OUTCOMES[type(error)], seconds)
            raise
        self.metrics.count_call(server.name, ANSWERED, seconds)
        return ChatReply(
            text=text,
            model=completion.model or model,
            mode=mode_of(body),
            seconds=seconds,
            id=completion.id,
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
            cached_tokens=completion.cached_tokens,
            cost=cost,
        )


def _endpoint(server: ModelServer, config: ChatConfig, limits: RateLimits, clock: Clock) -> _Endpoint:
    name = f"llm:{server.name}"
    rate_limiter = CallRateLimiter(limits, clock, key=name, calls_per_second=config.calls_per_second)
    return _Endpoint(server=server, rate_limiter=rate_limiter, breaker=CircuitBreaker(name, clock))


def _in_short(error: Exception) -> str:
    """The reason that is safe to show: our own words, none of the server's."""
    return str(error.values["in_short"]) if isinstance(error, ModelUnavailable) else "no answer"

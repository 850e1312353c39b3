"""An OpenAI-compatible chat completions server over real HTTP; the model name selects its behaviour.

    async with LlmServer() as server:
        server.answers(lambda call: {"total": 12.5})    # the good answer: a value (sent as JSON), or a text as it is
        ...                                             # ask server.base_url for the model "good", "fenced", ...
        assert [call.mode for call in server.calls] == ["json_schema"]

`server.calls` are all calls in the order in which they came (`Call`: model, body, headers, key, mode, prompt, schema,
at in seconds), `server.most_at_once` is how many were under way together, `server.until_asked(n)` waits for n calls.
`server.retry_after` is what busy models say; models that wait do so until `server.go` is set.

A model is named by what it does; "+" joins names ("no-json-schema+fenced"), and "-once" lets a name hold for the first
call to that model only ("busy-once", "wrong-type-once+think"). They are followed in the order given. A name that is
not here is a 404, as `no-such-model`.

How the answer is written:
    good, fenced (in a code fence), prose (sentences around it), only-prose (no JSON), think (tags before it, with
    another object in them), open-think (only the closing tag), half-json (cut, yet it says stop), two-objects (the good
    one second), schema-echo, wrong-type (in the first field), missing-field (the first), extra-field, nulls (in every
    field), in-a-list, not-a-number (NaN in the first field)
What stands around it:
    length (cut, and says so), refusal, filtered, blank, null, tool-call, reasoning (beside the answer), only-reasoning,
    parts (content as a list of parts), no-usage, odd-usage, odd-types (fields of the wrong type), no-choices,
    error-in-200, garbled (HTML in a 200), list-body (JSON, but no object), huge (without an end)
Whether there is one:
    no-strict, no-json-schema, no-json-object, no-response-format, no-response-format-422, needs-json-word,
    no-temperature, no-max-tokens, no-system-role (400 each, naming the field), too-long (400 context_length_exceeded),
    too-large (413), bad-key (401), no-balance (402), forbidden (403), no-such-model (404), bad-fields (422),
    repeats-key (400 with our headers in it), repeats-schema (400 that names the schema, whatever the mode), bad-schema
    (400 that blames the schema), teapot (418), redirect (307 to another path), no-quota (429 for good), busy (429 with
    Retry-After), busy-date (Retry-After as a date two minutes ahead), busy-reset (429 with x-ratelimit-reset-requests:
    6m0s), busy-silent (429 and no word for how long), timeout (408), conflict (409), error (500), gateway (502 in
    HTML), unavailable (503), overloaded (529)
How it comes:
    waits (until server.go), hang (for ever), hang-up (no answer), cut (in the middle of the answer)
A call with "stream": true gets its good answer as server-sent events.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from aiohttp import web

from tests.fakes.llm_behaviours import (
    BEHAVIOURS,
    BODIES,
    GOOD,
    REFUSALS,
    WORDS,
    Body,
    Call,
    Refusal,
    as_text,
    busy,
    content_of,
)

SHUTDOWN_SECONDS = 0.05  # what still hangs then is cut off
PATIENCE_SECONDS = 20
MAX_BYTES = 64 * 1024 * 1024
ONCE = "-once"

Answers = Callable[[Call], Any]


class LlmServer:
    """The server; it listens on loopback inside the context."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.retry_after = "7"
        self.go = asyncio.Event()
        self.most_at_once = 0
        self.elsewhere = 0  # calls that followed a redirect
        self._answers: Answers = lambda call: GOOD
        self._asked: Counter[str] = Counter()
        self._at_once = 0
        self._came = asyncio.Condition()
        app = web.Application(client_max_size=MAX_BYTES)
        app.router.add_post("/v1/chat/completions", self._take)
        app.router.add_post("/elsewhere/chat/completions", self._take_elsewhere)
        self._runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_SECONDS, access_log=None)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def base_url(self) -> str:
        """The value for LLM_BASE_URL."""
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    def answers(self, answers: Answers) -> None:
        """Return only good answers from now on."""
        self._answers = answers

    async def until_asked(self, times: int = 1) -> None:
        """Wait until that many calls have arrived."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._came:
            await self._came.wait_for(lambda: len(self.calls) >= times)

    async def _take(self, request: web.Request) -> web.StreamResponse:
        call = Call(body=await request.json(), headers=request.headers, at=time.perf_counter())
        self._asked[call.model] += 1
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        async with self._came:
            self.calls.append(call)
            self._came.notify_all()
        try:
            return await self._respond(request, call)
        finally:
            self._at_once -= 1

    async def _take_elsewhere(self, request: web.Request) -> web.StreamResponse:
        self.elsewhere += 1
        return web.json_response({})

    def _ways(self, call: Call) -> list[str]:
        """The behaviours that apply to this call."""
        again = self._asked[call.model] > 1
        ways = [way.removesuffix(ONCE) for way in call.model.split("+") if not (again and way.endswith(ONCE))]
        return ways if BEHAVIOURS.issuperset(ways) else ["no-such-model"]

    async def _respond(self, request: web.Request, call: Call) -> web.StreamResponse:
        ways = self._ways(call)
        for way in ways:
            if refusal := self._refusal(way, call):
                return refusal.response()
        if "hang-up" in ways:
            assert request.transport is not None
            request.transport.abort()
        if "hang" in ways:
            await asyncio.Event().wait()
        if "waits" in ways:
            await self.go.wait()
        body = self._body(ways, call)
        if call.body.get("stream"):
            return await _stream(request, body)
        if "cut" in ways or "huge" in ways:
            return await _endless(request, body, cut="cut" in ways)
        return web.Response(text=as_text(body), content_type="application/json")

    def _refusal(self, way: str, call: Call) -> Refusal | None:
        if way == "busy":
            return busy(Retry_After=self.retry_after)(call)
        return REFUSALS[way](call) if way in REFUSALS else None

    def _body(self, ways: list[str], call: Call) -> Any:
        value = self._answers(call)
        for way in ways:
            value = WORDS[way](value) if way in WORDS else value
        text = as_text(value)
        body: Any = {
            "id": f"chatcmpl-{len(self.calls)}",
            "object": "chat.completion",
            "model": f"{call.model}-2026",
            "choices": [
                {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}},
            ],
            "usage": _usage(call.prompt, text),
        }
        for way in ways:
            body = BODIES[way](body) if way in BODIES else body
        return body


def _usage(prompt: str, text: str) -> dict[str, Any]:
    """A token per four characters, and half of the prompt cached."""
    asked, said = 1 + len(prompt) // 4, 1 + len(text) // 4
    details = {"cached_tokens": asked // 2}
    total = {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}
    return total | {"prompt_tokens_details": details}


async def _stream(request: web.Request, body: Body) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    chunk = {"id": body["id"], "object": "chat.completion.chunk", "model": body["model"]}
    for letter in content_of(body):
        line = json.dumps(chunk | {"choices": [{"index": 0, "delta": {"content": letter}}]})
        await response.write(f"data: {line}\n\n".encode())
    last = chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": body["usage"]}
    await response.write(f"data: {json.dumps(last)}\n\ndata: [DONE]\n\n".encode())
    return response


async def _endless(request: web.Request, body: Any, *, cut: bool) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(as_text(body).encode()[:-20])
    with suppress(ConnectionError):  # the other end has had enough
        while not cut:
            await response.write(b"z" * 65536)
    assert request.transport is not None
    request.transport.abort()
    return response

"""`ChatCompletions`: the port to models, over any server that speaks OpenAI's chat completions.

Every POST takes a token of the gate, also one that only finds out what a server takes. Nothing is tried again here:
what may pass is raised, and whoever asked decides when. A 429 holds up all workers for as long as the server asks.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.adapters.llm.answers import Said, read_answer
from penstock.adapters.llm.gate import Gate
from penstock.adapters.llm.ladder import Memory, blames_schema, body_of, mode_of
from penstock.adapters.llm.meters import LlmMeters
from penstock.adapters.llm.servers import DEFAULT, Server, Terms
from penstock.adapters.llm.troubles import Trouble, read_trouble
from penstock.adapters.llm.wire import Wire
from penstock.documents.chat_model import (
    AnswerCutOff,
    ModelAway,
    ModelBusy,
    ModelDeclined,
    ModelNotSet,
    ModelRefusedCall,
    Question,
    QuestionTooLong,
    Reply,
    Which,
)
from penstock.kernel.circuit_breaker import CircuitBreaker, CircuitBreakerOpen
from penstock.kernel.clock import Clock
from penstock.kernel.errors import PenstockError
from penstock.kernel.json_object import JsonObject
from penstock.kernel.rate_limits import RateLimits

OUTCOMES: dict[type[PenstockError], str] = {
    AnswerCutOff: "cut_off",
    ModelAway: "away",
    ModelBusy: "busy",
    ModelDeclined: "declined",
    ModelRefusedCall: "refused",
    QuestionTooLong: "too_long",
}
ANSWERED, STEPPED_DOWN = "answered", "stepped_down"
HIGHEST_SUCCESS = 299


@dataclass(frozen=True, kw_only=True)
class _Door:
    """One server, and what stands before it."""

    server: Server
    gate: Gate
    breaker: CircuitBreaker


@dataclass(frozen=True, kw_only=True)
class _Heard:
    """What one call brought, and how long it took."""

    what: Said | Trouble
    seconds: float


class ChatCompletions:
    """Asks the servers of an installation. It may be made anywhere and is used in one loop; close it afterwards."""

    def __init__(self, servers: Sequence[Server], terms: Terms, *, limits: RateLimits, clock: Clock) -> None:
        self.meters = LlmMeters()
        self._terms = terms
        self._clock = clock
        self._doors = {one.name: _door(one, terms, limits, clock) for one in servers}
        self._memory = Memory(terms.response_mode)
        self._places = asyncio.Semaphore(terms.concurrency)
        self._wire = Wire(seconds=terms.timeout)

    @property
    def breakers(self) -> list[CircuitBreaker]:
        """One for each server."""
        return [door.breaker for door in self._doors.values()]

    def identity(self, which: Which) -> JsonObject:
        """What an answer depends on beside the question. The address is a part: behind another stands another model."""
        door, model = self._choose(which)
        given = which.temperature
        return {
            "server": door.server.name,
            "address": door.server.base_url,
            "model": model,
            "temperature": self._terms.temperature if given is None else given,
        }

    async def ask(self, question: Question) -> Reply:
        """Ask once; whole answers only."""
        door, model = self._choose(question.which)
        address = door.server.base_url
        known = habits = self._memory.recall(address, model, now=self._clock.now())
        teaches = True
        while True:
            body = body_of(question, model, habits, self._terms)
            heard = await self._call(door, body)
            if isinstance(heard.what, Said):
                break
            changed = habits.after(heard.what, body)
            if changed is None:
                raise await self._refused(door, heard.what, heard.seconds)
            self.meters.count_call(door.server.name, STEPPED_DOWN, heard.seconds)
            habits, teaches = changed, teaches and not blames_schema(heard.what)
        if teaches and habits != known:  # only now: a call that fails in every way says nothing about ways
            self._memory.keep(address, model, habits, now=self._clock.now())
        return self._reply(door, model, body, heard.what, heard.seconds)

    async def close(self) -> None:
        """Close what is open."""
        await self._wire.close()

    def _choose(self, which: Which) -> tuple[_Door, str]:
        name = which.server or DEFAULT
        door = self._doors.get(name)
        if door is None:
            raise ModelNotSet(which=f" ({name})" if which.server else "")
        model = which.model or door.server.model
        if not model:
            raise ModelNotSet(which=f" ({name})")
        return door, model

    async def _call(self, door: _Door, body: JsonObject) -> _Heard:
        """One POST. That the server is away is raised, and what the breaker counts; all else it says is returned."""
        async with door.gate.passing(self._places):
            began, was_open = time.perf_counter(), door.breaker.open
            try:
                # Inside the gate: waiting there says nothing about the server, and must not close its breaker.
                with door.breaker.guard(ModelAway, describe=_in_short):
                    what = await self._post(door.server, body)
            except ModelAway as error:
                self.meters.count_call(door.server.name, OUTCOMES[ModelAway], time.perf_counter() - began)
                if was_open and error.values.get("unheard"):  # it went to see for all, and that costs no attempt
                    raise CircuitBreakerOpen(name=door.breaker.name, reason=_in_short(error)) from error
                raise
        return _Heard(what=what, seconds=time.perf_counter() - began)

    async def _post(self, server: Server, body: JsonObject) -> Said | Trouble:
        arrived = await self._wire.post(server, body)
        if arrived.status <= HIGHEST_SUCCESS:
            what = read_answer(arrived.body, key=server.api_key)
        else:
            now = self._clock.now()
            what = read_trouble(arrived.status, arrived.headers, arrived.body, key=server.api_key, now=now)
        if isinstance(what, Trouble) and what.is_away:
            raise what.error()
        return what

    async def _refused(self, door: _Door, trouble: Trouble, seconds: float) -> PenstockError:
        """The error of a refusal that no other way of asking would help."""
        error = trouble.error()
        if isinstance(error, ModelBusy):
            await door.gate.cool(error.wait_seconds)
        self.meters.count_call(door.server.name, OUTCOMES[type(error)], seconds)
        return error

    def _reply(self, door: _Door, model: str, body: JsonObject, said: Said, seconds: float) -> Reply:
        """What was said, if it is whole. It was paid for either way."""
        server = door.server
        cost = server.cost(said.prompt_tokens, said.completion_tokens)
        self.meters.count_paid(server.name, said, cost)
        try:
            text = said.whole(key=server.api_key)
        except PenstockError as error:
            self.meters.count_call(server.name, OUTCOMES[type(error)], seconds)
            raise
        self.meters.count_call(server.name, ANSWERED, seconds)
        return Reply(
            text=text,
            model=said.model or model,
            mode=mode_of(body),
            seconds=seconds,
            id=said.id,
            prompt_tokens=said.prompt_tokens,
            completion_tokens=said.completion_tokens,
            cached_tokens=said.cached_tokens,
            cost=cost,
        )


def _door(server: Server, terms: Terms, limits: RateLimits, clock: Clock) -> _Door:
    name = f"llm:{server.name}"
    gate = Gate(limits, clock, key=name, calls_per_second=terms.calls_per_second)
    return _Door(server=server, gate=gate, breaker=CircuitBreaker(name, clock))


def _in_short(error: Exception) -> str:
    """What everybody may see of a failure: words of ours, and none of the server's."""
    return str(error.values["in_short"]) if isinstance(error, ModelAway) else "it does not answer"

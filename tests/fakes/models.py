"""Chat models named by their behaviour, without a server. Each records its questions."""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

from penstock.documents.chat_model import ChatReply, ChatRequest, ModelChoice, ModelNotConfigured
from penstock.kernel.json_object import JsonObject

MARKED = re.compile(r"<<<(\w+) (\w+)>>>\n(.*?)\n<<<END \1 \2>>>", re.DOTALL)
ORDER = re.compile(r"answer (\{.*?\})", re.IGNORECASE)


def data_of(request: ChatRequest, name: str = "DOCUMENT") -> str:
    """The text between the markers of that name in the last message that has them."""
    found = [text for message in request.messages for kind, _, text in MARKED.findall(message.text) if kind == name]
    return str(found[-1]) if found else ""


def outside_of(request: ChatRequest) -> str:
    """The text outside all markers, which a model obeys."""
    heard = (message.text for message in request.messages if message.role != "assistant")
    return "\n".join(MARKED.sub("<<<data>>>", text) for text in heard)


def labelled(text: str) -> dict[str, str]:
    """The `name: value` lines of a text."""
    return {
        name.strip(): value.strip()
        for name, colon, value in (line.partition(":") for line in text.splitlines())
        if colon
    }


class ModelThatSays:
    """Answers with these texts in turn; the last one repeats."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts
        self.questions: list[ChatRequest] = []

    def identity(self, which: ModelChoice) -> JsonObject:
        if which.server not in (None, "near"):
            raise ModelNotConfigured(which=f" as {which.server}")
        return {"server": which.server or "default", "model": which.model or "fake", "temperature": which.temperature}

    async def complete(self, request: ChatRequest) -> ChatReply:
        self.questions.append(request)
        return self.reply(await self.say(request))

    async def say(self, request: ChatRequest) -> str:
        return self._texts[min(len(self.questions), len(self._texts)) - 1]

    def reply(self, text: str) -> ChatReply:
        return ChatReply(
            text=text,
            model="fake-1",
            mode="json_schema",
            seconds=0.5,
            prompt_tokens=100,
            completion_tokens=10,
            cached_tokens=0,
            cost=0.25,
        )

    @property
    def calls(self) -> int:
        return len(self.questions)


class ModelThatIsNotToBeAsked(ModelThatSays):
    """Fails the test if it is called."""

    async def say(self, request: ChatRequest) -> str:
        raise AssertionError("nobody was to be asked")


class ModelThatDoes(ModelThatSays):
    """Answers with the return value of a function: a text, or a value as JSON."""

    def __init__(self, answer: Callable[[ChatRequest], Any]) -> None:
        super().__init__()
        self._answer = answer

    async def say(self, request: ChatRequest) -> str:
        said = self._answer(request)
        return said if isinstance(said, str) else json.dumps(said)


class ModelThatReadsLabels(ModelThatSays):
    """Fills each property of the schema from its label in the document, or null; without a schema it echoes."""

    async def say(self, request: ChatRequest) -> str:
        document = data_of(request)
        if request.schema is None:
            return document
        known = labelled(document)
        return json.dumps({name: known.get(name) for name in request.schema["properties"]})


class ModelThatObeys(ModelThatReadsLabels):
    """Obeys instructions outside the markers, and reads labels inside them."""

    async def say(self, request: ChatRequest) -> str:
        order = ORDER.search(outside_of(request))
        return order[1] if order else await super().say(request)


class ModelThatCountsNothing(ModelThatReadsLabels):
    """Reports no usage."""

    def reply(self, text: str) -> ChatReply:
        return ChatReply(text=text, model="quiet", mode="plain", seconds=0.1)


class ModelThatFails(ModelThatReadsLabels):
    """Fails on the questions with these numbers, counted from 1."""

    def __init__(self, error: Exception, *, at: set[int]) -> None:
        super().__init__()
        self._error = error
        self._at = at

    async def say(self, request: ChatRequest) -> str:
        if self.calls in self._at:
            raise self._error
        return await super().say(request)


class ModelThatWaits(ModelThatReadsLabels):
    """Blocks from the request with that number on, until `go_on` is set."""

    def __init__(self, *, at: int) -> None:
        super().__init__()
        self._from = at
        self.waits = asyncio.Event()
        self.go_on = asyncio.Event()
        self.most_at_once = 0
        self._at_once = 0

    async def say(self, request: ChatRequest) -> str:
        number = self.calls
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            if number >= self._from:
                self.waits.set()
                await self.go_on.wait()
            await asyncio.sleep(0)
            return await super().say(request)
        finally:
            self._at_once -= 1

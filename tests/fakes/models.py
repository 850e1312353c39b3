"""Models that do what their names say, without any server. Each keeps the questions that it was asked."""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

from penstock.documents.chat_model import ChatReply, ChatRequest, ModelChoice, ModelNotConfigured
from penstock.kernel.json_object import JsonObject

MARKED = re.compile(r"<<<(\w+) (\w+)>>>\n(.*?)\n<<<END \1 \2>>>", re.DOTALL)
ORDER = re.compile(r"answer (\{.*?\})", re.IGNORECASE)


def data_of(question: ChatRequest, name: str = "DOCUMENT") -> str:
    """What stands between the marks of that name in the last message that has them."""
    found = [text for message in question.messages for kind, _, text in MARKED.findall(message.text) if kind == name]
    return str(found[-1]) if found else ""


def outside_of(question: ChatRequest) -> str:
    """What others say to a model outside of all marks, which is what it obeys."""
    heard = (message.text for message in question.messages if message.role != "assistant")
    return "\n".join(MARKED.sub("<<<data>>>", text) for text in heard)


def labelled(text: str) -> dict[str, str]:
    """The lines of a text that say `name: value`."""
    return {
        name.strip(): value.strip()
        for name, colon, value in (line.partition(":") for line in text.splitlines())
        if colon
    }


class ModelThatSays:
    """Says these texts, one for each question, and the last one again and again."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts
        self.questions: list[ChatRequest] = []

    def identity(self, which: ModelChoice) -> JsonObject:
        if which.server not in (None, "near"):
            raise ModelNotConfigured(which=f" as {which.server}")
        return {"server": which.server or "default", "model": which.model or "fake", "temperature": which.temperature}

    async def ask(self, question: ChatRequest) -> ChatReply:
        self.questions.append(question)
        return self.reply(await self.say(question))

    async def say(self, question: ChatRequest) -> str:
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
    """For what must cost nothing."""

    async def say(self, question: ChatRequest) -> str:
        raise AssertionError("nobody was to be asked")


class ModelThatDoes(ModelThatSays):
    """Says what a function makes of the question: a text, or a value that is said as JSON."""

    def __init__(self, answer: Callable[[ChatRequest], Any]) -> None:
        super().__init__()
        self._answer = answer

    async def say(self, question: ChatRequest) -> str:
        said = self._answer(question)
        return said if isinstance(said, str) else json.dumps(said)


class ModelThatReadsLabels(ModelThatSays):
    """Gives each property of the schema the value behind its name in the document, or null; prose is the document."""

    async def say(self, question: ChatRequest) -> str:
        document = data_of(question)
        if question.schema is None:
            return document
        known = labelled(document)
        return json.dumps({name: known.get(name) for name in question.schema["properties"]})


class ModelThatObeys(ModelThatReadsLabels):
    """Does what it is told outside of the marks, and reads labels inside of them."""

    async def say(self, question: ChatRequest) -> str:
        order = ORDER.search(outside_of(question))
        return order[1] if order else await super().say(question)


class ModelThatCountsNothing(ModelThatReadsLabels):
    """Does not tell what it used."""

    def reply(self, text: str) -> ChatReply:
        return ChatReply(text=text, model="quiet", mode="plain", seconds=0.1)


class ModelThatFails(ModelThatReadsLabels):
    """Fails at the questions of these numbers, from 1, and answers the others."""

    def __init__(self, error: Exception, *, at: set[int]) -> None:
        super().__init__()
        self._error = error
        self._at = at

    async def say(self, question: ChatRequest) -> str:
        if self.calls in self._at:
            raise self._error
        return await super().say(question)


class ModelThatWaits(ModelThatReadsLabels):
    """Stops at the question of that number, and at all after it, until it is told to go on."""

    def __init__(self, *, at: int) -> None:
        super().__init__()
        self._from = at
        self.waits = asyncio.Event()
        self.go_on = asyncio.Event()
        self.most_at_once = 0
        self._at_once = 0

    async def say(self, question: ChatRequest) -> str:
        number = self.calls
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            if number >= self._from:
                self.waits.set()
                await self.go_on.wait()
            await asyncio.sleep(0)
            return await super().say(question)
        finally:
            self._at_once -= 1

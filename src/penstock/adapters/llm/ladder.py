"""How a question is put to a server: as firmly as it takes, and without the fields that it does not take.

The firmest way comes first. A server that refuses it by name is asked in the next way, and what it took is remembered
for this server and model: for an hour, so that a server that has learned more is found out.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from penstock.adapters.llm.servers import FirstMode, Terms
from penstock.adapters.llm.troubles import Trouble
from penstock.documents.chat_model import Message, Mode, Question
from penstock.kernel.json_object import JsonObject

LADDER: tuple[Mode, ...] = ("json_schema_strict", "json_schema", "json_object", "plain")
FORMAT_WORDS = ("response_format", "json_schema", "json_object", "schema")
SCHEMA_BLAMED = (
    "invalid schema",
    "invalid_json_schema",
    "json schema error",  # llama.cpp, and the next two of its older ones
    "schema conversion failed",
    "unrecognized schema",
    "features not supported by",  # vLLM
)
SCHEMA_NAME = "answer"
JSON_DEMAND = "Answer with one JSON object and nothing else."
MOST_REMEMBERED = 1000
REMEMBERED = timedelta(hours=1)

TokensField = Literal["max_tokens", "max_completion_tokens"]


@dataclass(frozen=True, kw_only=True)
class Habits:
    """What a model of a server takes, as far as it is known."""

    mode: Mode = LADDER[0]
    takes_temperature: bool = True
    tokens_field: TokensField = "max_tokens"

    def mode_for(self, question: Question) -> Mode:
        """The firmest mode for this question."""
        if question.schema is None:
            return "plain"
        if self.mode == "json_schema_strict" and question.strict_schema is None:
            return "json_schema"
        return self.mode

    def after(self, trouble: Trouble, body: JsonObject) -> "Habits | None":
        """What to ask with after this refusal of this body; none when nothing is left to be changed.

        Each change can be made once, so asking comes to an end.
        """
        if not trouble.is_about_the_question:
            return None
        named = _named(trouble)
        if "temperature" in body and "temperature" in named:
            return replace(self, takes_temperature=False)
        if "max_tokens" in body and "max_completion_tokens" in trouble.text:
            return replace(self, tokens_field="max_completion_tokens")
        if "response_format" in body and any(word in named for word in FORMAT_WORDS):
            return replace(self, mode=LADDER[LADDER.index(mode_of(body)) + 1])
        return None


def _named(trouble: Trouble) -> str:
    """Where a refusal names what it is about: its own field for that, if it says something that we know."""
    known = any(word in trouble.param for word in ("temperature", *FORMAT_WORDS))
    return trouble.param if known else trouble.text


def blames_schema(trouble: Trouble) -> bool:
    """Whether it was this one schema that a server did not take: with another one it may do better."""
    return any(words in trouble.text for words in SCHEMA_BLAMED)


class Memory:
    """What is known of the models of servers; bounded, and forgotten after a while."""

    def __init__(self, first: FirstMode) -> None:
        self._first = Habits(mode=LADDER[0] if first == "auto" else first)
        self._known: dict[tuple[str, str], tuple[Habits, datetime]] = {}

    def recall(self, base_url: str, model: str, *, now: datetime) -> Habits:
        """What is known, or how everyone is asked at first."""
        habits, until = self._known.get((base_url, model), (self._first, now))
        return habits if now < until else self._first

    def keep(self, base_url: str, model: str, habits: Habits, *, now: datetime) -> None:
        """Remember what a server took."""
        self._known.pop((base_url, model), None)
        while len(self._known) >= MOST_REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[base_url, model] = (habits, now + REMEMBERED)


def body_of(question: Question, model: str, habits: Habits, terms: Terms) -> JsonObject:
    """The body of a call."""
    mode = habits.mode_for(question)
    asked = _with_json_named(question.messages) if mode == "json_object" else question.messages
    body: JsonObject = {"model": model, "messages": [{"role": turn.role, "content": turn.text} for turn in asked]}
    if habits.takes_temperature:
        given = question.which.temperature
        body["temperature"] = terms.temperature if given is None else given
    if terms.max_tokens:
        body[habits.tokens_field] = terms.max_tokens
    if mode == "json_object":
        body["response_format"] = {"type": "json_object"}
    elif mode != "plain":
        strict = mode == "json_schema_strict"
        schema = {
            "name": SCHEMA_NAME,
            "strict": strict,
            "schema": question.strict_schema if strict else question.schema,
        }
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def mode_of(body: JsonObject) -> Mode:
    """The mode in which a body asks."""
    wanted = body.get("response_format", {"type": "plain"})
    if wanted["type"] == "json_schema":
        return "json_schema_strict" if wanted["json_schema"]["strict"] else "json_schema"
    return "json_object" if wanted["type"] == "json_object" else "plain"


def _with_json_named(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The same, with the word JSON in it: several servers refuse this mode, or never end, without it.

    It joins the first system message, since some servers take only one, and only at the beginning.
    """
    if any("json" in message.text.lower() for message in messages):
        return messages
    if messages and messages[0].role == "system":
        return (replace(messages[0], text=f"{messages[0].text}\n\n{JSON_DEMAND}"), *messages[1:])
    return (Message(role="system", text=JSON_DEMAND), *messages)

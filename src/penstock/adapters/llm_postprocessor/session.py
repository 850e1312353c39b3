"""The model calls for one document: questions, repair rounds and usage.

Each reply is stored as a checkpoint in the stage's folder, under the hash of its question, before it is examined. So a
worker that dies repeats only the calls in flight. Questions depend on nothing but the document, the rule and the
settings: the next worker asks the same ones and finds the replies.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from penstock.adapters.llm_postprocessor.validation import AnswerChecker
from penstock.documents.chat_model import ChatMessage, ChatModel, ChatReply, ChatRequest, ModelChoice
from penstock.documents.extract.errors import ModelRuleUnusable, ResultNotValid
from penstock.documents.extract.llm.json_candidates import strip_reasoning
from penstock.documents.extract.llm.prompts import retry_prompt
from penstock.documents.extract.llm.responses import ParsedResponse, ResponseProblem
from penstock.documents.extract.llm.schema_variants import strict_schema
from penstock.documents.ocr.provider import StageContext
from penstock.kernel.blobs import Blobs
from penstock.kernel.json_object import JsonObject
from penstock.kernel.stages.artifacts import Artifacts

REPLIES = "replies/"
MAX_SCHEMA_BYTES = 100_000  # a sandboxed call takes 128 KiB of arguments
SHOWN_PROBLEMS = 5  # in an error


@dataclass(frozen=True, kw_only=True)
class TargetSchema:
    """The JSON Schema of an answer in all forms that are needed."""

    schema: JsonObject
    schema_json: bytes
    strict: JsonObject | None

    @classmethod
    def of(cls, schema: JsonObject | None) -> "TargetSchema":
        """The forms of a schema; `ModelRuleUnusable` if it is missing or too large."""
        if not schema:
            raise ModelRuleUnusable(reason="it has no json_schema")
        try:
            schema_json = msgspec.json.encode(schema)
            strict = strict_schema(schema)
        except RecursionError as error:
            raise ModelRuleUnusable(reason="its json_schema is nested too deeply") from error
        if len(schema_json) > MAX_SCHEMA_BYTES:
            raise ModelRuleUnusable(reason=f"its json_schema is longer than {MAX_SCHEMA_BYTES} bytes")
        return cls(schema=schema, schema_json=schema_json, strict=strict)


@dataclass
class ModelSession:
    """The model calls for one document. `filename` is for errors only, no model sees it."""

    filename: str
    model: ChatModel
    which: ModelChoice
    blobs: Blobs
    checker: AnswerChecker
    context: StageContext
    repair_rounds: int
    replies: list[ChatReply] = field(default_factory=list)
    repairs: int = 0
    repaired: int = 0
    done: int = 0
    steps: int = 1

    async def plan(self, steps: int) -> None:
        """Set the number of progress steps."""
        self.steps = steps
        await self.context.progress(self.done, self.steps)

    async def step(self) -> None:
        """Report that one step is done."""
        self.done += 1
        await self.context.progress(self.done, self.steps)

    async def value(
        self, messages: Sequence[ChatMessage], target: TargetSchema, *, rounds: int | None = None
    ) -> JsonObject:
        """A value that satisfies the schema, or `ResultNotValid` after `rounds` repairs."""
        max_repairs = self.repair_rounds if rounds is None else rounds
        prompt, turn = tuple(messages), 0
        while True:
            reply = await self._request(prompt, target, turn)
            verdict = await self.check(reply.text, target)
            if verdict.is_valid:
                return self.accept(verdict)
            if turn == max_repairs:
                raise self.failure(verdict.problems)
            prompt, turn = retry_prompt(messages, reply.text, verdict.problems), turn + 1
            self.repairs += 1

    async def text(self, messages: Sequence[ChatMessage]) -> str:
        """A free-text answer. If it contains only reasoning, ask again: the chunk would be lost."""
        for turn in range(self.repair_rounds + 1):
            self.repairs += turn > 0
            text = strip_reasoning((await self._request(messages, turn=turn)).text).strip()
            if text:
                return text
        raise self.failure([ResponseProblem("", "the answer contains only reasoning")])

    async def check(self, answer: str, target: TargetSchema) -> ParsedResponse:
        """Validate an answer. An unusable schema is not the model's fault and raises."""
        verdict = await self.checker.validate(self.filename, answer, target.schema_json)
        if verdict.schema_error is not None:
            raise ModelRuleUnusable(reason=f"its json_schema cannot be used ({verdict.schema_error})")
        return verdict

    async def check_value(self, value: JsonObject, target: TargetSchema) -> ParsedResponse:
        """Validate a value."""
        return await self.check(msgspec.json.encode(value).decode(), target)

    def accept(self, verdict: ParsedResponse) -> JsonObject:
        """The value of a valid verdict."""
        self.repaired += verdict.repaired
        value: JsonObject = verdict.value
        return value

    def failure(self, problems: Sequence[ResponseProblem]) -> ResultNotValid:
        """The error for an answer that is still invalid."""
        shown = "; ".join(f"{problem.pointer or '/'}: {problem.message}" for problem in problems[:SHOWN_PROBLEMS])
        more = len(problems) - SHOWN_PROBLEMS
        return ResultNotValid(repairs=self.repairs, problems=f"{shown}; and {more} more" if more > 0 else shown)

    async def _request(
        self, messages: Sequence[ChatMessage], target: TargetSchema | None = None, turn: int = 0
    ) -> ChatReply:
        request = ChatRequest(
            messages=tuple(messages),
            which=self.which,
            schema=target.schema if target else None,
            strict_schema=target.strict if target else None,
        )
        await self.context.progress(self.done, self.steps)  # a heartbeat before and after the call
        replies, name = Artifacts(self.blobs, self.context.folder + REPLIES), f"{self._fingerprint(request, turn)}.json"
        reply = await replies.find(name, ChatReply)
        if reply is None:
            reply = await self.model.complete(request)
            await replies.commit(name, reply)
        self.replies.append(reply)
        await self.context.progress(self.done, self.steps)
        return reply

    def _fingerprint(self, request: ChatRequest, turn: int) -> str:
        """Includes the turn: a model that repeats its answer is sent the same again and may answer differently."""
        content = msgspec.json.encode((self.model.identity(self.which), request, turn), order="sorted")
        return hashlib.sha256(content).hexdigest()

    def usage(self, strategy: str) -> JsonObject:
        """Usage for this document, including calls of crashed workers. Null where the server reports nothing."""
        replies = self.replies
        return {
            "model": replies[-1].model if replies else None,
            "server": self.model.identity(self.which).get("server"),
            "calls": len(replies),
            "prompt_tokens": _sum([reply.prompt_tokens for reply in replies]),
            "completion_tokens": _sum([reply.completion_tokens for reply in replies]),
            "cached_tokens": _sum([reply.cached_tokens for reply in replies]),
            "seconds": round(sum(reply.seconds for reply in replies), 3),
            "cost": _sum([reply.cost for reply in replies]),
            "response_mode": replies[-1].mode if replies else None,
            "repairs": self.repairs,
            "strategy": strategy,
        }


def _sum(notes: Sequence[int | float | None]) -> int | float | None:
    known = [each for each in notes if each is not None]
    return sum(known) if len(known) == len(notes) else None

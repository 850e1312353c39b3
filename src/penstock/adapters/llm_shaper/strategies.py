"""The three ways to ask about a document.

`direct-json` asks once. `chunked-extract` asks what each chunk says, side by side, and merges; what was merged must
satisfy the schema, and may be mended in one more question. `chunked-summarize` has each chunk summed up towards the
schema, and asks once about the summaries.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from penstock.adapters.llm_shaper.asker import Asker, Wanted
from penstock.documents.chat_model import QuestionTooLong
from penstock.documents.extract.llm import prompts
from penstock.documents.extract.llm.chunks import Chunk
from penstock.documents.extract.llm.merge import MergedResult, PartialResult, merge
from penstock.documents.extract.llm.schema_variants import relaxed_schema
from penstock.kernel.json_object import JsonObject
from penstock.kernel.retry import worth_retrying

DIRECT = "direct-json"
SUMMARIZE = "chunked-summarize"
EXTRACT = "chunked-extract"

LEAST_SUMMARY = 500  # characters; less would lose what is asked for
MOST_OVER = 2  # times what was asked for; models count badly, and some repeat a chunk instead of summing it up
MOST_TO_MEND = 500_000  # bytes; hardly a model takes more in

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class AskingTerms:
    """What is set about asking."""

    threshold_characters: int = 30_000  # longer documents are asked about in chunks
    chunk_characters: int = 12_000
    most_chunks: int = 50
    chunk_strategy: str = SUMMARIZE
    repair_rounds: int = 2
    side_by_side: int = 4  # chunks of one document; the model itself bounds the calls of the process


@dataclass(frozen=True, kw_only=True)
class Matter:
    """What is asked about: a document in chunks, what is wanted of it, and on which terms."""

    chunks: Sequence[Chunk]
    wanted: Wanted
    system_prompt: str | None
    terms: AskingTerms


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A value that satisfies the schema, and what else is to be told."""

    value: JsonObject
    notes: JsonObject = field(default_factory=dict)


async def ask_directly(asker: Asker, matter: Matter) -> Outcome:
    """One question about the whole document."""
    await asker.plan(2)
    return await _about(asker, matter, _together(matter.chunks, "".join(chunk.text for chunk in matter.chunks)))


async def summarize(asker: Asker, matter: Matter) -> Outcome:
    """A question about each chunk for prose, and one about the prose."""
    await asker.plan(len(matter.chunks) + 2)
    most = max(LEAST_SUMMARY, matter.terms.threshold_characters // len(matter.chunks))

    async def summed_up(chunk: Chunk) -> str:
        said = await asker.prose(
            prompts.summary_prompt(matter.wanted.schema, chunk, max_characters=most, system_prompt=matter.system_prompt)
        )
        await asker.step()
        return f"<!-- pages {chunk.first_page} to {chunk.last_page} -->\n\n{said}\n\n"

    summaries = "".join(await side_by_side(summed_up, matter.chunks, most=matter.terms.side_by_side))
    longest = MOST_OVER * most * len(matter.chunks)
    if len(summaries) > longest:  # some servers cut what they cannot take in, and do not say so
        reason = f"its summaries are {len(summaries)} characters, over {longest}; chunked-extract needs none"
        raise QuestionTooLong(reason=reason)
    return await _about(asker, matter, _together(matter.chunks, summaries))


async def extract(asker: Asker, matter: Matter) -> Outcome:
    """A question about each chunk for what it says, merged."""
    await asker.plan(len(matter.chunks) + 2)
    loose = await asyncio.to_thread(lambda: Wanted.by(relaxed_schema(matter.wanted.schema)))

    async def taken_out(chunk: Chunk) -> PartialResult:
        question = prompts.partial_extraction_prompt(loose.schema, chunk, system_prompt=matter.system_prompt)
        value = await asker.value(question, loose)
        await asker.step()
        return PartialResult(value=value, pages=chunk.pages)

    parts = await side_by_side(taken_out, matter.chunks, most=matter.terms.side_by_side)
    merged = await asyncio.to_thread(merge, parts)
    value = await _whole(asker, matter, merged)
    await asker.step()
    told = {"conflicts": merged.conflicts, "repeats": merged.repeats}
    return Outcome(value=value, notes={name: what for name, what in told.items() if what})


STRATEGIES: dict[str, Callable[[Asker, Matter], Awaitable[Outcome]]] = {
    DIRECT: ask_directly,
    SUMMARIZE: summarize,
    EXTRACT: extract,
}


async def side_by_side(work: Callable[[Chunk], Awaitable[T]], chunks: Sequence[Chunk], *, most: int) -> list[T]:
    """What the work makes of each chunk, so many at a time. After an error none is begun; where the error may pass,
    those under way are waited for: they are paid for, and their replies are kept for the next attempt."""
    made: dict[int, T] = {}
    waiting = list(enumerate(chunks))[::-1]

    async def go_on() -> None:
        while waiting:
            at, chunk = waiting.pop()
            made[at] = await work(chunk)

    workers = [asyncio.create_task(go_on()) for _ in range(min(most, len(chunks)))]
    try:
        await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        waiting.clear()
        if any(map(_may_pass, workers)):
            await asyncio.wait(workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
    for error in filter(None, map(_error_of, workers)):
        raise error
    return [made[at] for at in range(len(chunks))]


def _may_pass(worker: asyncio.Task[None]) -> bool:
    error = _error_of(worker)
    return error is not None and worth_retrying(error)


def _error_of(worker: asyncio.Task[None]) -> BaseException | None:
    return worker.exception() if worker.done() and not worker.cancelled() else None


async def _about(asker: Asker, matter: Matter, text: Chunk) -> Outcome:
    question = prompts.extraction_prompt(matter.wanted.schema, text, system_prompt=matter.system_prompt)
    value = await asker.value(question, matter.wanted)
    await asker.step()
    return Outcome(value=value)


async def _whole(asker: Asker, matter: Matter, merged: MergedResult) -> JsonObject:
    """The merged value, if need be in another form."""
    wanted = matter.wanted
    verdict = await asker.check_value(merged.value, wanted)
    if verdict.is_valid:
        return asker.taken(verdict)
    if not matter.terms.repair_rounds or len(msgspec.json.encode(merged.value)) > MOST_TO_MEND:
        raise asker.failure(verdict.problems)
    asker.repairs += 1
    question = prompts.repair_prompt(wanted.schema, merged.value, verdict.problems, system_prompt=matter.system_prompt)
    return await asker.value(question, wanted, rounds=0)


def _together(chunks: Sequence[Chunk], text: str) -> Chunk:
    return Chunk(text=text, first_page=chunks[0].first_page, last_page=chunks[-1].last_page)

"""The three strategies to extract a value from a document.

`direct-json` asks once. `chunked-extract` extracts from each chunk in parallel and merges; the merged value must
satisfy the schema and may be repaired with one more question. `chunked-summarize` summarizes each chunk with regard to
the schema and asks once about the summaries.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from penstock.adapters.llm_postprocessor.session import ModelSession, TargetSchema
from penstock.documents.chat_model import PromptTooLong
from penstock.documents.extract.llm import prompts
from penstock.documents.extract.llm.chunks import Chunk
from penstock.documents.extract.llm.merge import MergedResult, PartialResult, merge
from penstock.documents.extract.llm.schema_variants import relaxed_schema
from penstock.kernel.json_object import JsonObject
from penstock.kernel.retry import worth_retrying

DIRECT = "direct-json"
SUMMARIZE = "chunked-summarize"
EXTRACT = "chunked-extract"

MIN_SUMMARY_CHARACTERS = 500  # a shorter summary would lose values
SUMMARY_TOLERANCE = 2  # times the requested length; models count badly, and some repeat a chunk instead
MAX_REPAIR_BYTES = 500_000  # few models accept more

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class LlmPostProcessorConfig:
    """Settings of the post-processor."""

    threshold_characters: int = 30_000  # longer documents are split into chunks
    chunk_characters: int = 12_000
    max_chunks: int = 50
    chunk_strategy: str = SUMMARIZE
    repair_rounds: int = 2
    concurrency: int = 4  # chunks of one document in parallel; the model port bounds the calls of the process


@dataclass(frozen=True, kw_only=True)
class ExtractionInput:
    """A document in chunks, the schema to fill, and the settings."""

    chunks: Sequence[Chunk]
    target: TargetSchema
    system_prompt: str | None
    config: LlmPostProcessorConfig


@dataclass(frozen=True, kw_only=True)
class Extracted:
    """A value that satisfies the schema, and notes for the result."""

    value: JsonObject
    notes: JsonObject = field(default_factory=dict)


async def extract_directly(session: ModelSession, source: ExtractionInput) -> Extracted:
    """One question about the whole document."""
    await session.plan(2)
    return await _extract_value(session, source, _joined(source.chunks, "".join(chunk.text for chunk in source.chunks)))


async def summarize(session: ModelSession, source: ExtractionInput) -> Extracted:
    """Summarize each chunk, then extract from the summaries; they are too long at twice the requested length."""
    await session.plan(len(source.chunks) + 2)
    most = max(MIN_SUMMARY_CHARACTERS, source.config.threshold_characters // len(source.chunks))

    async def summarize_chunk(chunk: Chunk) -> str:
        text = await session.text(
            prompts.summary_prompt(source.target.schema, chunk, max_characters=most, system_prompt=source.system_prompt)
        )
        await session.step()
        return f"<!-- pages {chunk.first_page} to {chunk.last_page} -->\n\n{text}\n\n"

    summaries = "".join(await in_parallel(summarize_chunk, source.chunks, max_concurrency=source.config.concurrency))
    longest = SUMMARY_TOLERANCE * most * len(source.chunks)
    if len(summaries) > longest:  # some servers truncate the prompt silently
        reason = f"its summaries are {len(summaries)} characters, over {longest}; chunked-extract needs none"
        raise PromptTooLong(reason=reason)
    return await _extract_value(session, source, _joined(source.chunks, summaries))


async def extract(session: ModelSession, source: ExtractionInput) -> Extracted:
    """Extract from each chunk and merge."""
    await session.plan(len(source.chunks) + 2)
    relaxed_target = await asyncio.to_thread(lambda: TargetSchema.of(relaxed_schema(source.target.schema)))

    async def extract_chunk(chunk: Chunk) -> PartialResult:
        question = prompts.partial_extraction_prompt(relaxed_target.schema, chunk, system_prompt=source.system_prompt)
        value = await session.value(question, relaxed_target)
        await session.step()
        return PartialResult(value=value, pages=chunk.pages)

    parts = await in_parallel(extract_chunk, source.chunks, max_concurrency=source.config.concurrency)
    merged = await asyncio.to_thread(merge, parts)
    value = await _validated(session, source, merged)
    await session.step()
    notes = {"conflicts": merged.conflicts, "repeats": merged.repeats}
    return Extracted(value=value, notes={name: what for name, what in notes.items() if what})


STRATEGIES: dict[str, Callable[[ModelSession, ExtractionInput], Awaitable[Extracted]]] = {
    DIRECT: extract_directly,
    SUMMARIZE: summarize,
    EXTRACT: extract,
}


async def in_parallel(
    work: Callable[[Chunk], Awaitable[T]], chunks: Sequence[Chunk], *, max_concurrency: int
) -> list[T]:
    """Run `work` on all chunks, `max_concurrency` at a time. After an error no chunk is started; if the error is
    transient, those in flight are awaited: they are paid for, and their replies are stored for the next attempt."""
    extracted: dict[int, T] = {}
    waiting = list(enumerate(chunks))[::-1]

    async def run_worker() -> None:
        while waiting:
            at, chunk = waiting.pop()
            extracted[at] = await work(chunk)

    workers = [asyncio.create_task(run_worker()) for _ in range(min(max_concurrency, len(chunks)))]
    try:
        await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        waiting.clear()
        if any(map(_is_transient, workers)):
            await asyncio.wait(workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
    for error in filter(None, map(_error_of, workers)):
        raise error
    return [extracted[at] for at in range(len(chunks))]


def _is_transient(worker: asyncio.Task[None]) -> bool:
    error = _error_of(worker)
    return error is not None and worth_retrying(error)


def _error_of(worker: asyncio.Task[None]) -> BaseException | None:
    return worker.exception() if worker.done() and not worker.cancelled() else None


async def _extract_value(session: ModelSession, source: ExtractionInput, text: Chunk) -> Extracted:
    question = prompts.extraction_prompt(source.target.schema, text, system_prompt=source.system_prompt)
    value = await session.value(question, source.target)
    await session.step()
    return Extracted(value=value)


async def _validated(session: ModelSession, source: ExtractionInput, merged: MergedResult) -> JsonObject:
    """The merged value, repaired by the model if it does not satisfy the schema."""
    target = source.target
    verdict = await session.check_value(merged.value, target)
    if verdict.is_valid:
        return session.accept(verdict)
    if not source.config.repair_rounds or len(msgspec.json.encode(merged.value)) > MAX_REPAIR_BYTES:
        raise session.failure(verdict.problems)
    session.repairs += 1
    question = prompts.repair_prompt(target.schema, merged.value, verdict.problems, system_prompt=source.system_prompt)
    return await session.value(question, target, rounds=0)


def _joined(chunks: Sequence[Chunk], text: str) -> Chunk:
    return Chunk(text=text, first_page=chunks[0].first_page, last_page=chunks[-1].last_page)
